"""The programs of one attempt: their environment, their start, and their end with all they started.

Programs start side by side, and their ends are noted in order. An attempt ends by SIGTERM, grace and
SIGKILL, until none of its processes is left. All of them count: children of shells, data loaders,
daemons that forked twice, programs that made sessions of their own. They are found as descendants of
the agent, to which orphans return, and by the marker in their environment.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from howdah.agent import other_launchers
from howdah.agent.children import Child, Children
from howdah.agent.forwarder import LogForwarder, ProgramOutput
from howdah.agent.host.processes import (
    MARKER,
    Stat,
    descendants,
    marked,
    prefer_as_oom_victim,
    send_signal,
)
from howdah.agent.outcome import EndedProgram, not_started
from howdah.storage.errors import is_transient
from howdah.wire.messages import ProcessSpec

_AGAIN_S = 0.02
"""Between two looks at processes that are being killed."""
_LOOK_S = 0.25
"""Between two looks during the grace, should no child's end wake us."""
_GIVE_UP_S = 20.0
"""A process that survives SIGKILL for so long waits inside the kernel for a device."""

_OWN = frozenset(
    f"HOWDAH_{name}"
    for name in (
        "ATTEMPT CERTIFICATES CHECKPOINT_DIR CHECKPOINT_REQUEST CLUSTER EXEC GENERATION HOST INDEX IS_CHIEF "
        "JOB_ID LOCAL_RANK LOCAL_WORLD_SIZE LOG_DIR OUTPUT_DIR PAGE_TOKEN_FILE PORT PORTS RANK "
        "RESTORED ROLE SHARED_DIR TASK_SOCKET TENSORBOARD_DIR WORLD_SIZE"
    ).split()
) | {MARKER}
"""What only a task's program has: when Howdah itself runs inside a task of another job, that
task's values must not reach this job's programs."""


class StartProblem(Exception):
    """A program could not be started; the text says why and what to do."""

    def __init__(self, process: int, text: str, *, transient: bool = False) -> None:
        """``process`` is its local rank; ``transient``: see `howdah.storage.errors`."""
        super().__init__(text)
        self.process = process
        self.transient = transient


class Program:
    """One running program."""

    def __init__(self, process: int, child: Child, source: ProgramOutput) -> None:
        self.process = process
        """Its local rank."""
        self.child = child
        self.source = source
        self.asked = False
        """It was still running when the agent began to end the attempt."""
        self.killed_at: float | None = None
        """When it was found killed, seconds since the epoch."""


class Programs:
    """All of one attempt's."""

    def __init__(
        self,
        children: Children,
        forwarder: LogForwarder,
        folder: Path,
        killed: Callable[[Sequence[float]], object] = lambda kills: None,
    ) -> None:
        """``killed`` is called with `kills` whenever there are more."""
        self._children = children
        self._forwarder = forwarder
        self._folder = folder
        self._killed = killed
        self._programs: list[Program] = []
        self._ended: list[Program] = []
        self.changed: asyncio.Event = asyncio.Event()
        """Set when a program has ended; to be cleared by what waits for it."""

    @property
    def pids(self) -> tuple[int, ...]:
        """By local rank, ended ones too."""
        return tuple(program.child.pid for program in self._programs)

    @property
    def ended_pids(self) -> tuple[int, ...]:
        """Of those that have ended, as far as noted."""
        return tuple(program.child.pid for program in self._ended)

    @property
    def running(self) -> bool:
        """Not all have ended, as far as noted."""
        return len(self._ended) < len(self._programs)

    def still_running(self) -> bool:
        """Not all have ended."""
        self.note_ends()
        return self.running

    @property
    def failed(self) -> bool:
        """One of them has ended otherwise than with exit code 0."""
        return any(program.child.status != 0 for program in self._ended)

    def start(
        self,
        specs: Sequence[ProcessSpec],
        environment_of: Callable[[ProcessSpec], Mapping[str, str]],
    ) -> None:
        """Start them all.

        Raises:
            StartProblem: one can't be started; those before it run.
        """
        for process, spec in enumerate(specs):
            self._programs.append(self._start_one(process, spec, environment_of(spec)))

    def note_ends(self) -> None:
        """Take note of those that have ended since; called whenever children have."""
        for program in self._programs:
            status = program.child.status
            if status is not None and program not in self._ended:
                self._ended.append(program)
                self.changed.set()
                if not 0 <= status < 128:
                    program.killed_at = time.time()
                    self._killed(self.kills)

    @property
    def kills(self) -> list[float]:
        """When programs were killed, seconds since the epoch: what they were writing may be torn."""
        return [each.killed_at for each in self._ended if each.killed_at is not None]

    def asked_to_end(self) -> None:
        """From now on an end is what the agent wanted."""
        self.note_ends()
        for program in self._programs:
            program.asked = program.asked or program not in self._ended

    def ends(self) -> list[EndedProgram]:
        return [
            EndedProgram(
                process=program.process,
                status=program.child.status or 0,
                asked=program.asked,
                tail=program.source.tail(),
            )
            for program in self._ended
        ]

    def _start_one(self, process: int, spec: ProcessSpec, env: Mapping[str, str]) -> Program:
        output, output_in = self._forwarder.pipe()
        error, error_in = self._forwarder.pipe()
        try:
            child = self._children.start(
                spec.argv,
                env=env,
                cwd=self._folder,
                stdout=output_in,
                stderr=error_in,
                umask=self._children.umask,
            )
        except (OSError, ValueError) as problem:
            os.close(output)
            os.close(error)
            text = not_started(spec.argv, str(self._folder), problem)
            raise StartProblem(process, text, transient=is_transient(problem)) from problem
        finally:
            os.close(output_in)
            os.close(error_in)
        prefer_as_oom_victim(child.pid)
        return Program(process, child, self._forwarder.add(output, error, spec.label))


# -- their end -----------------------------------------------------------------------------------


class ProcessTree:
    """All living processes of an attempt."""

    def __init__(
        self, children: Children, marker: str, own_pids: Callable[[], Collection[int]]
    ) -> None:
        self._children = children
        self._marker = marker
        self._own_pids = own_pids
        """Processes of the agent's own, which are no part of the attempt."""

    def look(self, *, thorough: bool = False) -> dict[int, Stat]:
        """What is there, by pid. ``thorough`` looks at every process of the host."""
        own = {os.getpid(), *self._own_pids()}
        found = descendants(os.getpid(), own)
        if thorough or not self._children.subreaper:
            found |= marked(MARKER, self._marker, own)
        return found


class Ending:
    """The end of one attempt's processes, once begun."""

    def __init__(self, tree: ProcessTree, children: Children, running: Callable[[], bool]) -> None:
        """``running`` tells whether the end of a program is still to be noted."""
        self._tree = tree
        self._children = children
        self._running = running
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._deadline: float | None = None
        self.stubborn: tuple[int, ...] = ()
        """Processes that could not be killed."""

    @property
    def begun(self) -> bool:
        """Whether the processes were told to end."""
        return self._deadline is not None

    def begin(self, grace_s: float) -> None:
        """SIGTERM now, SIGKILL after the grace. Again: the earlier SIGKILL counts."""
        deadline = self._loop.time() + max(grace_s, 0.0)
        if self._deadline is None:
            if grace_s > 0:
                for process in self._tree.look().values():
                    send_signal(process, signal.SIGTERM)
                    send_signal(process, signal.SIGCONT)  # a stopped process can't end
            self._deadline = deadline
        else:
            self._deadline = min(self._deadline, deadline)
        self._wake.set()

    async def finished(self) -> None:
        """Wait until nothing is left; `begin` may come before or meanwhile."""
        with self._children.noticing(self._wake.set):
            give_up = None
            while True:
                self._wake.clear()
                self._children.reap()
                found = self._tree.look() or self._tree.look(thorough=True)
                if not found:
                    # What died just before the look was not seen, and can be reaped now.
                    self._children.reap()
                    if not self._running():
                        return
                now = self._loop.time()
                pause = _LOOK_S
                if self._deadline is not None:
                    if now >= self._deadline:
                        give_up = give_up or now + _GIVE_UP_S
                        if now > give_up:
                            self.stubborn = tuple(found)
                            return
                        for process in found.values():
                            send_signal(process, signal.SIGKILL)
                        pause = _AGAIN_S
                    else:
                        pause = min(pause, self._deadline - now)
                try:
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
                except TimeoutError:
                    pass


# -- their environment ---------------------------------------------------------------------------


class Additions(msgspec.Struct, frozen=True, kw_only=True):
    """What only the agent knows."""

    marker: str
    checkpoint_dir: str
    output_dir: str
    log_dir: str
    task_socket: str
    checkpoint_request: str
    certificates: tuple[str, ...] = ()
    """Paths: authority, the certificate of the job's agents, its key."""
    page_token_file: str = ""
    shared_dir: str | None = None
    restored: str | None = None
    python_path: str = ""
    gpus: tuple[str, ...] | None = ()
    """As in `howdah.agent.launch.AgentLaunch`."""


def complete_environment(
    base: Mapping[str, str], told: Mapping[str, str], additions: Additions
) -> dict[str, str]:
    """One program's environment.

    ``base`` is the host's (HOME, LANG, …) without what another launcher says there, ``told`` the
    coordinator's, which wins over it; what the agent adds wins over both.
    """
    not_ours = _OWN.union(other_launchers.theirs(base))
    env = {name: value for name, value in base.items() if name not in not_ours}
    env |= told
    env |= {
        MARKER: additions.marker,
        "HOWDAH_CHECKPOINT_DIR": additions.checkpoint_dir,
        "HOWDAH_OUTPUT_DIR": additions.output_dir,
        "HOWDAH_LOG_DIR": additions.log_dir,
        "HOWDAH_TASK_SOCKET": additions.task_socket,
        "HOWDAH_CHECKPOINT_REQUEST": additions.checkpoint_request,
    }
    if additions.certificates:
        env["HOWDAH_CERTIFICATES"] = os.pathsep.join(additions.certificates)
    if additions.page_token_file:
        env["HOWDAH_PAGE_TOKEN_FILE"] = additions.page_token_file
    if additions.shared_dir is not None:
        env.setdefault("HOWDAH_SHARED_DIR", additions.shared_dir)
    if additions.restored is not None:
        env["HOWDAH_RESTORED"] = additions.restored
    if additions.python_path:
        # Last: a Howdah installed in the user's own environment is the better one.
        parts = [env.get("PYTHONPATH", ""), additions.python_path]
        env["PYTHONPATH"] = os.pathsep.join(part for part in parts if part)
    if additions.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(additions.gpus)
        if any(each.isdecimal() for each in additions.gpus):
            # Spark's numbers are those of nvidia-smi; CUDA counts the fastest device first.
            env.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    elif additions.gpus is not None:
        # A task that asked for no GPU must not use those another one was given.
        env["CUDA_VISIBLE_DEVICES"] = told.get("CUDA_VISIBLE_DEVICES", "")
    return env
