"""The driver program's side of one job: a coordinator kept alive, and Spark jobs run for it.

Threads of ours only: nothing here runs in the user's threads after `Driver.start`, and nothing
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

from howdah.backends.local.agents import last_line
from howdah.backends.local.keeper import COORDINATOR_LOG
from howdah.backends.local.supervision import Supervision, Verdict
from howdah.backends.spark.child import Child
from howdah.backends.spark.messages import (
    Look,
    Seen,
    Shipment,
    SlotsOver,
    ToDriver,
    UnderWay,
    Want,
)
from howdah.backends.spark.sessions import Session, in_thread
from howdah.backends.spark.words import NO_HOWDAH, plain, waiting, was_cancelled
from howdah.spec.model import Slots
from howdah.storage import layout
from howdah.wire.frames import FrameDecoder, FrameError, encode

log = logging.getLogger(__name__)


ALIVE_S = 1.0
"""Between two looks whether there still is a session."""
LAST_S = 5.0
"""For the last Spark jobs to end after the job."""


class Driver:
    """One job's."""

    def __init__(
        self,
        session: Session,
        slots: Slots,
        job_dir: Path,
        shipment: Shipment,
        listener: socket.socket,
        child: Child,
        ended: Callable[[], None],
    ) -> None:
        """``ended`` is called once, when there is no coordinator any more."""
        self._session = session
        self._all_at_once = slots is Slots.SHARED
        """A barrier stage: its tasks end when all containers are there. Of tasks that last, one lost would
        end the others."""
        self._job_dir = job_dir
        self._shipment = shipment
        self._listener = listener
        self._child = child
        self._ended = ended
        self._lock = threading.Lock()
        self._running: dict[int, int] = {}
        """Spark jobs by ticket: holders wanted."""
        self._over = False
        self._stopped = False
        """The session was."""

    def start(self, first: int) -> None:
        """Let the coordinator begin. ``first``: so many slots will be wanted, begin with them."""
        if first:
            self._begin(1, first)
        in_thread(f"howdah {self._job_dir.name}", self._attend)

    @property
    def pid(self) -> int:
        """The coordinator's process."""
        return self._child.process.pid

    # -- the coordinator -----------------------------------------------------------------------

    def _attend(self) -> None:
        """Keep a coordinator alive until the job is over."""
        supervision = Supervision()
        reason = ""
        try:
            while True:
                began = time.monotonic()
                self._child.go(self._job_dir)
                with self._lock:
                    for ticket, count in self._running.items():
                        self._tell(UnderWay(ticket=ticket, count=count))
                self._listen()
                status = _wait_status(self._child.process.wait())
                words = self._child.last_words() or last_line(self._job_dir / COORDINATOR_LOG)
                if (self._job_dir / layout.FINAL).exists():
                    status = 0
                decision, supervision = supervision.ended(status, time.monotonic() - began)
                self._child.close()
                if decision.verdict is Verdict.FINISHED:
                    return
                if decision.verdict is Verdict.GIVE_UP:
                    reason = f"{decision.reason}: {words}" if words else decision.reason
                    return
                if not self._job_dir.is_dir():
                    return
                time.sleep(decision.delay_s)
                self._child = Child(self._listener)
        except Exception as error:  # whatever it is, the job must not look alive
            reason = f"{type(error).__name__}: {error}"
        finally:
            self._finish(reason)

    def _listen(self) -> None:
        """Until the coordinator's end of the connection is closed."""
        decoder: FrameDecoder[Any] = FrameDecoder(ToDriver)
        link = self._child.link
        while True:
            # Not by a time-out of the socket: that would be one for sending, too.
            if not select.select([link], [], [], ALIVE_S)[0]:
                self._look_for_the_session()
                continue
            try:
                data = link.recv(65536)
                messages = decoder.feed(data)
            except (OSError, FrameError) as error:
                log.error("the coordinator is not understood: %s", error)
                return
            if not data:
                return
            for message in messages:
                self._handle(message)

    def _look_for_the_session(self) -> None:
        """A job does not outlive its session: where would it get slots from?"""
        if not self._stopped and not self._session.alive():
            self._stopped = True
            self._tell(SlotsOver(ticket=0, cancelled=True, problem="the Spark session was stopped"))

    def _handle(self, message: Any) -> None:
        match message:
            case Want():
                if message.ticket not in self._running:
                    self._begin(message.ticket, message.count)
            case Look():
                in_thread("howdah look", self._look)
            case _:
                pass

    def _tell(self, message: msgspec.Struct) -> None:
        with contextlib.suppress(OSError):
            self._child.link.sendall(encode(message))

    def _finish(self, reason: str) -> None:
        self._over = True
        if reason:
            from howdah.backends.local.outcome import write_lost

            with contextlib.suppress(Exception):
                write_lost(self._job_dir, reason)
        self._child.close()
        self._listener.close()
        self._ended()
        # Tasks that are about to end do so by themselves: cancelling would cost Spark its Python
        # workers, and the next job seconds.
        deadline = time.monotonic() + LAST_S
        while self._running and time.monotonic() < deadline:
            time.sleep(0.05)
        for ticket in list(self._running):
            with contextlib.suppress(Exception):
                self._session.cancel(self._tag(ticket))

    # -- Spark jobs ----------------------------------------------------------------------------

    def _tag(self, ticket: int) -> str:
        return f"howdah-{self._job_dir.name}-{ticket}"

    def _begin(self, ticket: int, count: int) -> None:
        with self._lock:
            self._running[ticket] = count
        in_thread(f"howdah slots {ticket}", lambda: self._run(ticket, count))

    def _run(self, ticket: int, count: int) -> None:
        answer = SlotsOver(ticket=ticket, problem="the program has ended")
        try:
            answer = self._slots(ticket, count)
        finally:
            with self._lock:
                self._running.pop(ticket, None)
                self._tell(answer)

    def _slots(self, ticket: int, count: int) -> SlotsOver:
        """Run the Spark job to its end."""
        capacity = self._session.capacity(self._session.profile)
        if capacity is not None and capacity < count and self._all_at_once:
            # Spark itself would look again and again for ten minutes, and then fail.
            return SlotsOver(ticket=ticket, full=True)
        order = msgspec.structs.replace(self._shipment.order, ticket=ticket)
        data = msgspec.msgpack.encode(msgspec.structs.replace(self._shipment, order=order))
        try:
            told = self._session.run(
                count, slot(data), barrier=self._all_at_once, tag=self._tag(ticket)
            )
        except Exception as error:  # py4j's, Connect's, or whatever a task raised
            if self._over:
                return SlotsOver(ticket=ticket)
            text = plain(error)
            if was_cancelled(error):
                text = f"its Spark job was cancelled: {text}"
                return SlotsOver(ticket=ticket, problem=text, cancelled=True)
            return SlotsOver(ticket=ticket, problem=text)
        problems = sorted(set(told) - {""})
        return SlotsOver(ticket=ticket, problem="; ".join(problems[:3]))

    def _look(self) -> None:
        with self._lock:
            wanted = sum(self._running.values())
        capacity = self._session.capacity(self._session.profile)
        words = waiting(wanted, capacity, self._session.busy())
        self._tell(Seen(words=words))


def slot(shipment: bytes) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that Spark's tasks run. It travels by value: where there is no Howdah, it is the
    one to say so."""

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
            from howdah.backends.spark.slots import occupy
        except ImportError as error:
            problem = (
                f"the executors' Python ({sys.executable}, {sys.version.split()[0]}) cannot run a "
                f"container: {error}. {advice}"
            )
        else:
            problem = occupy(shipment, context)
        yield pyarrow.RecordBatch.from_pydict({"problem": [problem]})

    return run


def _wait_status(code: int) -> int:
    """A process's return code as `os.waitpid` gives it."""
    return -code if code < 0 else code << 8
