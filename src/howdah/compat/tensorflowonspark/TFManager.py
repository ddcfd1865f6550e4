"""TensorFlowOnSpark's ``TFManager``, as far as programs see it: named queues and named values.

There it is a process of its own per executor, which every row goes through, pickled. Here rows come
to the training process by `howdah.spark.feed`, and this is an object in that process, so that
``TFNode.DataFeed(ctx.mgr)``, ``mgr.get_queue(name)`` and ``mgr.get("state")`` mean what they meant.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping
from queue import Queue
from typing import Any

from howdah.compat.tensorflowonspark.queues import AnyQueue

_STARTED: dict[str, tuple[bytes, TFManager]] = {}
"""Managers of this process, by address."""
_LOCK = threading.Lock()


class TFManager:
    """Queues and values of one training process."""

    def __init__(self, queues: Mapping[str, AnyQueue], address: str = "") -> None:
        self._queues = dict(queues)
        self._values: dict[str, Any] = {}
        self.address = address

    def get_queue(self, qname: str) -> AnyQueue | None:
        """The queue of that name, or None."""
        return self._queues.get(qname)

    def get(self, key: str) -> Any:
        """A value that was set; ``state`` is ``running``, ``terminating`` or ``stopped``."""
        return self._values[key]

    def set(self, key: str, value: Any) -> None:
        """Keep a value under that name."""
        self._values[key] = value

    def shutdown(self) -> None:
        """Forget it: `connect` does not find it any more."""
        with _LOCK:
            _STARTED.pop(self.address, None)


def start(authkey: bytes, queues: Iterable[str], mode: str = "local") -> TFManager:
    """A manager with empty queues of these names, in this process.

    Raises:
        ValueError: ``mode`` is ``remote``: queues are not served to other machines here.
    """
    if mode != "local":
        raise ValueError(
            f"mode is {mode!r}; only 'local' is there: rows go to training processes through "
            "TFCluster.train and inference, not through a manager's queues"
        )
    address = f"tfmanager-{uuid.uuid4().hex}"
    manager = TFManager({name: Queue() for name in queues}, address)
    with _LOCK:
        _STARTED[address] = (authkey, manager)
    return manager


def connect(address: str, authkey: bytes) -> TFManager:
    """The manager that `start` has made in this process.

    Raises:
        ConnectionError: there is none at this address, or the key is another.
    """
    with _LOCK:
        found = _STARTED.get(address)
    if found is None or found[0] != authkey:
        raise ConnectionError(
            f"no manager at {address!r} with this key in this process; managers of other processes "
            "cannot be reached: feed through TFCluster.train or TFCluster.inference"
        )
    return found[1]
