"""One attempt of the task, from its preparation to its end.

Its life is one coroutine, `Attempt._live`: prepare, wait for the start, run, save, say how it ended.
Whatever happens on the way, it ends with `TaskExited`, everything it held is given back, and its state
is kept to be told again, until a newer attempt takes its place.

After the programs' end one deadline holds for all that is saved; what is not saved by then is named in
the exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import os
import signal
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec

from howdah.agent import ports, workfolder
from howdah.agent.checkpoints import Checkpoints
from howdah.agent.container import Container
from howdah.agent.helpers import HelperProblem
from howdah.agent.mirroring import Mirroring
from howdah.agent.outputs import Outputs
from howdah.agent.reports import Report, ReportSocket
from howdah.agent.running import Ready, Run
from howdah.agent.stacks import take
from howdah.agent.tail import NewestLine
from howdah.core.messages import (
    Exit,
    Held,
    HeldPhase,
    StacksTaken,
    TaskExited,
    TaskJoined,
    TaskPrepared,
    TaskSaving,
    TaskStarted,
)
from howdah.storage.errors import is_transient
from howdah.wire.messages import Heartbeat, Prepare, Start

log = logging.getLogger(__name__)

_STACKS_TEXT = 1024 * 1024
"""Characters of stacks sent; the file has all."""
_MOMENT_S = 1.0
"""Saving that takes longer is said."""
_LAST_CHUNK_S = 1.0
"""For who follows the log, to get its end before the attempt's."""


class Phase(enum.Enum):
    """Where the attempt is."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    RUNNING = "running"
    SAVING = "saving"
    EXITED = "exited"


_HELD = {
    Phase.PREPARED: HeldPhase.PREPARED,
    Phase.RUNNING: HeldPhase.RUNNING,
    Phase.SAVING: HeldPhase.SAVING,
    Phase.EXITED: HeldPhase.EXITED,
}


class _Ended(Exception):
    """The attempt is over before its programs ran."""

    def __init__(self, exit: Exit) -> None:
        super().__init__(exit)
        self.exit = exit


class Attempt:
    """One attempt. It begins at once, or when the one before it is over."""

    def __init__(self, container: Container, order: Prepare, before: Attempt | None = None) -> None:
        self._container = container
        self._order = order
        self._loop = asyncio.get_running_loop()
        self.task = order.task
        self.attempt = order.attempt
        self.phase = Phase.PREPARING
        self.exit: Exit | None = None
        self._run: Run | None = None
        self._log_size = 0
        self._newest_line = NewestLine() if container.launch.last_lines else None
        self._ready: Ready | None = None
        self._reports: ReportSocket | None = None
        self._reservation: ports.Reservation | None = None
        self._checkpoints = Checkpoints(container, order)
        self._outputs = Outputs(container, order)
        self._start: asyncio.Future[Start] = self._loop.create_future()
        self._stop: asyncio.Future[None] = self._loop.create_future()
        self._save_s: float | None = None
        """How long may be saved, as the stops have it; None before there was one."""
        self._ended: Exit | None = None
        """How the programs ended, while saving goes on and after it."""
        self._saving: asyncio.Timeout | None = None
        self._life = self._loop.create_task(self._live(before))

    # -- commands; each may come twice -----------------------------------------------------------

    def start(self, order: Start) -> None:
        """Start the programs, unless that was said before."""
        if not self._start.done():
            self._start.set_result(order)
        else:
            self.tell_again()

    def stop(self, grace_s: float, save_s: float) -> None:
        """End it, whatever it does; `TaskExited` follows. Again: less grace or less time to save
        counts."""
        if self.phase is Phase.EXITED:
            self.tell_again()
            return
        if not self._stop.done():
            self._stop.set_result(None)
        self._save_s = save_s if self._save_s is None else min(self._save_s, save_s)
        if self._run is not None:
            self._run.stop(grace_s)
        if self._saving is not None:
            by = self._saving.when()
            self._saving.reschedule(min(by or 0.0, self._loop.time() + max(save_s, 0.0)))
            self._say_saving()

    def request_checkpoint(self, reason: str) -> None:
        """Ask the program to save: it sees a file that was not there, or has changed, and hears a
        signal if the job file names one."""
        file = self._container.checkpoint_request
        with contextlib.suppress(OSError):
            temporary = file.with_suffix(".tmp")
            temporary.write_text(f"{reason}\n")
            temporary.replace(file)
        name = str((self._order.checkpoint or {}).get("signal"))
        if self._run is not None and name in signal.Signals.__members__:
            self._run.notify(signal.Signals[name])

    async def take_stacks(self) -> StacksTaken:
        """Where its processes stand."""
        if self._run is None or self.phase is not Phase.RUNNING:
            return self._stacks(problem=f"the attempt is {self.phase.value}, nothing of it runs")
        folders = [str(f) for f in (self._container.source, self._container.work) if f]
        taken = await take(self._container.helpers, self._run.processes(), folders)
        path = self._save_stacks(taken.text)
        return self._stacks(taken.innermost, path, taken.text[:_STACKS_TEXT], taken.problem)

    def _save_stacks(self, text: str) -> str:
        """Their path relative to the job directory; empty if the coordinator has to save them."""
        container = self._container
        if container.launch.log_store is not None:
            return ""
        path = container.stacks_path(self.task, self.attempt)
        try:
            _write_private(container.job_folder / path, text)
        except OSError as error:
            log.warning("stacks can't be saved: %s", error)
            return ""
        return path

    def tell_again(self) -> None:
        """What was said last may be lost: say where it is."""
        say = self._container.say
        names = {"task": self.task, "attempt": self.attempt}
        if self.phase is Phase.PREPARED:
            self._say_prepared()
        elif self.phase is Phase.RUNNING and self._run is not None and self._run.pids:
            say(TaskStarted(**names, pids=self._run.pids))
            if self._run.joined:
                say(TaskJoined(**names))
        elif self.phase is Phase.SAVING:
            self._say_saving()
        elif self.exit is not None:
            say(TaskExited(**names, exit=self.exit))

    def reconnected(self) -> None:
        """A coordinator is there (again): what happened since the hello, and what that can't say."""
        self.tell_again()
        if self._newest_line is not None:
            self._newest_line.forget()
        if self._run is not None and self.phase is Phase.RUNNING:
            for page in self._run.pages.values():
                self._container.say(page)

    # -- what it is ------------------------------------------------------------------------------

    def held(self) -> Held | None:
        """Its account for a coordinator; None while it is not even prepared."""
        phase = _HELD.get(self.phase)
        if phase is None:
            return None
        run = self._run
        return Held(
            task=self.task,
            attempt=self.attempt,
            generation=self._order.generation,
            phase=phase,
            host=self._container.host,
            ports=self._ready.ports.ports if self._ready is not None else (),
            pids=run.pids if run is not None else (),
            joined=run is not None and run.joined,
            exit=self.exit or self._ended,
            save_s=self._save_left(),
            restored=self._restored,
        )

    def beat(self) -> Heartbeat:
        """How it is doing."""
        if self._run is not None and self.phase is Phase.RUNNING:
            return self._run.beat()
        line = self._newest_line.news() if self._newest_line is not None else None
        if self._run is not None and self.phase is Phase.SAVING:
            # Saving a last checkpoint may take long and is no hang.
            size = self._run.log_size
            return Heartbeat(attempt=self.attempt, progress_s=0.0, log_size=size, last_line=line)
        return Heartbeat(attempt=self.attempt, log_size=self._log_size, last_line=line)

    def log_end(self) -> int | None:
        """How long its log is while it is written."""
        return self._run.log_size if self._run is not None else None

    async def over(self) -> None:
        """Wait for its end."""
        await asyncio.wait({self._life})

    # -- its life --------------------------------------------------------------------------------

    async def _live(self, before: Attempt | None) -> None:
        if before is not None:
            await before.over()
        try:
            exit = await self._through()
        except _Ended as ended:
            exit = ended.exit
        except Exception as error:
            # A defect of ours must not leave the coordinator waiting.
            log.exception("attempt %d of %s failed in the agent", self.attempt, self.task)
            text = f"the agent failed: {type(error).__name__}: {error}"
            exit = _not_ready(text, is_transient(error))
            if self._ended is not None:
                exit = msgspec.structs.replace(self._ended, unsaved=(text,))
        finally:
            self._give_back()
        await self._container.followers.caught_up(self.task, self.attempt, _LAST_CHUNK_S)
        self.exit = exit
        self.phase = Phase.EXITED
        if self._run is not None:
            # What remains of it is a number; the rest would wait long for the garbage collector.
            self._log_size = self._run.log_size
            self._run = None
        self._container.log_copies.begin(self.task, self.attempt)
        self._container.say(TaskExited(task=self.task, attempt=self.attempt, exit=exit))

    async def _through(self) -> Exit:
        self._ready = await self._until_stopped(self._prepare())
        self.phase = Phase.PREPARED
        self._say_prepared()
        await asyncio.wait({self._start, self._stop}, return_when=asyncio.FIRST_COMPLETED)
        if self._stop.done():
            raise _Ended(_dropped())
        order = self._start.result()
        self._run = Run(self._container, order, self._ready, self._newest_line)
        self.phase = Phase.RUNNING
        mirroring = Mirroring(self._container, order)
        async with self._checkpoints.watching(order), mirroring.going():
            self._ended = await self._run.run()
            self._say_last_reports()
            unsaved = await self._save(self._ended, mirroring)
        return msgspec.structs.replace(self._ended, unsaved=unsaved)

    async def _until_stopped(self, step: asyncio._CoroutineLike[Ready]) -> Ready:
        """The step's result, unless the attempt is stopped first."""
        doing = self._loop.create_task(step)
        await asyncio.wait({doing, self._stop}, return_when=asyncio.FIRST_COMPLETED)
        if self._stop.done():
            doing.cancel()
            await asyncio.wait({doing})
            raise _Ended(_dropped())
        return doing.result()

    async def _prepare(self) -> Ready:
        container = self._container
        with contextlib.suppress(FileNotFoundError):
            container.checkpoint_request.unlink()
        with _step("its working folder can't be made"):
            folders = [*self._checkpoints.folders, *self._outputs.folders]
            workfolder.make(container.work / workfolder.TASK, container.source, folders)
            self._checkpoints.folder.mkdir(parents=True, exist_ok=True)
            self._outputs.make()
        with _step("its checkpoint can't be restored"):
            restored = await self._checkpoints.restore()
        return Ready(
            ports=self._reserve(),
            checkpoint_dir=str(self._checkpoints.folder),
            output_dir=str(self._outputs.folder),
            task_socket=self._listen(),
            restored=restored,
        )

    def _reserve(self) -> ports.Reservation:
        order, launch = self._order, self._container.launch
        try:
            with _step("it has no ports"):
                self._reservation = ports.reserve(
                    order.ports, self._container.host, launch.ports, order.keep_ports
                )
        except ports.KeptPortTaken as problem:
            exit = Exit(
                port_taken=True,
                port=problem.port,
                transient=True,
                stopped=False,
                detail=str(problem),
            )
            raise _Ended(exit) from problem
        for port in self._reservation.ports:
            self._container.guard.free_port(port)
        return self._reservation

    def _listen(self) -> str:
        path = self._container.sockets / f"t{os.getpid()}-{self.attempt}"
        with _step(f"the socket for reports, {path}, can't be made"):
            self._reports = ReportSocket(path, self._reported)
        self._container.guard.remove_file(str(path))
        return str(path)

    def _reported(self, report: Report) -> None:
        if self._run is not None:
            self._run.reported(report)
        if report.checkpoint:
            self._checkpoints.saved()

    async def _save(self, ended: Exit, mirroring: Mirroring) -> tuple[str, ...]:
        """The last checkpoint, the outputs and the events, side by side and with one deadline.

        Returns what of them could not be saved.
        """
        assert self._run is not None
        limit_s = max(self._order.save_s if self._save_s is None else self._save_s, 0.0)
        works: list[Coroutine[Any, Any, None]] = []
        if limit_s > 0 and self._checkpoints.wanted:
            works.append(self._checkpoints.save(limit_s, clean=self._run.ended_cleanly))
        if limit_s > 0 and self._outputs.wanted:
            works.append(self._outputs.save(limit_s))
        if limit_s > 0 and mirroring.wanted:
            works.append(mirroring.save())
        self.phase = Phase.SAVING
        failed = ended.code != 0 and not ended.stopped
        if works:
            # A failure is said at once: the others need not run on until all is saved.
            saying = self._loop.call_later(0.0 if failed else _MOMENT_S, self._say_saving)
            try:
                async with asyncio.timeout_at(self._run.ended_at + limit_s) as self._saving:
                    await asyncio.gather(*works)
            except TimeoutError:
                limit_s = round(self._loop.time() - self._run.ended_at, 1)
            finally:
                saying.cancel()
                self._saving = None
        return self._checkpoints.unsaved(limit_s) + self._outputs.unsaved(limit_s)

    def _save_left(self) -> float:
        """Seconds that saving may still take."""
        by = self._saving.when() if self._saving is not None else None
        return max(by - self._loop.time(), 0.0) if by is not None else 0.0

    def _say_saving(self) -> None:
        if self._ended is not None and self._saving is not None:
            message = TaskSaving(
                task=self.task,
                attempt=self.attempt,
                exit=self._ended,
                limit_s=self._save_left(),
            )
            self._container.say(message)

    def _give_back(self) -> None:
        """Everything it held."""
        guard = self._container.guard
        if self._reports is not None:
            self._reports.close()
            guard.keep_file(str(self._reports.path))
        if self._reservation is not None:
            held = self._reservation.ports
            self._reservation.release()
            for port in held:
                guard.forget_port(port)

    def _say_last_reports(self) -> None:
        """What a program reports at its very end is what people look for."""
        assert self._reports is not None and self._run is not None
        self._reports.close()
        self._container.say(self._run.last_beat())

    def _say_prepared(self) -> None:
        assert self._ready is not None
        self._container.say(
            TaskPrepared(
                task=self.task,
                attempt=self.attempt,
                host=self._container.host,
                ports=self._ready.ports.ports,
                restored=self._restored,
            )
        )

    @property
    def _restored(self) -> str | None:
        if self._ready is None or self._ready.restored is None:
            return None
        return str(self._ready.restored)

    def _stacks(
        self, innermost: str = "", path: str = "", text: str = "", problem: str = ""
    ) -> StacksTaken:
        return StacksTaken(
            task=self.task,
            attempt=self.attempt,
            innermost=innermost,
            path=path,
            text=text,
            problem=problem,
        )


def _write_private(file: Path, text: str) -> None:
    file.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8", errors="replace") as out:
        out.write(text)


def _dropped() -> Exit:
    return Exit(
        signal=signal.SIGTERM, stopped=True, detail="stopped before its program was started"
    )


def _not_ready(why: str, transient: bool) -> Exit:
    return Exit(failed_to_start=why, transient=transient, stopped=False)


@contextlib.contextmanager
def _step(problem: str) -> Iterator[None]:
    """A step of the preparation; ``problem`` says what has failed if it does."""
    try:
        yield
    except ports.KeptPortTaken:
        raise
    except (OSError, HelperProblem, ports.PortsError) as error:
        raise _Ended(_not_ready(f"{problem}: {error}", is_transient(error))) from error
