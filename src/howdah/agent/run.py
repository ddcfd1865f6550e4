"""One run of an attempt's programs: from the start to the end of its last process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

import msgspec

from howdah.agent import outcome, programs
from howdah.agent.checkpoints import RestoredCheckpoint
from howdah.agent.children import HelperProblem, Helpers, module
from howdah.agent.container import ContainerContext
from howdah.agent.forwarder import LogForwarder, NewestLine
from howdah.agent.host.processes import Stat, handles, send_signal, usage
from howdah.agent.host.tcp_table import packed
from howdah.agent.monitoring.metrics import (
    NO_LIBRARY,
    GpuUse,
    OomWatch,
    ProgressMonitor,
    Sampler,
    over_limit,
    parse_gpus,
)
from howdah.agent.monitoring.pages import Pages
from howdah.agent.monitoring.probes import Address, foreign_owners, joined, user
from howdah.agent.monitoring.reports import Report, ReportedValues, Web
from howdah.agent.monitoring.stacks import group
from howdah.agent.ports import Reservation, is_free
from howdah.agent.programs import Ending, ProcessTree, Programs, StartProblem
from howdah.core.messages import Exit, TaskJoined, TaskStarted
from howdah.core.plan import Join
from howdah.storage.logs import LogWriter, lines
from howdah.wire.messages import Heartbeat, ProcessSpec, Sample, Start

log: logging.Logger = logging.getLogger(__name__)

_SIBLING_GRACE_S = 0.5
"""For a task's other programs when one has failed: there is nothing left to save."""
_LEFTOVER_GRACE_S = 2.0
"""For what a program that has succeeded left running."""
_TIME_OUT_GRACE_S = 2.0
_DRAIN_S = 2.0
"""For a pipe that a process outside the attempt holds open."""
_FIRST_LOOK_S = 0.05
_LONGEST_LOOK_S = 0.5
_STRANGER_LOOK_S = 5.0
"""Between two looks for ports that others hold, once a program has had half a minute to bind its ports."""
_MEMORY_LOOK_S = (1.0, 0.2)
"""Between two looks at memory: far from the limit, and above half of it."""
_NOTIFY_S, _NOTIFY_LOOK_S = 60.0, 0.5
_GPU_LOOK_S = 2.0
_GPU_PAUSES_S = (2.0, 300.0)
"""First and longest pause before use of GPUs is measured again by another helper."""
_Key: TypeAlias = tuple[int, int]
"""A process' pid and start: no other has both."""
_LONGEST_ANSWER = 100_000
"""Characters: Linux takes no longer variable than 128 KiB."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What was prepared for the start."""

    ports: Reservation
    checkpoint_dir: str
    output_dir: str
    task_socket: str
    restored: RestoredCheckpoint | None = None


class ProgramRun:
    """One attempt's programs, while they run."""

    def __init__(
        self,
        container: ContainerContext,
        start: Start,
        ready: Ready,
        newest_line: NewestLine | None = None,
        killed: Callable[[Sequence[float]], object] = lambda kills: None,
    ) -> None:
        """``killed``: see `howdah.agent.programs.Programs`."""
        self._container = container
        self._start = start
        self._ready = ready
        self._loop = asyncio.get_running_loop()
        launch = container.launch
        self._path = container.log_path(start.task, start.attempt)
        self._log = LogWriter(
            self._path,
            launch.log_max_bytes,
            launch.log_segments,
            lambda: time.time() + container.ahead_s,
        )
        self._newest_line = newest_line
        self._forwarder = LogForwarder(self._log, self._log_has_grown, newest_line)
        self._programs = Programs(container.children, self._forwarder, container.task, killed)
        children, marker, own = container.children, container.marker, container.own_pids
        self._tree = ProcessTree(children, marker, lambda: {*own(), *container.execs.pids})
        # Commands beside the programs end with them.
        everything = ProcessTree(children, marker, own)
        self._ending = Ending(everything, children, self._programs.still_running)
        self._progress = ProgressMonitor(self._loop.time, ready.checkpoint_dir)
        self._reported = ReportedValues()
        self._sampler = Sampler(self._tree.look)
        self._gpu: GpuUse = (None, None)
        self._notifying: asyncio.Task[None] | None = None
        self._watches: set[asyncio.Task[None]] = set()
        self._over_memory = ""
        self._timed_out = False
        self._taken_ports: dict[int, str] = {}
        """Other users who were seen listening on ports of ours, in words."""
        self._told = False
        """The coordinator wanted its end, before we had a reason of our own."""
        self.ended_at: float = 0.0
        """When the last process had ended, by the loop's clock."""
        self.joined: bool = False
        self.pages: Pages = Pages(container, start, self._tree.look, self._watch)

    @property
    def pids(self) -> tuple[int, ...]:
        """The programs', by local rank."""
        return self._programs.pids

    @property
    def log_size(self) -> int:
        return self._log.offset

    @property
    def step(self) -> float | None:
        """The last one that was reported."""
        return self._reported.step

    @property
    def kills(self) -> list[float]:
        """When programs were killed, seconds since the epoch; empty if each ended by itself."""
        return self._programs.kills

    def processes(self) -> list[list[int]]:
        return group(self._tree.look(), self.pids)

    def environment(self) -> dict[str, str] | str:
        """The first program's environment, for a command beside it; or why there can be none."""
        task = self._start.task
        if not self.pids:
            return f"the program of {task} has not started yet; try again"
        if self._ending.begun:
            return f"the program of {task} ends: no command can be started beside it any more"
        return self._environment(self._start.processes[0])

    def heartbeat(self) -> Heartbeat:
        sample = self._sampler.read(self._gpu, self._reported.take)
        return self._heartbeat(sample, round(self._progress.idle_s(), 2))

    def last_heartbeat(self) -> Heartbeat:
        """What was reported since the one before; there are no processes any more."""
        values = self._reported.take()
        return self._heartbeat(Sample(time=time.time(), values=values) if values else None, None)

    def _heartbeat(self, sample: Sample | None, progress_s: float | None) -> Heartbeat:
        if sample is not None and self._reported.step is not None:
            sample = msgspec.structs.replace(sample, step=self._reported.step)
        return Heartbeat(
            attempt=self._start.attempt,
            sample=sample,
            points=self._reported.take_points(),
            progress_s=progress_s,
            log_size=self._log.offset,
            step=self._reported.step,
            total=self._reported.total,
            last_line=self._newest_line.take() if self._newest_line is not None else None,
        )

    def stop(self, grace_s: float) -> None:
        """End it: SIGTERM, and SIGKILL after the grace. Again: the earlier SIGKILL counts."""
        self._told = self._told or not self._ending.begun
        self._end(grace_s)

    def _end(self, grace_s: float) -> None:
        self._container.children.reap()
        self._programs.asked_to_end()
        self._container.execs.kill(f"{self._start.task} has ended, and the command with it")
        self._ending.begin(grace_s)
        self._programs.changed.set()

    def notify(self, number: signal.Signals) -> None:
        """Send a signal to the processes that handle it; the others would die of it. One that has just
        begun has a minute until it does."""
        if self._notifying is not None:
            self._notifying.cancel()
        self._notifying = self._watch(self._notify(number))

    async def _notify(self, number: signal.Signals) -> None:
        """Each process gets it once. A launcher may handle it while its ranks still load.

        What a process forks that has had it handles it from its birth, and does not get it: it may be
        what saves.
        """
        had, forked, loading = set[_Key](), set[_Key](), set[_Key]()
        first, until = True, self._loop.time() + _NOTIFY_S
        while self._loop.time() < until and not self._ending.begun:
            found = self._tree.look()
            for process in sorted(found.values(), key=lambda each: (each.start, each.pid)):
                key, parent = _key(process), found.get(process.parent)
                if not handles(process.pid, number):
                    forked.discard(key)  # it runs another program now
                    loading.add(key)
                elif key in had:
                    pass
                elif first or key in loading or parent is None or _key(parent) not in had | forked:
                    had.add(key)
                    send_signal(process, number)
                else:
                    forked.add(key)
            first = False
            await asyncio.sleep(_NOTIFY_LOOK_S)

    def reported(self, report: Report) -> None:
        self._progress.shown()
        self._reported.add(report)
        if report.joined or report.step is not None:
            self._has_joined()
        if report.web is not None:
            self.pages.keep(report.web)

    # -- from start to end -----------------------------------------------------------------------

    async def run(self) -> Exit:
        """Start the programs, wait for their end and for everything they started."""
        oom = OomWatch()
        try:
            problem = self._begin()
            if problem is not None:
                self._end(0.0)
            await self._until_over()
        finally:
            # Also after a defect of our own nothing may be left running.
            if not self._ending.begun:
                self._end(0.0)
                await self._ending.finished()
            self.ended_at = self._loop.time()
            await self._close()
        if problem is not None:
            return Exit(
                failed_to_start=str(problem),
                transient=problem.transient,
                process=problem.process,
                stopped=False,
            )
        if self._ending.stubborn:
            self._container.note(
                self._start,
                f"processes {', '.join(map(str, self._ending.stubborn))} could not be killed: "
                "they wait inside the kernel, most likely for a file system or a device",
            )
        ends = self._programs.ends()
        if not ends:
            return Exit(detail="its processes could not be killed", stopped=self._told)
        found = outcome.exit_of(
            ends,
            ports=self._ready.ports.ports,
            is_held=self._is_held,
            over_memory=self._over_memory,
            kernel_kills=oom.kills(),
            limit_mb=oom.limit_mb(),
            timed_out=self._timed_out,
            run_s=self._start.run_s,
            told=self._told,
            folder=str(self._container.task),
            python=self._start.processes[0].env.get("HOWDAH_PYTHON", ""),
            owner_of=self._foreign_owner_of,
            hijacked=next(iter(self._taken_ports), None),
        )
        if self._hold_was_in_the_way(found):
            detail = "; ".join(filter(None, (found.detail, _OUR_HOLD)))
            found = msgspec.structs.replace(found, detail=detail)
        found = msgspec.structs.replace(found, tail=tuple(map(self._own_path, found.tail)))
        asked = self._start.answer_mark and found.code == 0
        answer = await self._answer() if asked else found.answer
        return msgspec.structs.replace(found, answer=answer)

    def _hold_was_in_the_way(self, found: Exit) -> bool:
        """Whether the program could not bind the port that we went on holding for it."""
        ports = self._ready.ports.ports
        ours = found.port_taken and not found.port_owner and _shares_port(self._start)
        return ours and bool(ports) and found.port == ports[0]

    def _own_path(self, line: str) -> str:
        """The line with the user's path of a file in place of the working folder's: that one goes."""
        folder, source = f"{self._container.task}/", self._container.source
        if folder not in line or source is None:
            return line
        origin = self._container.launch.origin

        def own(found: re.Match[str]) -> str:
            if not (source / found[1]).exists():
                return found[0]
            return found[1] if origin is None else f"{origin}/{found[1]}"

        return re.sub(f'{re.escape(folder)}([^"\\s:,]+)', own, line)

    def _is_held(self, port: int) -> bool:
        """Whether another program has that port of ours; all of ours have ended."""
        self._ready.ports.let_go()
        return not is_free(port, self._container.host, again=True)

    def _foreign_owner_of(self, port: int) -> str:
        """Which other user listens on that port of ours, in words."""
        if port in self._taken_ports:
            return self._taken_ports[port]
        uid = foreign_owners(self._tree.look, (port,)).get(port)
        return "" if uid is None else user(uid)

    async def _answer(self) -> str | None:
        """What stands behind the mark in the first line of the log that has it."""
        mark = self._start.answer_mark.encode()
        for number, (_, line) in enumerate(lines(self._path)):
            _, found, answer = line.partition(mark)
            if found and len(answer) <= _LONGEST_ANSWER:
                return answer.decode(errors="replace").strip()
            if number % 1000 == 999:
                await asyncio.sleep(0)
        return None

    def _begin(self) -> StartProblem | None:
        start = self._start
        if not start.processes:
            return StartProblem(0, "its start names no program")
        self._ready.ports.let_go(but=1 if _shares_port(start) else 0)
        try:
            self._programs.start(start.processes, self._environment)
        except StartProblem as problem:
            return problem
        finally:
            for pid in self.pids:
                self._container.watchdog.add("session", pid)
        self._container.say(TaskStarted(task=start.task, attempt=start.attempt, pids=self.pids))
        if start.probe == Join.NOW.value:
            self._has_joined()
        elif start.probe == Join.NETWORK.value:
            self._watch(self._look_for_peers())
        self._watch(self._look_for_taken_ports())
        if start.web is not None:
            self.pages.keep(msgspec.convert(start.web, Web))
        if start.memory_mb is not None:
            self._watch(self._limit_memory(start.memory_mb))
        if start.run_s is not None:
            self._watch(self._limit_time(start.run_s))
        if self._container.launch.gpus:
            self._watch(self._measure_gpus(self._container.launch.gpus))
        return None

    async def _until_over(self) -> None:
        """Until all programs have ended, or something made us end them; then nothing is left."""
        programs = self._programs
        with self._container.children.noticing(programs.note_ends):
            programs.note_ends()
            while programs.running and not programs.failed and not self._ending.begun:
                programs.changed.clear()
                await programs.changed.wait()
                self._container.watchdog.drop_empty_sessions(programs.ended_pids)
            if not self._ending.begun:
                if programs.running:
                    self._end(_SIBLING_GRACE_S)
                else:
                    self._end(0.0 if programs.failed or not self.pids else _LEFTOVER_GRACE_S)
            await self._ending.finished()
            programs.note_ends()

    async def _close(self) -> None:
        self.pages.close()
        for watch in self._watches:
            watch.cancel()
        if self._watches:
            await asyncio.wait(self._watches)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                await self._forwarder.drained()
        self._forwarder.close()
        if self._log.lost:
            text = f"{self._log.lost} bytes of its log are lost: {self._log.problem}"
            self._container.note(self._start, text)
        self._log.close()
        for pid in self.pids:
            self._container.watchdog.drop("session", pid)

    def _environment(self, spec: ProcessSpec) -> dict[str, str]:
        container, ready = self._container, self._ready
        additions = programs.Additions(
            marker=container.marker,
            checkpoint_dir=ready.checkpoint_dir,
            output_dir=ready.output_dir,
            log_dir=str(self._path.parent),
            task_socket=ready.task_socket,
            checkpoint_request=str(container.checkpoint_request),
            certificates=(
                container.launch.ca,
                container.launch.certificate,
                container.launch.key,
            ),
            page_token_file=self.pages.token_file,
            shared_dir=container.launch.shared_dir,
            restored=ready.restored.version if ready.restored is not None else None,
            python_path=container.launch.python_path,
            gpus=container.launch.gpus,
        )
        return programs.complete_environment(os.environ, spec.env, additions)

    # -- watches ---------------------------------------------------------------------------------

    def _watch(self, watch: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(watch)
        self._watches.add(task)
        task.add_done_callback(_log_failure)
        return task

    async def _look_for_peers(self) -> None:
        peers = await self._numeric(self._start.peers)
        pause = _FIRST_LOOK_S
        while not self.joined:
            start = time.thread_time()
            if joined(self._tree.look, self._ready.ports.ports, peers):
                self._has_joined()
                return
            # On a host with a huge table of sockets a look is dear: then less often.
            cost = time.thread_time() - start
            await asyncio.sleep(max(pause, cost * 100))
            pause = min(pause * 1.2, _LONGEST_LOOK_S)

    async def _look_for_taken_ports(self) -> None:
        """End the attempt once another user listens on a port of ours: what peers send there, and are
        answered, is that user's."""
        pause = _FIRST_LOOK_S
        while True:
            start = time.thread_time()
            found = foreign_owners(self._tree.look, self._ready.ports.ports)
            if found and not self._ending.begun:
                self._taken_ports = {port: user(uid) for port, uid in found.items()}
                self._end(0.0)
                return
            cost = time.thread_time() - start
            await asyncio.sleep(max(pause, cost * 1000))
            pause = min(pause * 2, _STRANGER_LOOK_S)

    async def _numeric(self, peers: tuple[Address, ...]) -> set[Address]:
        found: set[Address] = set()
        for host, port in peers:
            if packed(host):
                found.add((host, port))
                continue
            with contextlib.suppress(OSError):
                for *_, address in await self._loop.getaddrinfo(host, port):
                    found.add((str(address[0]), port))
        return found

    async def _limit_memory(self, limit_mb: int) -> None:
        execs = self._container.execs
        while True:
            found, commands = self._tree.look(), execs.processes()
            if self._container.launch.counts_itself:
                found |= self._container.own_processes()
            used = usage((found | commands).values()).rss_bytes
            if over := over_limit(used, limit_mb, found | commands):
                if execs.any:
                    # The program answers for itself alone.
                    commands = execs.processes(thorough=True)
                    found = {pid: found[pid] for pid in found.keys() - commands.keys()}
                    used = usage(found.values()).rss_bytes
                self._over_memory = over_limit(used, limit_mb, found)
                if self._over_memory:
                    self._end(0.0)
                    return
                execs.kill(f"ended for its memory: with it {self._start.task} {over}")
            await asyncio.sleep(_MEMORY_LOOK_S[used > limit_mb * 1024 * 1024 / 2])

    async def _limit_time(self, run_s: float) -> None:
        await asyncio.sleep(run_s)
        if self._ending.begun:
            return
        self._timed_out = True
        self._end(_TIME_OUT_GRACE_S)

    async def _measure_gpus(self, devices: Sequence[str]) -> None:
        def take(use: GpuUse) -> None:
            self._gpu = use

        await keep_measuring_gpus(self._container.helpers, devices, take)

    # -- what it says ----------------------------------------------------------------------------

    def _has_joined(self) -> None:
        if not self.joined:
            self.joined = True
            self._progress.shown()
            self._container.say(TaskJoined(task=self._start.task, attempt=self._start.attempt))

    def _log_has_grown(self) -> None:
        self._progress.shown()
        self._container.followers.grown(self._start.task, self._start.attempt)


async def keep_measuring_gpus(
    helpers: Helpers, devices: Sequence[str], take: Callable[[GpuUse], None]
) -> None:
    """Have a helper measure, and another with growing pauses when it has ended: it may have been killed,
    or the driver have been reset. Returns where the library is missing."""
    (pause_s, longest_s), logged = _GPU_PAUSES_S, ""
    while True:
        try:
            async with helpers.running(
                module("howdah.agent.monitoring.metrics", str(_GPU_LOOK_S), *devices)
            ) as helper:
                while (line := await helper.line()) is not None:
                    take(parse_gpus(line))
                    pause_s, logged = _GPU_PAUSES_S[0], ""
                status = await helper.wait()
                problem = helper.problem or f"its helper ended with status {status}"
        except HelperProblem as error:
            status, problem = 0, str(error)
        take((None, None))
        if problem != logged:
            log.warning("GPU use is not measured: %s", problem)
            logged = problem
        if status == NO_LIBRARY:
            return
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, longest_s)


_OUR_HOLD = (
    "Howdah holds it until the program has it too, by SO_REUSEPORT, as TF_GRPC_REUSE_PORT says; for a program that "
    'binds it otherwise set TF_GRPC_REUSE_PORT = "0" under [env]'
)


def _shares_port(start: Start) -> bool:
    """Whether the program binds its first port with SO_REUSEPORT, so that we may go on holding it."""
    return all(
        spec.env.get("TF_GRPC_REUSE_PORT", "").lower() in ("1", "true") for spec in start.processes
    )


def _key(process: Stat) -> _Key:
    return process.pid, process.start


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a watch of the attempt failed", exc_info=error)
