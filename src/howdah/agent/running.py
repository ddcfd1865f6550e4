"""The running part of an attempt: from its start order to the end of its last process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from howdah.agent import environment, gpu, outcome
from howdah.agent.checkpoints import Restored
from howdah.agent.container import Container
from howdah.agent.ending import Ending, Tree
from howdah.agent.helpers import HelperProblem, module
from howdah.agent.memory import OomWatch, over_limit
from howdah.agent.metrics import Sampler
from howdah.agent.ports import Reservation, is_free
from howdah.agent.probes import Address, joined, listens, packed
from howdah.agent.processes import handles, send_signal, usage
from howdah.agent.programs import Programs, StartProblem
from howdah.agent.progress import Progress
from howdah.agent.pump import Pump
from howdah.agent.reports import Report, Reported, Web
from howdah.agent.stacks import group
from howdah.agent.tail import NewestLine
from howdah.agent.workfolder import TASK
from howdah.core.messages import Exit, TaskJoined, TaskStarted
from howdah.core.plan import Join
from howdah.storage.logs import LogWriter, lines
from howdah.wire.messages import AgentNote, Heartbeat, ProcessSpec, Sample, Start, WebAddress

log = logging.getLogger(__name__)

_SIBLING_GRACE_S = 0.5
"""For a task's other programs when one has failed: there is nothing left to save."""
_LEFTOVER_GRACE_S = 2.0
"""For what a program that has succeeded left running."""
_TIME_OUT_GRACE_S = 2.0
_DRAIN_S = 2.0
"""For a pipe that somebody outside the attempt holds open."""
_FIRST_LOOK_S = 0.05
_LONGEST_LOOK_S = 0.5
_MEMORY_LOOK_S = (1.0, 0.2)
"""Between two looks at memory: far from the limit, and above half of it."""
_GPU_LOOK_S = 2.0
_LONGEST_ANSWER = 100_000
"""Characters: Linux takes no longer variable than 128 KiB."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """What was prepared for the start."""

    ports: Reservation
    checkpoint_dir: str
    output_dir: str
    task_socket: str
    restored: Restored | None = None


class Run:
    """One attempt's programs, while they run."""

    def __init__(
        self,
        container: Container,
        order: Start,
        ready: Ready,
        newest_line: NewestLine | None = None,
    ) -> None:
        self._container = container
        self._order = order
        self._ready = ready
        self._loop = asyncio.get_running_loop()
        launch = container.launch
        self._path = container.log_path(order.task, order.attempt)
        self._log = LogWriter(self._path, launch.log_max_bytes, launch.log_segments)
        self._newest_line = newest_line
        self._pump = Pump(self._log, self._log_has_grown, newest_line)
        self._programs = Programs(container.children, self._pump, container.work / TASK)
        self._tree = Tree(container.children, container.marker, container.aside)
        self._ending = Ending(self._tree, container.children, self._programs.still_running)
        self._progress = Progress(self._loop.time, ready.checkpoint_dir)
        self._reported = Reported()
        self._sampler = Sampler(self._tree.look)
        self._gpu: tuple[float, float] | None = None
        self._watches: set[asyncio.Task[None]] = set()
        self._over_memory = ""
        self._timed_out = False
        self._told = False
        """The coordinator wanted its end, before we had a reason of our own."""
        self.ended_at = 0.0
        """When the last process had ended, by the loop's clock."""
        self.joined = False
        self.pages: dict[str, WebAddress] = {}
        """Web pages the task serves, by name."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The programs', by local rank."""
        return self._programs.pids

    @property
    def log_size(self) -> int:
        return self._log.offset

    @property
    def ended_cleanly(self) -> bool:
        """Every program ended by itself: what it was writing is written."""
        return all(0 <= program.status < 128 for program in self._programs.ends())

    def processes(self) -> list[list[int]]:
        """All living processes by program."""
        return group(self._tree.look(), self.pids)

    def beat(self) -> Heartbeat:
        """How it is doing."""
        sample = self._sampler.read(self._gpu, self._reported.take)
        return Heartbeat(
            attempt=self._order.attempt,
            sample=sample,
            progress_s=round(self._progress.idle_s(), 2),
            log_size=self._log.offset,
            step=self._reported.step,
            last_line=self._news(),
        )

    def last_beat(self) -> Heartbeat:
        """What was reported since the last beat; there are no processes any more."""
        values = self._reported.take()
        return Heartbeat(
            attempt=self._order.attempt,
            sample=Sample(time=time.time(), values=values) if values else None,
            log_size=self._log.offset,
            step=self._reported.step,
            last_line=self._news(),
        )

    def _news(self) -> str | None:
        """The log's newest line, where it is told and was not yet."""
        return self._newest_line.news() if self._newest_line is not None else None

    def stop(self, grace_s: float) -> None:
        """End it: SIGTERM, and SIGKILL after the grace. Again: the earlier SIGKILL counts."""
        self._told = self._told or not self._ending.begun
        self._end(grace_s)

    def _end(self, grace_s: float) -> None:
        self._container.children.reap()
        self._programs.asked_to_end()
        self._ending.begin(grace_s)
        self._programs.changed.set()

    def notify(self, number: signal.Signals) -> None:
        """Send a signal that ends nobody: to the processes that handle it."""
        if self._ending.begun:
            return
        for process in self._tree.look().values():
            if handles(process.pid, number):
                send_signal(process, number)

    def reported(self, report: Report) -> None:
        """The program told something."""
        self._progress.shown()
        self._reported.add(report)
        if report.step is not None:
            self._has_joined()
        if report.web is not None:
            self._announce(report.web)

    # -- its course ------------------------------------------------------------------------------

    async def run(self) -> Exit:
        """Start the programs, wait for their end and for everything they started."""
        oom = OomWatch()
        try:
            problem = self._start()
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
            self._note(
                f"processes {', '.join(map(str, self._ending.stubborn))} could not be killed: "
                "they wait inside the kernel, most likely for a file system or a device"
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
            timed_out=self._timed_out,
            run_s=self._order.run_s,
            told=self._told,
        )
        if self._order.answer_mark and found.code == 0:
            found = msgspec.structs.replace(found, answer=await self._answer())
        return found

    def _is_held(self, port: int) -> bool:
        """Whether another program has that port of ours; all of ours have ended."""
        self._ready.ports.let_go()
        return not is_free(port, self._container.host, again=True)

    async def _answer(self) -> str | None:
        """What stands behind the mark in the first line of the log that has it."""
        mark = self._order.answer_mark.encode()
        for number, (_, line) in enumerate(lines(self._path)):
            _, found, answer = line.partition(mark)
            if found and len(answer) <= _LONGEST_ANSWER:
                return answer.decode(errors="replace").strip()
            if number % 1000 == 999:
                await asyncio.sleep(0)
        return None

    def _start(self) -> StartProblem | None:
        order = self._order
        if not order.processes:
            return StartProblem(0, "the order names no program")
        if not _shares_ports(order):
            self._ready.ports.let_go()
        try:
            self._programs.start(order.processes, self._environment)
        except StartProblem as problem:
            return problem
        finally:
            for pid in self.pids:
                self._container.guard.end_session(pid)
        self._say(TaskStarted(task=order.task, attempt=order.attempt, pids=self.pids))
        if order.probe == Join.NOW.value:
            self._has_joined()
        else:
            self._watch(self._look_for_peers())
        if order.web is not None:
            self._watch(self._announce_when_served(order.web))
        if order.memory_mb is not None:
            self._watch(self._limit_memory(order.memory_mb))
        if order.run_s is not None:
            self._watch(self._limit_time(order.run_s))
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
            if not self._ending.begun:
                if programs.running:
                    self._end(_SIBLING_GRACE_S)
                else:
                    self._end(0.0 if programs.failed or not self.pids else _LEFTOVER_GRACE_S)
            await self._ending.finished()
            programs.note_ends()

    async def _close(self) -> None:
        for watch in self._watches:
            watch.cancel()
        if self._watches:
            await asyncio.wait(self._watches)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                await self._pump.drained()
        self._pump.close()
        if self._log.lost:
            self._note(f"{self._log.lost} bytes of its log are lost: {self._log.problem}")
        self._log.close()
        for pid in self.pids:
            self._container.guard.forget_session(pid)

    def _environment(self, spec: ProcessSpec) -> dict[str, str]:
        container, ready = self._container, self._ready
        additions = environment.Additions(
            marker=container.marker,
            checkpoint_dir=ready.checkpoint_dir,
            output_dir=ready.output_dir,
            log_dir=str(self._path.parent),
            task_socket=ready.task_socket,
            checkpoint_request=str(container.checkpoint_request),
            shared_dir=container.launch.shared_dir,
            restored=ready.restored.version if ready.restored is not None else None,
            python_path=container.launch.python_path,
            gpus=container.launch.gpus,
        )
        return environment.complete(os.environ, spec.env, additions)

    # -- watches ---------------------------------------------------------------------------------

    def _watch(self, watch: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(watch)
        self._watches.add(task)
        task.add_done_callback(_log_failure)

    async def _look_for_peers(self) -> None:
        order = self._order
        peers = await self._numeric(order.peers)
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

    async def _announce_when_served(self, page: dict[str, Any]) -> None:
        pause = _FIRST_LOOK_S
        while not listens(self._tree.look, int(page["port"])):
            await asyncio.sleep(pause)
            pause = min(pause * 1.2, 2.0)
        self._announce(msgspec.convert(page, Web))

    async def _limit_memory(self, limit_mb: int) -> None:
        while True:
            found = self._tree.look()
            if self._container.launch.counts_itself:
                found |= self._container.own_processes()
            used = usage(found.values()).rss_bytes
            self._over_memory = over_limit(used, limit_mb, found)
            if self._over_memory:
                self._end(0.0)
                return
            await asyncio.sleep(_MEMORY_LOOK_S[used > limit_mb * 1024 * 1024 / 2])

    async def _limit_time(self, run_s: float) -> None:
        await asyncio.sleep(run_s)
        if self._ending.begun:
            return
        self._timed_out = True
        self._end(_TIME_OUT_GRACE_S)

    async def _measure_gpus(self, uuids: Sequence[str]) -> None:
        arguments = [str(_GPU_LOOK_S), *uuids]
        try:
            async with self._container.helpers.running(
                module("howdah.agent.gpu", *arguments)
            ) as helper:
                while (line := await helper.line()) is not None:
                    self._gpu = gpu.parse(line)
                if helper.problem:
                    log.warning("GPU use is not measured: %s", helper.problem)
        except HelperProblem as problem:
            log.warning("GPU use is not measured: %s", problem)

    # -- what it tells ---------------------------------------------------------------------------

    def _has_joined(self) -> None:
        if not self.joined:
            self.joined = True
            self._progress.shown()
            self._say(TaskJoined(task=self._order.task, attempt=self._order.attempt))

    def _announce(self, page: Web) -> None:
        address = WebAddress(
            task=self._order.task,
            attempt=self._order.attempt,
            name=page.name,
            host=page.host or self._container.host,
            port=page.port,
            path=page.path,
            keeps_prefix=page.keeps_prefix,
        )
        self.pages[page.name] = address
        self._say(address)

    def _log_has_grown(self) -> None:
        self._progress.shown()
        self._container.followers.grown(self._order.task, self._order.attempt)

    def _note(self, text: str) -> None:
        self._say(AgentNote(task=self._order.task, attempt=self._order.attempt, text=text))

    def _say(self, message: Any) -> None:
        self._container.say(message)


def _shares_ports(order: Start) -> bool:
    """Whether the program binds its ports with SO_REUSEPORT, so that we may go on holding them."""
    return all(
        spec.env.get("TF_GRPC_REUSE_PORT", "").lower() in ("1", "true") for spec in order.processes
    )


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a watch of the attempt failed", exc_info=error)
