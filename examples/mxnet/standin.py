"""What train.py needs of MXNet, for machines where MXNet cannot be installed.

The roles do what ps-lite's do, by the same variables: servers and workers report to the scheduler at
DMLC_PS_ROOT_URI:DMLC_PS_ROOT_PORT, which numbers the workers and tells everybody where the server is.
The server adds up what the workers push. One server only; sums run over plain sockets.
"""

import os
import socket
import sys

import numpy as np
from star import Star, connect, receive, send

ROLE = os.environ.get("DMLC_ROLE", "worker")
WORKERS = int(os.environ.get("DMLC_NUM_WORKER", 1))
SERVERS = int(os.environ.get("DMLC_NUM_SERVER", 1))
ALONE = "DMLC_PS_ROOT_URI" not in os.environ
if not ALONE:
    ROOT = (os.environ["DMLC_PS_ROOT_URI"], int(os.environ["DMLC_PS_ROOT_PORT"]))


class KVStore:
    """The calls of ``mxnet.kvstore`` that train.py makes, on lists of arrays."""

    def __init__(self):
        self.rank, self.num_workers, self._sums = 0, WORKERS, None
        if ALONE:
            return
        scheduler = connect(ROOT)
        send(scheduler, b"worker")
        self.rank, host, port = receive(scheduler).decode().split()
        self.rank = int(self.rank)
        self._star = Star(self.rank + 1, WORKERS + 1, (host, int(port)))

    def push_pull(self, arrays):
        """The sum over all workers of each array."""
        return arrays if ALONE else self._star.sum(arrays)

    def close(self):
        if not ALONE:
            self._star.close()


def schedule():
    """Wait for everybody, then tell everybody where the server is."""
    listener = socket.create_server(ROOT, backlog=WORKERS + SERVERS)
    print(f"scheduler at {ROOT[0]}:{ROOT[1]}", flush=True)
    peers = [listener.accept()[0] for _ in range(WORKERS + SERVERS)]
    words = [receive(peer).decode().split() for peer in peers]
    server = next(place for role, *place in words if role == "server")
    workers = [peer for peer, (role, *_) in zip(peers, words) if role == "worker"]
    for rank, worker in enumerate(workers):
        send(worker, f"{rank} {' '.join(server)}".encode())
    for worker in workers:
        worker.recv(1)  # until it has gone


def serve():
    """Add up what all workers push, until they go."""
    listener = socket.create_server((ROOT[0], 0), backlog=WORKERS)
    scheduler = connect(ROOT)
    host, port = listener.getsockname()
    send(scheduler, f"server {host} {port}".encode())
    star = Star(0, WORKERS + 1, listener=listener)
    print(f"server at {host}:{port}", flush=True)
    zeros = [np.zeros(()), *(np.zeros(s) for s in ((64, 64), 64, (64, 10), 10))]
    try:
        while True:
            star.sum(zeros)
    except ConnectionError:
        print("the workers have gone", flush=True)


# As ``import mxnet`` does: a scheduler or server never gets past this line.
if ROLE == "scheduler":
    sys.exit(schedule())
if ROLE == "server":
    sys.exit(serve())
