"""Save a task's folder whenever its program has completed something, while it runs.

The watcher is told by lines on its standard input:

``publish``
    the program says it has just completed a checkpoint: save without waiting for quiet;
``finish``
    the programs have ended by themselves: save what is there, and end;
end of file, or SIGTERM
    the programs were killed, or the agent died: a file they had just been writing may be torn, so
    save only what had been quiet for ``settle_s``, and end.
"""

from __future__ import annotations

import enum
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from howdah.storage.folders import FolderChanged, Tree, last_change, scan, written_now
from howdah.storage.publishing import Outdated, Publisher
from howdah.storage.versions import CheckpointSpec, Problem

OPEN_FACTOR = 20
"""A file that stays open for writing, unchanged, delays saving by so many times ``settle_s``."""

HURRY_FACTOR = 2
"""A folder that has not been quiet for so many times ``settle_s`` is saved in a shorter quiet."""

RESTLESS_S = 60.0
"""A folder that is never quiet for so long is reported."""

_BACKOFF_S = (1.0, 60.0)
"""After a store refused: first and longest pause."""

Report = Callable[[msgspec.Struct], None]


class Order(enum.Enum):
    """What the watcher was told."""

    PUBLISH = "publish"
    FINISH = "finish"
    END = "end"


class Orders:
    """Orders from a pipe and SIGTERM, waited for with a time limit."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._rest = b""
        self._waiting: list[Order] = []
        self._signals, self._signalled = os.pipe()
        os.set_blocking(self._signalled, False)

    def catch_sigterm(self) -> None:
        """Take SIGTERM as `Order.END`; leave a terminal's signals to the programs."""
        signal.signal(signal.SIGTERM, lambda *_: os.write(self._signalled, b"x"))
        for other in (signal.SIGINT, signal.SIGHUP):
            signal.signal(other, signal.SIG_IGN)

    def wait(self, seconds: float) -> Order | None:
        """The next order; None when there is none within that time."""
        if not self._waiting:
            ready, _, _ = select.select([self._source, self._signals], [], [], seconds)
            if self._signals in ready:
                return Order.END
            if self._source in ready:
                self._read()
        return self._waiting.pop(0) if self._waiting else None

    def close(self) -> None:
        os.close(self._signals)
        os.close(self._signalled)

    def _read(self) -> None:
        data = os.read(self._source, 4096)
        *lines, self._rest = (self._rest + data).split(b"\n")
        words = {order.value.encode(): order for order in (Order.PUBLISH, Order.FINISH)}
        self._waiting += [words[line.strip()] for line in lines if line.strip() in words]
        if not data:
            self._waiting.append(Order.END)


def watch(spec: CheckpointSpec, orders: Orders, report: Report) -> None:
    """Save versions until told to end; each `Saved`, and each new problem, goes to ``report``.

    Never raises for what the store or the folder does: a program trains meanwhile.
    """
    _Watch(spec, orders, report).run()


class _Watch:
    def __init__(self, spec: CheckpointSpec, orders: Orders, report: Report) -> None:
        self._spec = spec
        self._folder = Path(spec.folder)
        self._orders = orders
        self._report = report
        self._publisher: Publisher | None = None
        self._tree: Tree = {}
        self._quiet_since = time.monotonic()
        self._restless_since: float | None = None
        self._not_before = 0.0
        self._backoff_s = _BACKOFF_S[0]
        self._problems: set[str] = set()
        self._outdated = False
        self._open_file: str | None = None
        """A file of `_tree` that was open for writing when last looked."""

    def run(self) -> None:
        pause_s = 0.0
        while True:
            order = self._orders.wait(pause_s)
            began = time.monotonic()
            if order in (Order.FINISH, Order.END):
                self._last(order)
                return
            tree = scan(self._folder, self._spec.ignore)
            # A folder with very many files takes long to scan: stay below a twentieth of a core.
            spent = time.monotonic() - began
            pause_s = max(min(self._needed_s(began) / 4, 1.0), 0.02, 20 * spent)
            self._look(tree, began, prompt=order is Order.PUBLISH)
            if self._open_file is not None:
                pause_s = max(pause_s, self._spec.settle_s)  # looking for it is not cheap either

    def _look(self, tree: Tree, now: float, *, prompt: bool) -> None:
        if tree != self._tree:
            self._tree, self._quiet_since, self._open_file = tree, now, None
        publisher = self._open()
        if publisher is None or not publisher.changed(tree):
            self._restless_since = None
            return
        if self._restless_since is None:
            self._restless_since = now
        if prompt or (now >= self._not_before and self._settled(now)):
            self._publish(publisher)
        if self._restless_since is not None and now - self._restless_since > RESTLESS_S:
            self._tell(
                f"Nothing in {self._folder} could be saved for {RESTLESS_S:g} s: its files change"
                f" all the time or are open for writing ({self._restless_file()}). Write logs"
                " elsewhere, or name them in [checkpoint] ignore"
            )

    def _needed_s(self, now: float) -> float:
        """How long the folder must be quiet.

        A program that saves more often than ``settle_s`` would never be saved: after a while half of
        it will do, which is still long for files that are closed.
        """
        waited_s = 0.0 if self._restless_since is None else now - self._restless_since
        hurry = waited_s > HURRY_FACTOR * self._spec.settle_s
        return self._spec.settle_s / 2 if hurry else self._spec.settle_s

    def _settled(self, now: float) -> bool:
        quiet_s = now - self._quiet_since
        if quiet_s < self._needed_s(now):
            return False
        if quiet_s >= OPEN_FACTOR * self._spec.settle_s:
            return True
        self._open_file = written_now(self._folder, self._tree)
        return self._open_file is None

    def _restless_file(self) -> str:
        return max(self._tree, key=lambda name: self._tree[name].ctime_ns, default="")

    def _last(self, order: Order) -> None:
        """The programs have ended. Nobody else writes the folder now, if all went well."""
        for _ in range(3):
            tree = scan(self._folder, self._spec.ignore)
            if order is Order.END and self._perhaps_torn(tree):
                return
            self._tree = tree
            publisher = self._open()
            if publisher is None or self._publish(publisher):
                return

    def _perhaps_torn(self, tree: Tree) -> bool:
        """Whether a program that was just killed may have been writing one of the files."""
        if time.time() - last_change(tree) < self._spec.settle_s:
            return True
        return self._open_file is not None and tree == self._tree

    def _open(self) -> Publisher | None:
        if self._publisher is None and not self._outdated:
            if time.monotonic() < self._not_before:
                return None
            try:
                self._publisher = Publisher(self._spec)
                self._publisher.clean()
            except Exception as error:
                self._refused(error)
        return self._publisher

    def _publish(self, publisher: Publisher) -> bool:
        """Whether that is done with: saved, or nothing to save, or never to be saved."""
        try:
            saved = publisher.publish(self._tree)
        except FolderChanged:
            self._quiet_since = time.monotonic()
            return False
        except Outdated as error:
            self._tell(str(error))
            self._outdated, self._publisher = True, None
            return True
        except Exception as error:
            # fsspec's stores raise what they like; the program must not notice.
            self._refused(error)
            return False
        self._backoff_s, self._restless_since = _BACKOFF_S[0], None
        if saved is not None:
            self._report(saved)
        return True

    def _refused(self, error: Exception) -> None:
        self._not_before = time.monotonic() + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, _BACKOFF_S[1])
        self._tell(
            f"The checkpoint folder {self._folder} can't be saved to {self._spec.place}:"
            f" {type(error).__name__}: {error}; it is tried again"
        )

    def _tell(self, text: str) -> None:
        if text not in self._problems:
            self._problems.add(text)
            self._report(Problem(problem=text))
