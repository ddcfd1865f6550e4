"""What train.py needs of Horovod, for machines where Horovod cannot be installed.

It reads the variables Horovod's gloo controller reads and meets through the same rendezvous server,
so it shows that both are right; the sums then run over plain sockets.
"""

import os
import socket
import time
import urllib.error
import urllib.request

import numpy as np
from star import Star

_star = None


def init():
    global _star
    address, port = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR"), 0
    listener = None
    if rank() == 0:
        listener = socket.create_server((address or "127.0.0.1", 0), backlog=size())
        host, port = listener.getsockname()
        if size() > 1:
            _request("PUT", "global_/0", f"{host}:{port}".encode())
    if rank() > 0:
        host, _, port = _wait("global_/0").decode().rpartition(":")
        _star = Star(rank(), size(), (host, int(port)))
    else:
        _star = Star(0, size(), listener=listener)
    if size() > 1:
        _request("DELETE", f"global_/{rank()}")


def shutdown():
    _star.close()


def rank():
    return int(os.environ.get("HOROVOD_RANK", 0))


def size():
    return int(os.environ.get("HOROVOD_SIZE", 1))


def allreduce(value):
    """The mean over all ranks."""
    return np.asarray(_star.sum([value])[0]) / size()


def broadcast_object(value, root_rank=0):
    return _star.broadcast(value)


def _wait(key):
    deadline = time.monotonic() + float(os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"])
    while (value := _request("GET", key)) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody has put {key}")
        time.sleep(0.01)
    return value


def _request(method, key, body=None):
    address = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"]
    port = os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]
    request = urllib.request.Request(f"http://{address}:{port}/{key}", body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
