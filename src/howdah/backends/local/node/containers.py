"""The node daemon's containers: agents started, watched and ended, and nothing left of them."""

from __future__ import annotations

import enum
import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from howdah.agent.host.processes import Stat, marker, send_signal, stat
from howdah.backends.local import processes
from howdah.backends.local.messages import AgentProcess, Ended, Launch, Running
from howdah.backends.local.node import agents
from howdah.backends.local.node.event_loop import EventLoop, Timer
from howdah.backends.local.node.forking import fork
from howdah.backends.local.node.log import note
from howdah.backends.local.node.supervision import CANNOT_START, describe
from howdah.core.messages import ContainerEndKind

SWEEP_S = 0.005
"""First pause between two looks for leftovers; doubled up to `SWEEP_MAX_S`."""
SWEEP_MAX_S = 0.2
STUCK_S = 20.0
"""Leftovers that SIGKILL has not ended after so long are stuck in the kernel: said, and let go."""
GUARD_S = 5.0
"""A dead agent's guard may tidy up so long before it is ended as well."""


class State(enum.Enum):
    RUNNING = "running"
    SWEEPING = "sweeping"
    """The agent has ended; what it left is being ended."""
    ENDED = "ended"
    """Nothing is left; the coordinator has not acknowledged it."""


class NodeContainer:
    """One container with an agent."""

    def __init__(self, container_id: str, role: str, pid: int, start: int | None) -> None:
        self.container_id = container_id
        self.role = role
        self.pid = pid
        self.start = start
        """Set for an adopted agent; our own child keeps its process id until we reap it."""
        self.has_session = True
        """Whether the session of that number is the agent's. Of one that had ended before it was adopted
        that can't be told: the number may be somebody else's by now."""
        self.state = State.RUNNING
        self.released = False
        self.kill: Timer | None = None
        self.abrupt = False
        """Its agent was killed, so a program may be between fork and exec, not to be seen yet."""
        self.sweep_pause_s = SWEEP_S
        self.clean_looks = 0
        self.sweep_until: float = 0.0
        self.kind = ContainerEndKind.EXITED
        self.detail = ""
        self.end: Ended | None = None
        """What the coordinator is told, until it has acknowledged it."""


class Containers:
    """All containers of one job on this machine."""

    def __init__(
        self,
        loop: EventLoop,
        job_id: str,
        folder: Path,
        agent: str,
        ended: Callable[[Ended], None],
    ) -> None:
        """``folder`` holds a folder for each container; ``agent`` is ``module:function``."""
        self._loop = loop
        self._job_id = job_id
        self._folder = folder
        self._agent = agent
        self._on_ended = ended
        self._all: dict[str, NodeContainer] = {}
        self._sweep: Timer | None = None

    # -- what is -------------------------------------------------------------------------------

    def running(self) -> tuple[Running, ...]:
        """Containers that are not over."""
        return tuple(
            Running(container_id=c.container_id, role=c.role)
            for c in self._all.values()
            if c.state is not State.ENDED
        )

    def ended(self) -> tuple[Ended, ...]:
        """Containers that are over and not acknowledged."""
        return tuple(c.end for c in self._all.values() if c.end is not None)

    def pid(self, container_id: str) -> int | None:
        """Its agent, if the container is known."""
        container = self._all.get(container_id)
        return None if container is None else container.pid

    # -- what is asked for ---------------------------------------------------------------------

    def launch(self, order: Launch, locks: Sequence[int]) -> None:
        """Fork an agent, unless the container has or had one."""
        container_id = order.container_id
        if container_id in self._all:
            return
        folder = self._folder / container_id
        try:
            pid = fork(lambda: agents.run(folder, order.launch, order.role, self._agent), locks)
        except OSError as error:
            container = self._all[container_id] = NodeContainer(container_id, order.role, 0, None)
            self._over(container, ContainerEndKind.LAUNCH_FAILED, f"no new process: {error}")
            return
        container = self._all[container_id] = NodeContainer(container_id, order.role, pid, None)
        self._loop.on_child(pid, partial(self._agent_ended, container))

    def release(self, container_id: str, grace_s: float) -> None:
        """SIGTERM to the agent, SIGKILL after the grace; asking again may shorten it."""
        container = self._all.get(container_id)
        if container is None or container.state is not State.RUNNING:
            return
        container.released = True
        self._signal(container, signal.SIGTERM)
        due = time.monotonic() + grace_s
        if container.kill is None or container.kill.due > due:
            if container.kill is not None:
                container.kill.cancel()
            kill = partial(self._signal, container, signal.SIGKILL)
            container.kill = self._loop.later(grace_s, kill)

    def acknowledge(self, container_id: str) -> None:
        """The coordinator knows its end."""
        container = self._all.get(container_id)
        if container is not None and container.state is State.ENDED:
            agents.forget(self._folder / container_id)
            # Kept, so that a repeated launch does not begin again what is over.
            container.end = None

    def adopt(self) -> None:
        """Take over the agents of a daemon that died: those that live, and the ends of others."""
        try:
            folders = sorted(self._folder.iterdir())
        except FileNotFoundError:
            return
        for folder in folders:
            record = processes.read_process(folder)
            if record is not None and folder.name not in self._all:
                self._adopt(folder.name, record)

    # -- an agent's end ------------------------------------------------------------------------

    def _adopt(self, container_id: str, record: AgentProcess) -> None:
        container = NodeContainer(container_id, record.role, record.pid, record.start)
        container.has_session = processes.alive(record.pid, record.start)
        self._all[container_id] = container
        self._loop.on_end(record.pid, record.start, partial(self._agent_ended, container, None))

    def _signal(self, container: NodeContainer, number: signal.Signals) -> None:
        if container.state is not State.RUNNING:
            return
        if container.start is None:
            os.kill(container.pid, number)  # our child: the id is its own until we reap it
        else:
            self._signal_adopted(container, number)

    def _signal_adopted(self, container: NodeContainer, number: signal.Signals) -> None:
        found = stat(container.pid)
        if found is not None and found.start == container.start:
            send_signal(found, number)

    def _agent_ended(self, container: NodeContainer, status: int | None) -> None:
        if status is not None and status >> 8 == agents.ALREADY_THERE:
            record = processes.read_process(self._folder / container.container_id)
            if record is not None:
                self._adopt(container.container_id, record)
                return
        if container.kill is not None:
            container.kill.cancel()
        container.state = State.SWEEPING
        container.abrupt = status is None or bool(status & 0x7F)
        container.sweep_until = time.monotonic() + STUCK_S
        container.kind, container.detail = self._reading(container, status)
        self._sweep_in(0.0)

    def _reading(
        self, container: NodeContainer, status: int | None
    ) -> tuple[ContainerEndKind, str]:
        """What an agent's end means."""
        folder = self._folder / container.container_id
        if status is not None and status >> 8 == CANNOT_START:
            words = agents.last_words(folder) or "the agent could not be started"
            return ContainerEndKind.LAUNCH_FAILED, words
        if container.released:
            return ContainerEndKind.RELEASED, ""
        if status == 0:
            return ContainerEndKind.EXITED, ""
        words = agents.last_words(folder)
        return ContainerEndKind.EXITED, f"its agent {describe(status)}" + (
            f": {words}" if words else ""
        )

    # -- leftovers -----------------------------------------------------------------------------

    def _sweep_in(self, delay_s: float) -> None:
        if self._sweep is not None and self._sweep.call is not None:
            if self._sweep.due <= time.monotonic() + delay_s:
                return
            self._sweep.cancel()
        self._sweep = self._loop.later(delay_s, self._sweep_all)

    def _sweep_all(self) -> None:
        """One look at all processes for all containers whose agents have ended."""
        sweeping = [c for c in self._all.values() if c.state is State.SWEEPING]
        if not sweeping:
            return
        everything = processes.snapshot()
        for container in sweeping:
            left = self._leftovers(container, everything)
            guarded = time.monotonic() < container.sweep_until - STUCK_S + GUARD_S
            for process in left:
                if not (guarded and processes.is_guard(process.pid)):
                    send_signal(process, signal.SIGKILL)
            if not left:
                container.clean_looks += 1
                if container.clean_looks > container.abrupt:
                    self._over(container, container.kind, container.detail)
            elif time.monotonic() > container.sweep_until:
                pids = ", ".join(str(p.pid) for p in left)
                self._over(
                    container,
                    container.kind,
                    f"{container.detail} (processes {pids} do not end, not even by SIGKILL)".strip(),
                )
            else:
                container.clean_looks = 0
                container.sweep_pause_s = min(container.sweep_pause_s * 2, SWEEP_MAX_S)
        pauses = [c.sweep_pause_s for c in sweeping if c.state is State.SWEEPING]
        if pauses:
            self._sweep_in(min(pauses))

    def _leftovers(
        self, container: NodeContainer, everything: Sequence[processes.Seen]
    ) -> list[Stat]:
        # The agent is dead: a living process of its id is a stranger, and so is that session.
        reused = any(process.stat.pid == container.pid for process in everything)
        found = processes.belonging(
            everything,
            marker(self._job_id, container.container_id),
            [container.pid] if container.has_session and not reused else [],
        )
        # Agents keep their orphans: one without a marker that has come to us is of an agent that
        # has died. Which of them does not matter: it has to end.
        known = self._loop.children()
        for process in everything:
            orphan = process.stat.parent == os.getpid() and process.stat.pid not in known
            if orphan and process.marker is None:
                found[process.stat.pid] = process.stat
        found.pop(os.getpid(), None)
        return list(found.values())

    def _over(self, container: NodeContainer, kind: ContainerEndKind, detail: str) -> None:
        if detail:
            note(f"container {container.container_id}: {kind.value}: {detail}")
        container.state = State.ENDED
        container.end = Ended(container_id=container.container_id, kind=kind, detail=detail)
        self._on_ended(container.end)
