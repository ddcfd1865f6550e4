"""On the path of Spark's Python workers and of the training processes, where rows are to go as between hosts.

Feeders take no Unix socket then. If ``HOWDAH_BENCHMARK_WIRE`` is ``plain``, both sides leave TLS out: no
setting of the product does that.
"""

import os
import socket

_WIRE = os.environ.get("HOWDAH_BENCHMARK_WIRE")

if _WIRE:
    import msgspec

    from howdah.spark.feed import server
    from howdah.spark.feed.connections import DataConnection
    from howdah.spark.feed.tasks import feeder_client

    dial = feeder_client._dial

    def _dial(endpoint, access, host):
        endpoint = msgspec.structs.replace(endpoint, socket="")
        if _WIRE != "plain":
            return dial(endpoint, access, host)
        sock = socket.create_connection((endpoint.address or endpoint.host, endpoint.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def _accept(self):
        sock, _ = self._far.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._let_in(DataConnection(sock))

    feeder_client._dial = _dial
    if _WIRE == "plain":
        server.FeedServer._start_proxy = _accept
