"""The driver program's side of one job: a coordinator kept alive, and Spark jobs run for it.

Everything after `Driver.start` runs in daemon threads, none of them the user's, so that nothing
keeps the program from ending. When it ends, the coordinator sees its connection close.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from howdah.backends.local.node.coordinator_supervisor import COORDINATOR_LOG
from howdah.backends.local.node.log import last_line
from howdah.backends.local.node.lost_job import write_lost
from howdah.backends.local.node.supervision import Supervision, Verdict
from howdah.backends.spark.coordinator_process import CoordinatorProcess
from howdah.backends.spark.error_texts import (
    NO_HOWDAH,
    SESSION_STOPPED,
    error_text,
    pending_text,
    was_cancelled,
)
from howdah.backends.spark.launch_bundle import LaunchBundle
from howdah.backends.spark.messages import (
    QuerySlots,
    RequestSlots,
    SlotsCompleted,
    SlotsPending,
    SlotsReport,
)
from howdah.backends.spark.sessions import SparkAccess, in_thread
from howdah.spec.model import Slots
from howdah.storage import layout
from howdah.wire.frames import FrameError

log: logging.Logger = logging.getLogger(__name__)


ALIVE_S = 1.0
"""Between two checks that the session still is there."""
LAST_S = 5.0
"""For the last Spark jobs to end after the job."""


class Driver:
    """The driver program's side of one job."""

    def __init__(
        self,
        session: SparkAccess,
        slots: Slots,
        job_dir: Path,
        bundle: LaunchBundle,
        listener: socket.socket,
        coordinator: CoordinatorProcess,
        ended: Callable[[], None],
    ) -> None:
        """``ended`` is called once, when there will be no coordinator any more."""
        self._session = session
        self._all_at_once = slots is Slots.SHARED
        """A barrier stage, whose tasks end when all container processes are registered. Of tasks that
        last, one lost would end the others."""
        self._job_dir = job_dir
        self._bundle = bundle
        self._listener = listener
        self._coordinator = coordinator
        self._ended = ended
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._running: dict[int, int] = {}
        """Container processes requested, by number of the Spark job."""
        self._over = False
        self._stopped = False
        """The session was stopped."""

    def start(self, first: int) -> None:
        """Let the coordinator begin. ``first``: request so many slots at once."""
        if first:
            self._begin(1, first)
        in_thread(f"howdah {self._job_dir.name}", self._attend)

    @property
    def pid(self) -> int:
        """The coordinator's process."""
        return self._coordinator.process.pid

    # -- the coordinator -----------------------------------------------------------------------

    def _attend(self) -> None:
        """Keep a coordinator alive until the job is over."""
        supervision = Supervision()
        reason = ""
        try:
            while True:
                began = time.monotonic()
                self._coordinator.begin(self._job_dir)
                with self._lock:
                    for spark_job, count in self._running.items():
                        self._send(SlotsPending(spark_job=spark_job, count=count))
                self._listen()
                code = self._coordinator.process.wait()
                status = -code if code < 0 else code << 8  # as `os.waitpid` gives it
                output = self._coordinator.last_output() or last_line(
                    self._job_dir / COORDINATOR_LOG
                )
                if (self._job_dir / layout.FINAL).exists():
                    status = 0
                decision, supervision = supervision.ended(status, time.monotonic() - began)
                self._coordinator.close()
                if decision.verdict is Verdict.FINISHED:
                    return
                if decision.verdict is Verdict.GIVE_UP:
                    reason = f"{decision.reason}: {output}" if output else decision.reason
                    return
                if not self._job_dir.is_dir():
                    return
                time.sleep(decision.delay_s)
                self._coordinator = CoordinatorProcess(self._listener)
        except Exception as error:  # whatever it is, the job must not look alive
            reason = f"{type(error).__name__}: {error}"
        finally:
            self._finish(reason)

    def _listen(self) -> None:
        """Handle messages until the coordinator's end of the connection is closed."""
        connection = self._coordinator.connection
        while True:
            out = [connection.socket] if connection.pending_bytes else []
            readable, writable, _ = select.select([connection.socket], out, [], ALIVE_S)
            if writable:
                with contextlib.suppress(OSError), self._sending:
                    connection.flush()
            if not readable:
                if not writable:
                    self._check_session()
                continue
            try:
                messages, there = connection.receive()
            except FrameError as error:
                log.error("the coordinator sent what is no message: %s", error)
                return
            for message in messages:
                self._handle(message)
            if not there:
                return

    def _check_session(self) -> None:
        """A job does not outlive its session, from which it gets its slots."""
        if not self._stopped and not self._session.alive():
            self._stopped = True
            self._send(SlotsCompleted(spark_job=0, cancelled=True, problem=SESSION_STOPPED))

    def _handle(self, message: Any) -> None:
        match message:
            case RequestSlots():
                if message.spark_job not in self._running:
                    self._begin(message.spark_job, message.count)
            case QuerySlots():
                in_thread("howdah slots report", lambda: self._report(message.wanted))

    def _send(self, message: msgspec.Struct) -> None:
        with contextlib.suppress(OSError), self._sending:
            self._coordinator.connection.send(message)

    def _finish(self, reason: str) -> None:
        self._over = True
        if reason:
            with contextlib.suppress(Exception):
                write_lost(self._job_dir, reason)
        self._coordinator.close()
        self._listener.close()
        self._ended()
        # Tasks that are about to end do so by themselves: cancelling would cost Spark its Python
        # workers, and the next job seconds.
        deadline = time.monotonic() + LAST_S
        while self._running and time.monotonic() < deadline:
            time.sleep(0.05)
        for spark_job in list(self._running):
            with contextlib.suppress(Exception):
                self._session.cancel(self._tag(spark_job))

    # -- Spark jobs ----------------------------------------------------------------------------

    def _tag(self, spark_job: int) -> str:
        return f"howdah-{self._job_dir.name}-{spark_job}"

    def _begin(self, spark_job: int, count: int) -> None:
        with self._lock:
            self._running[spark_job] = count
        in_thread(f"howdah slots {spark_job}", lambda: self._run(spark_job, count))

    def _run(self, spark_job: int, count: int) -> None:
        completed = SlotsCompleted(spark_job=spark_job, problem="the program has ended")
        try:
            completed = self._slots(spark_job, count)
        finally:
            with self._lock:
                self._running.pop(spark_job, None)
                self._send(completed)

    def _slots(self, spark_job: int, count: int) -> SlotsCompleted:
        """Run the Spark job to its end."""
        capacity = self._session.capacity(self._session.profile)
        if capacity is not None and capacity < count and self._all_at_once:
            # Spark itself would look again and again for ten minutes, and then fail.
            return SlotsCompleted(spark_job=spark_job, full=True)
        config = msgspec.structs.replace(self._bundle.config, spark_job=spark_job)
        data = msgspec.msgpack.encode(msgspec.structs.replace(self._bundle, config=config))
        try:
            answers = self._session.run(
                count, slot_task(data), barrier=self._all_at_once, tag=self._tag(spark_job)
            )
        except Exception as error:  # py4j's, Connect's, or whatever a task raised
            if self._over:
                return SlotsCompleted(spark_job=spark_job)
            text = error_text(error)
            if was_cancelled(error):
                if text != SESSION_STOPPED:
                    text = f"its Spark job was cancelled: {text}"
                return SlotsCompleted(spark_job=spark_job, problem=text, cancelled=True)
            return SlotsCompleted(spark_job=spark_job, problem=text)
        problems = sorted(set(answers) - {""})
        return SlotsCompleted(spark_job=spark_job, problem="; ".join(problems[:3]))

    def _report(self, wanted: int) -> None:
        capacity = self._session.capacity(self._session.profile)
        text = pending_text(wanted, capacity, self._session.busy())
        self._send(SlotsReport(text=text))


def slot_task(bundle: bytes) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that Spark's tasks run. It travels by value, so that it can report a missing
    Howdah."""

    advice = NO_HOWDAH

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        import pyarrow
        from pyspark import TaskContext

        for _ in batches:
            pass
        context = TaskContext.get()
        assert context is not None  # in a task there is one
        try:
            from howdah.backends.spark import slot_task
        except ImportError as error:
            problem = (
                f"the executors' Python ({sys.executable}, {sys.version.split()[0]}) cannot run a "
                f"container: {error}. {advice}"
            )
        else:
            problem = slot_task.run(bundle, context)
        yield pyarrow.RecordBatch.from_pydict({"problem": [problem]})

    return run
