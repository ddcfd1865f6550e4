"""Training functions of the tests of faults, and what these tests look at."""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil

from howdah.spark.errors import FeedError
from tests.spark import programs


def count(args: Any, ctx: Any) -> list[tuple[int, int, int]]:
    """Rows and their sum, of each epoch: ``(epoch, rows, sum)``; args: seconds a batch takes.

    Of one that Spark could not bring: ``(-1, 0, 0)``; it goes on with the next.
    """
    found: list[tuple[int, int, int]] = []
    for epoch in ctx.feed():
        rows = total = 0
        try:
            for batch in epoch.batches(50):
                rows += len(batch["id"])
                total += int(batch["id"].sum())
                time.sleep(args or 0)
        except FeedError:
            found.append((-1, 0, 0))
        else:
            found.append((epoch.number, rows, total))
    return found


def raise_at_once(args: Any, ctx: Any) -> None:
    raise LookupError("no model of that name")


def raise_amid(args: Any, ctx: Any) -> None:
    """In one rank only, after a few batches; the other goes on asking."""
    for number, _ in enumerate(ctx.feed().batches(10)):
        if number == 3 and ctx.rank == 0:
            raise LookupError("batch 3 is bad")


def raise_after(args: Any, ctx: Any) -> None:
    for _ in ctx.feed().batches(10):
        pass
    raise LookupError("cannot save the model")


def double(args: Any, ctx: Any) -> None:
    """Answer every row."""
    feed = ctx.feed("inference")
    for batch in feed.batches(64):
        feed.results({"twice": batch["id"] * 2})


def slowly_with_notes(folder: str, ctx: Any) -> int:
    """Note who takes part, and go through the rows until a file ``go`` is there; rows of all.

    The note: ``<rank>.<generation>``, with the pid of this process.
    """
    place = Path(folder)
    rows = 0
    for batch in ctx.feed().batches(20):
        rows += len(batch["id"])
        note = place / f"{ctx.rank}.{ctx.generation}"
        if not note.exists():
            (whole := note.with_name(f"{note.name}.tmp")).write_text(str(os.getpid()))
            whole.rename(note)  # who sees it may read it
        if not (place / "go").exists():
            time.sleep(0.05)
    return rows


class Occupies:
    """``mapInArrow`` function: notes that it has a slot, and keeps it until a file ``go`` is there."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        folder = Path(self._folder)
        (folder / f"{os.getpid()}.occupies").touch()
        while not (folder / "go").exists():
            time.sleep(0.05)
        yield from batches


class Dies(enum.Enum):
    """What ends with an attempt at a task."""

    PROGRAM = "its program"
    PYTHON = "its Python worker"
    EXECUTOR = "its executor"


class FailsOnce:
    """``mapInArrow`` function: passes rows on; the first attempt of partition 0 ends amid them.

    An executor takes its other tasks along, whose first attempts count as failed, too.
    """

    def __init__(self, dies: Dies) -> None:
        self._dies = dies

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        first = context.partitionId() == 0 and context.attemptNumber() == 0
        for number, batch in enumerate(_small(batches)):
            if first and number == 3:
                if self._dies is Dies.PROGRAM:
                    raise OSError("the disk is gone")
                if self._dies is Dies.EXECUTOR:
                    _executor().kill()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch


def _executor() -> psutil.Process:
    """The JVM whose Python worker this process is."""
    return next(each for each in psutil.Process().parents() if each.name() == "java")


def always_fails(batches: Iterable[Any]) -> Iterator[Any]:
    """``mapInArrow`` function."""
    for number, batch in enumerate(_small(batches)):
        if number == 2:
            raise ValueError("row 7 has no label")
        yield batch


def _small(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for begin in range(0, batch.num_rows, 100):
            yield batch.slice(begin, 100)


# -- processes --------------------------------------------------------------------------------------


def of_job(job_id: str, *, word: str = "") -> list[psutil.Process]:
    """Processes whose environment or command line has the job's id (and that word)."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            line = " ".join(process.cmdline())
            told = job_id in line or process.environ().get("HOWDAH_JOB_ID") == job_id
            if told and word in line and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return [each for each in found if each.pid != os.getpid()]


def eventually(what: str, test: Any, timeout_s: float = 60.0) -> Any:
    """The first true value of ``test()``."""
    deadline = time.monotonic() + timeout_s
    while not (found := test()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)
    return found


def ended(job_id: str, timeout_s: float = 30.0) -> None:
    """Nothing of that job is left after so long."""
    pids = [each.pid for each in of_job(job_id)]
    left = programs.wait_ended(pids, timeout_s)
    assert not left, [each.cmdline() for each in of_job(job_id)]
