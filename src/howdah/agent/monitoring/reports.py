"""What a program tells through `howdah.task`: datagrams of JSON on a Unix socket of its own.

Nothing a program sends can harm: what is no report is dropped, and a program that reports faster
than we read loses reports, not time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from howdah.storage import runtime
from howdah.wire.messages import Point

_DATAGRAM_BYTES = 64 * 1024
_BATCH = 256
_PAUSE_S = 0.02
_POINTS = 10_000
_POINTS_BYTES = 2 << 20
"""Reports that are kept between two heartbeats, which must fit into a frame. Of more the newest value of each
name is."""
_KEYS = 200
"""Different values of one attempt; more are dropped."""
_KEY_LENGTH = 120


class Web(msgspec.Struct, frozen=True, kw_only=True):
    """A page the program says it serves, or may serve."""

    name: str
    port: int
    path: str = "/"
    host: str | None = None
    keeps_prefix: bool = False
    locked: bool = False
    """It demands the attempt's page token, or `secret`."""
    secret: str = ""
    viewable: bool = True
    """See `howdah.wire.messages.WebAddress`."""
    expected: bool = True
    """Its reader is told if nothing of the task listens there."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One datagram, understood."""

    step: float | None = None
    total: float | None = None
    """Steps in all."""
    values: dict[str, float] = {}
    checkpoint: bool = False
    """The program has completed a checkpoint."""
    joined: bool = False
    """The program has found its peers."""
    web: Web | None = None


def understand(data: bytes) -> Report | None:
    """What a datagram says; None if it is no report."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    web = document.pop("web", None)
    saved = document.pop("checkpoint", None)
    joined = document.pop("joined", None)
    step = _number(document.pop("step", None))
    total = _number(document.pop("total", None))
    values: dict[str, float] = {}
    for key, value in document.items():
        number = _number(value)
        if number is not None and len(key) <= _KEY_LENGTH:
            values[key] = number
    return Report(
        step=step,
        total=total,
        values=values,
        checkpoint=saved is not None,
        joined=joined is True,
        web=_web(web),
    )


def _number(value: Any) -> float | None:
    if isinstance(value, (int, float)):
        with contextlib.suppress(OverflowError):
            number = float(value)
            # JSON, in which samples are stored, knows no infinity.
            return number if math.isfinite(number) else None
    return None


def _web(value: Any) -> Web | None:
    if value is None:
        return None
    try:
        return msgspec.convert(value, Web)
    except msgspec.ValidationError:
        return None


class ReportSocket:
    """Receives the reports of one attempt."""

    def __init__(self, path: Path, received: Callable[[Report], None]) -> None:
        """Listen at ``path``, which must be short (107 bytes).

        Raises:
            OSError: it can't be made.
        """
        self.path = path
        self._received = received
        self._loop = asyncio.get_running_loop()
        self._paused: asyncio.TimerHandle | None = None
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            runtime.retry_with_folder(partial(self._socket.bind, str(path)))
            path.chmod(0o600)
        except OSError:
            self._socket.close()
            raise
        self._loop.add_reader(self._socket, self._ready)

    def close(self) -> None:
        """Take what is waiting, then remove the socket."""
        if self._socket.fileno() < 0:
            return
        if self._paused is not None:
            self._paused.cancel()
        self._loop.remove_reader(self._socket)
        while self._take() == _BATCH:
            pass
        self._socket.close()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def _ready(self) -> None:
        if self._take() == _BATCH:
            # A program that reports without end shall not keep us busy.
            self._loop.remove_reader(self._socket)
            self._paused = self._loop.call_later(_PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._paused = None
        self._loop.add_reader(self._socket, self._ready)

    def _take(self) -> int:
        for count in range(_BATCH):
            try:
                data = self._socket.recv(_DATAGRAM_BYTES)
            except (BlockingIOError, InterruptedError, OSError):
                return count
            report = understand(data)
            if report is not None:
                self._received(report)
        return _BATCH


class ReportedValues:
    """What has been reported since the last sample."""

    def __init__(self) -> None:
        self.step: float | None = None
        self.total: float | None = None
        self._values: dict[str, float] = {}
        self._points: list[Point] = []
        self._bytes = 0
        self._keys: set[str] = set()

    def add(self, report: Report) -> None:
        if report.step is not None:
            self.step = report.step
        if report.total is not None:
            self.total = report.total
        values: dict[str, float] = {}
        for key, value in report.values.items():
            if key in self._keys or len(self._keys) < _KEYS:
                self._keys.add(key)
                self._values[key] = values[key] = value
        self._bytes += 40 + sum(len(key.encode(errors="replace")) + 10 for key in values)
        if values and len(self._points) < _POINTS and self._bytes < _POINTS_BYTES:
            self._points.append(Point(time=time.time(), step=self.step, values=values))

    def take(self) -> dict[str, float]:
        """The newest values since the last time."""
        values, self._values = self._values, {}
        return values

    def take_points(self) -> tuple[Point, ...]:
        """The reports since the last time."""
        points, self._points, self._bytes = self._points, [], 0
        return tuple(points)
