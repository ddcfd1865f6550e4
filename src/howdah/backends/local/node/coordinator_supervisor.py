"""The node daemon's care for the job's coordinator: watched, started again, or given up."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from howdah.agent.host.processes import send_signal, stat
from howdah.backends.local import processes
from howdah.backends.local.node.coordinator_program import CoordinatorProgram
from howdah.backends.local.node.event_loop import EventLoop, Timer
from howdah.backends.local.node.forking import fork
from howdah.backends.local.node.log import last_line, log_to, note
from howdah.backends.local.node.supervision import RAPID_S, Supervision, Verdict, describe

COORDINATOR_LOG = "logs/coordinator.log"
FINAL = "final.json"


class CoordinatorSupervisor:
    """Keeps one coordinator alive until the job is over."""

    def __init__(
        self,
        loop: EventLoop,
        job_dir: Path,
        coordinator: CoordinatorProgram,
        over: Callable[[str], None],
    ) -> None:
        """``over`` is called once: with "" when the job is over, else with the reason why there will be
        no coordinator any more."""
        self._loop = loop
        self._job_dir = job_dir
        self._program = coordinator
        self._over = over
        self._started: float | None = None
        self._supervision = Supervision()
        self._restart: Timer | None = None
        self._terminated = False
        self._done = False
        self.pid: int | None = None
        """The living one."""
        self.adopted: bool = False
        """It was another daemon's child: nobody will see its exit code."""
        self._start: int | None = None
        """When an adopted one began; our own child keeps its process id until we reap it."""
        self.finished = False
        """It has said that the job is over."""

    def watch(self, pid: int) -> None:
        """That child is the coordinator."""
        self.pid = pid
        self.adopted = False
        self._start = None
        self._started = time.monotonic()
        self._loop.on_child(pid, self._ended)

    def adopt(self, pid: int, start: int | None = None) -> None:
        """That process, which is not our child and began at ``start``, is the coordinator."""
        self.pid = pid
        self.adopted = True
        self._started = None
        self._start = processes.start_of(pid) if start is None else start
        if self._start is None:
            self._ended(None)
        else:
            self._loop.on_end(pid, self._start, partial(self._ended, None))

    def start(self) -> None:
        """Start a coordinator, in a fresh interpreter: an upgrade may have put another release where this
        process, which may be weeks old, came from, and of two releases at once it could not run."""
        self._restart = None
        try:
            pid = fork(self._coordinate)
        except OSError as error:
            note(f"no coordinator: {error}")
            self._restart = self._loop.later(1.0, self.start)
            return
        self.watch(pid)

    def terminate(self) -> None:
        """Pass SIGTERM on: the coordinator stops the job. Without one, the job is given up."""
        self._terminated = True
        if self.pid is not None:
            self._signal(self.pid, signal.SIGTERM)
        elif not self._done:
            if self._restart is not None:
                self._restart.cancel()
            self._finish("the node daemon was told to end (SIGTERM)")

    def give_up(self, reason: str) -> None:
        """End the coordinator at once, and the job with it."""
        if self._done:
            return
        if self._restart is not None:
            self._restart.cancel()
        if self.pid is not None:
            self._signal(self.pid, signal.SIGKILL)
        self._finish(reason)

    def disconnected(self) -> None:
        """The coordinator's connection has ended. An adopted one that had finished is let go."""
        if self.finished and self.adopted and not self._done:
            self._finish("")

    def last_words(self) -> str:
        """The last line of the coordinators' log."""
        return last_line(self._job_dir / COORDINATOR_LOG)

    def _signal(self, pid: int, number: signal.Signals) -> None:
        if self._start is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        elif (found := stat(pid)) is not None and found.start == self._start:
            send_signal(found, number)

    def _coordinate(self) -> int:
        log_to(self._job_dir / COORDINATOR_LOG)
        return self._program.become(self._job_dir)

    def _ended(self, status: int | None) -> None:
        self.pid = None
        if self._done:
            return
        # How long an adopted one had lived is not known: long enough to lose its daemon.
        lived_s = RAPID_S if self._started is None else time.monotonic() - self._started
        if status != 0:
            note(f"the coordinator {describe(status)}")
        if self.finished or (self._job_dir / FINAL).exists():
            status = 0  # whatever happened then, it had done its work
        decision, self._supervision = self._supervision.ended(status, lived_s)
        if decision.verdict is Verdict.FINISHED:
            self._finish("")
        elif decision.verdict is Verdict.GIVE_UP:
            self._finish(decision.reason)
        elif self._terminated:
            self._finish("the node daemon was told to end (SIGTERM)")
        else:
            note(f"a new coordinator starts in {decision.delay_s:.1f}s")
            self._restart = self._loop.later(decision.delay_s, self.start)

    def _finish(self, reason: str) -> None:
        self._done = True
        self._over(reason)
