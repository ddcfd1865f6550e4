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
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import msgspec

from howdah.agent import ports, workfolder
from howdah.agent.checkpoints import Checkpoints
from howdah.agent.children import HelperProblem
from howdah.agent.container import ContainerContext
from howdah.agent.copies import FolderMirror, OutputCopies
from howdah.agent.forwarder import NewestLine
from howdah.agent.monitoring.reports import Report, ReportSocket
from howdah.agent.monitoring.stacks import shortened, take
from howdah.agent.run import ProgramRun, Ready
from howdah.core.messages import (
    Exit,
    Held,
    HeldPhase,
    StacksTaken,
    Task,
    TaskExited,
    TaskJoined,
    TaskPrepared,
    TaskSaving,
    TaskStarted,
)
from howdah.storage.errors import is_transient
from howdah.wire.messages import Heartbeat, Prepare, Start

log: logging.Logger = logging.getLogger(__name__)

_PLOTS_S = 60.0
"""So long TensorBoard files of what failed or was stopped are tried: a restart waits for that, and plots
are not worth half an hour of it."""
_MOMENT_S = 1.0
"""Saving that takes longer is said."""
_LAST_CHUNK_S = 1.0
"""For log followers, to get the log's end before the attempt's."""


class _Ended(Exception):
    """The attempt is over before its programs ran."""

    def __init__(self, exit: Exit) -> None:
        super().__init__(exit)
        self.exit = exit


class Attempt:
    """One attempt. It begins at once, or when the one before it is over."""

    def __init__(
        self,
        container: ContainerContext,
        prepare: Prepare,
        over: Callable[[Attempt], None],
        before: Attempt | None = None,
    ) -> None:
        """``over`` is called at its end."""
        self._container = container
        self._prepare = prepare
        self._over = over
        self._loop = asyncio.get_running_loop()
        self.task: Task = prepare.task
        self.attempt: int = prepare.attempt
        self.phase: HeldPhase | None = None
        """None while it is prepared."""
        self.exit: Exit | None = None
        self._run: ProgramRun | None = None
        self._log_size = 0
        self._newest_line = NewestLine() if container.launch.last_lines else None
        self._ready: Ready | None = None
        self._reports: ReportSocket | None = None
        self._reservation: ports.Reservation | None = None
        self._checkpoints = Checkpoints(container, prepare, self._say_saving)
        self._outputs = OutputCopies(container, prepare, self._say_saving)
        self._start: asyncio.Future[Start] = self._loop.create_future()
        self._stop: asyncio.Future[None] = self._loop.create_future()
        self._save_s: float | None = None
        """How long may be saved, as the stops have it; None before there was one."""
        self._ended: Exit | None = None
        """How the programs ended, while saving goes on and after it."""
        self._saving: asyncio.Timeout | None = None
        self._life = self._loop.create_task(self._live(before))

    # -- commands; each may come twice -----------------------------------------------------------

    def start(self, start: Start) -> None:
        """Start the programs, unless that was said before."""
        if not self._start.done():
            self._start.set_result(start)
        else:
            self.tell_again()

    def stop(self, grace_s: float, save_s: float) -> None:
        """End it, whatever it does; `TaskExited` follows. Again: less grace or less time to save
        counts."""
        if self.exit is not None:
            self.tell_again()
            return
        if not self._stop.done():
            self._stop.set_result(None)
        self._save_s = save_s if self._save_s is None else min(self._save_s, save_s)
        if self._run is not None:
            self._run.stop(grace_s)
        if self._saving is not None:
            self._saving.reschedule(self._loop.time() + min(self._save_left(), save_s))
            self._say_saving()

    def request_checkpoint(self, reason: str) -> None:
        """Ask the program to save: it sees a file that was not there, or has changed, and gets a
        signal if the job file names one."""
        file = self._container.checkpoint_request
        with contextlib.suppress(OSError):
            temporary = file.with_suffix(".tmp")
            temporary.write_text(f"{reason}\n", "utf-8")
            temporary.replace(file)
        name = str((self._prepare.checkpoint or {}).get("signal"))
        if self._run is not None and name in signal.Signals.__members__:
            self._run.notify(signal.Signals[name])

    def environment(self) -> dict[str, str] | str:
        """Its program's environment, for a command beside it; or why there can be none."""
        if self._run is None or self.phase is not HeldPhase.RUNNING:
            return f"{self.task} has no program running now"
        return self._run.environment()

    async def take_stacks(self) -> StacksTaken:
        """Where its processes stand."""
        names = {"task": self.task, "attempt": self.attempt}
        if self._run is None or self.phase is not HeldPhase.RUNNING:
            phase = self.phase.value if self.phase is not None else "preparing"
            return StacksTaken(**names, problem=f"the attempt is {phase}, nothing of it runs")
        folders = [str(f) for f in (self._container.source, self._container.work) if f]
        taken = await take(self._container.helpers, self._run.processes(), folders)
        path = ""
        try:
            path = self._container.save_stacks(self.task, self.attempt, taken.text)
        except OSError as error:
            log.warning("stacks can't be saved: %s", error)
        return StacksTaken(
            **names,
            innermost=taken.innermost,
            path=path,
            text=shortened(taken.text, path),
            problem=taken.problem,
        )

    def tell_again(self) -> None:
        """What was said last may be lost: say where it is."""
        names = {"task": self.task, "attempt": self.attempt}
        say, run = self._container.say, self._run
        if self.exit is not None:
            say(TaskExited(**names, exit=self.exit))
        elif self.phase is HeldPhase.SAVING:
            self._say_saving()
        elif self.phase is HeldPhase.PREPARED:
            self._say_prepared()
        elif run is not None and run.pids:
            say(TaskStarted(**names, pids=run.pids))
            if run.joined:
                say(TaskJoined(**names))

    def reconnected(self) -> None:
        """A coordinator is there (again): what happened since the hello, and what that can't say."""
        self.tell_again()
        if self._newest_line is not None:
            self._newest_line.forget()
        if self._run is not None and self.phase is HeldPhase.RUNNING:
            for page in self._run.pages.published:
                self._container.say(page)

    # -- what it is ------------------------------------------------------------------------------

    def held(self) -> Held | None:
        """Its account for a coordinator; None while it is not even prepared."""
        if self.phase is None:
            return None
        run = self._run
        return Held(
            task=self.task,
            attempt=self.attempt,
            generation=self._prepare.generation,
            phase=self.phase,
            host=self._container.host,
            ports=self._ready.ports.ports if self._ready is not None else (),
            pids=run.pids if run is not None else (),
            joined=run is not None and run.joined,
            exit=self.exit or self._ended,
            save_s=self._save_left(),
            restored=self._restored,
        )

    def heartbeat(self) -> Heartbeat:
        run = self._run
        if run is not None and self.phase is HeldPhase.RUNNING:
            return run.heartbeat()
        return Heartbeat(
            attempt=self.attempt,
            # Saving a last checkpoint may take long and is no hang.
            progress_s=0.0 if self.phase is HeldPhase.SAVING else None,
            log_size=run.log_size if run is not None else self._log_size,
            last_line=self._newest_line.take() if self._newest_line is not None else None,
        )

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
        self.phase = HeldPhase.EXITED
        if self._run is not None:
            # What remains of it is a number; the rest would wait long for the garbage collector.
            self._log_size = self._run.log_size
            self._run = None
        self._over(self)
        self.tell_again()

    async def _through(self) -> Exit:
        self._ready = await self._until_stopped(self._make_ready())
        self.phase = HeldPhase.PREPARED
        self._say_prepared()
        await asyncio.wait({self._start, self._stop}, return_when=asyncio.FIRST_COMPLETED)
        if self._stop.done():
            raise _Ended(_dropped())
        start = self._start.result()
        self._run = ProgramRun(
            self._container, start, self._ready, self._newest_line, self._checkpoints.killed
        )
        self.phase = HeldPhase.RUNNING
        mirror = FolderMirror(self._container, start)
        async with self._checkpoints.watching(start), mirror.running():
            ended = await self._run.run()
            self._say_last_reports()
            self._ended = msgspec.structs.replace(ended, step=self._run.step)
            await asyncio.to_thread(self._look_what_was_made)
            unsaved = await self._save(self._run, self._ended, mirror)
        return msgspec.structs.replace(
            self._ended,
            unsaved=unsaved,
            outputs=self._outputs.copied,
            made=self._outputs.made,
        )

    async def _until_stopped(self, step: Coroutine[Any, Any, Ready]) -> Ready:
        """The step's result, unless the attempt is stopped first."""
        doing = self._loop.create_task(step)
        await asyncio.wait({doing, self._stop}, return_when=asyncio.FIRST_COMPLETED)
        if self._stop.done():
            doing.cancel()
            await asyncio.wait({doing})
            raise _Ended(_dropped())
        return doing.result()

    async def _make_ready(self) -> Ready:
        container = self._container
        with contextlib.suppress(FileNotFoundError):
            container.checkpoint_request.unlink()
        with _step("its working folder can't be made"):
            if not container.launch.in_place:
                await asyncio.to_thread(
                    workfolder.fill,
                    container.task,
                    container.source,
                    [*self._checkpoints.folders, *self._outputs.folders],
                    container.launch.files,
                    container.given,
                )
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
        prepare, container = self._prepare, self._container
        allowed = container.launch.ports
        try:
            with _step("it has no ports"):
                self._reservation = ports.reserve(
                    prepare.ports, container.host, allowed, prepare.keep_ports
                )
        except ports.KeptPortTaken as problem:
            raise _Ended(
                Exit(
                    port_taken=True,
                    port=problem.port,
                    transient=True,
                    stopped=False,
                    detail=str(problem),
                )
            ) from problem
        for port in self._reservation.ports:
            container.watchdog.add("port", port)
        return self._reservation

    def _listen(self) -> str:
        path = self._container.sockets / f"t{os.getpid()}-{self.attempt}"
        with _step(f"the socket for reports, {path}, can't be made"):
            self._reports = ReportSocket(path, self._reported)
        self._container.watchdog.add("file", str(path))
        return str(path)

    def _reported(self, report: Report) -> None:
        if self._run is not None:
            self._run.reported(report)
        if report.checkpoint:
            self._checkpoints.saved()

    async def _save(self, run: ProgramRun, ended: Exit, mirror: FolderMirror) -> tuple[str, ...]:
        """The last checkpoint, the outputs and the events, side by side and with one deadline.

        Returns what of them could not be saved.
        """
        limit_s = max(self._prepare.save_s if self._save_s is None else self._save_s, 0.0)
        works: list[Coroutine[Any, Any, None]] = []
        if limit_s > 0:
            if self._checkpoints.wanted:
                ended_at = time.time() - (self._loop.time() - run.ended_at)
                works.append(self._checkpoints.save(limit_s, kills=run.kills, ended_at=ended_at))
            if self._outputs.wanted:
                works.append(self._outputs.save(limit_s))
            if mirror.wanted:
                most_s = limit_s if ended.code == 0 else _PLOTS_S
                works.append(mirror.save(min(limit_s, most_s)))
        self.phase = HeldPhase.SAVING
        if works:
            # A failure is said at once: the others need not run on until all is saved.
            failed = ended.code != 0 and not ended.stopped
            saying = self._loop.call_later(0.0 if failed else _MOMENT_S, self._say_saving)
            try:
                async with asyncio.timeout_at(run.ended_at + limit_s) as self._saving:
                    await asyncio.gather(*works)
            except TimeoutError:
                limit_s = round(self._loop.time() - run.ended_at, 1)
            finally:
                saying.cancel()
                self._saving = None
        return (
            self._checkpoints.unsaved(limit_s)
            + self._outputs.unsaved(limit_s)
            + mirror.unsaved(limit_s)
        )

    def _look_what_was_made(self) -> None:
        self._outputs.look(self._checkpoints.folders, self._checkpoints.of_working_folder())

    def _save_left(self) -> float:
        """Seconds that saving may still take."""
        by = self._saving.when() if self._saving is not None else None
        return max(by - self._loop.time(), 0.0) if by is not None else 0.0

    def _give_back(self) -> None:
        watchdog = self._container.watchdog
        if self._reports is not None:
            self._reports.close()
            watchdog.drop("file", str(self._reports.path))
        if self._reservation is not None:
            held = self._reservation.ports
            self._reservation.release()
            for port in held:
                watchdog.drop("port", port)

    # -- what it says ----------------------------------------------------------------------------

    def _say_last_reports(self) -> None:
        """What a program reports at its very end is what people look for."""
        assert self._reports is not None and self._run is not None
        self._reports.close()
        self._container.say(self._run.last_heartbeat())

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

    def _say_saving(self) -> None:
        if self._ended is not None and self._saving is not None:
            names = {"task": self.task, "attempt": self.attempt}
            saving = TaskSaving(
                **names,
                exit=self._ended,
                limit_s=self._save_left(),
                trouble=self._checkpoints.trouble or self._outputs.trouble,
            )
            self._container.say(saving)

    @property
    def _restored(self) -> str | None:
        if self._ready is None or self._ready.restored is None:
            return None
        return str(self._ready.restored)


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
