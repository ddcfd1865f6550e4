"""Ports of clusters: fixed for a cluster's life, so that any of its daemons can be restarted.

A cluster has a block of ports to itself, below the kernel's ephemeral range. Clusters of different
test processes must not choose the same block while their daemons have not bound it yet: a claim is
a file that names the cluster's folder, and holds as long as that folder exists.
"""

from __future__ import annotations

import os
import random
import socket
import tempfile
from pathlib import Path

from tests.hadoop.artifacts import locked
from tests.hadoop.errors import ClusterError

RANGE = range(11_000, 19_000)
_BLOCK = 50


def claim(folder: Path) -> range:
    """A block of free ports for the cluster in that (existing) folder."""
    claims = Path(tempfile.gettempdir()) / f"hwt-hadoop-ports-{os.getuid()}"
    with locked(claims / "lock"):
        blocks = list(RANGE[::_BLOCK])
        random.shuffle(blocks)
        for first in blocks:
            claimed = claims / str(first)
            if claimed.exists() and Path(claimed.read_text()).exists():
                continue
            block = range(first, first + _BLOCK)
            if all(map(_is_free, block)):
                claimed.write_text(str(folder))
                return block
    raise ClusterError(f"no {_BLOCK} free ports in a row between {RANGE[0]} and {RANGE[-1]}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
