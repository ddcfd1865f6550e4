"""A pretended cluster: a backend that grants containers, agents in them, and their programs.

Each is a small model of what the real ones promise (`howdah.backends.base`, `howdah.agent`):
messages on one connection arrive in order and are lost with it; an agent never runs two attempts at
once; one that has lost contact ends its program when its lease is over; a backend reports the end
of every container once, and says when it can't know that what ran in it has ended.

What really happens is decided by `Habits`, which scenarios and random faults change.
"""

from __future__ import annotations

import dataclasses
import enum
import random
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from howdah.core.messages import (
    AgentDisconnected,
    AgentRegistered,
    AgentSilent,
    AnyCommand,
    AnyEvent,
    CancelRequests,
    CheckpointSaved,
    ContainerEnded,
    ContainerEndKind,
    ContainerGranted,
    ContainerRequest,
    DumpStacks,
    Exit,
    Held,
    HeldPhase,
    LaunchAgent,
    NotifyCheckpoint,
    PrepareTask,
    ReleaseContainer,
    RequestContainers,
    RequestRefused,
    StacksTaken,
    StartTask,
    StopTask,
    Task,
    TaskExited,
    TaskJoined,
    TaskPrepared,
    TaskSaving,
    TaskStarted,
)
from tests.simulation.clock import Clock

SHUTDOWN_S = 10.0
"""An agent that was told to end and is still connected after this loses its container."""
SILENT_S = 10.0
"""Missed heartbeats after which an agent is called silent."""
SAVING_S = 1800.0
"""What an agent allows itself for saving after an end that nobody asked for."""


@dataclasses.dataclass
class Habits:
    """How the cluster and the programs behave. Functions get a task's name and its attempt."""

    delay_s: float = 0.02
    """Mean delay of a message or a call."""
    lease_s: float = 20.0
    release_s: float = 0.0
    """How long the backend takes to end a container that was given back."""
    backend_is_sure: bool = True
    """Whether the backend knows that what ran on a lost machine has ended."""
    named_late_s: float = 0.0
    """How long after a new coordinator one machine comes back to the backend, which names that
    machine's containers only then."""
    repeat: float = 0.0
    """Chance that a message to the coordinator arrives twice."""
    forget: float = 0.0
    """Chance that an agent that connects again has lost what it held."""
    late_grants: float = 0.3
    """Chance that a request is granted although it was cancelled, or its coordinator has died."""
    grant_s: Callable[[str], float | None] = lambda task: 0.1
    """Seconds until a request is granted; None: never."""
    refuse: Callable[[str], str] = lambda task: ""
    """Why its request can never be granted."""
    launch: Callable[[str], str | None] = lambda task: ""
    """What goes wrong at a launch; None: nothing is heard of it ever again."""
    prepare: Callable[[str, int], Exit | None] = lambda task, attempt: None
    """How a preparation fails."""
    prepare_s: Callable[[str, int], float] = lambda task, attempt: 0.02
    joins: Callable[[str, int], bool] = lambda task, attempt: True
    work: Callable[[str, int], tuple[float, Exit] | None] = lambda task, attempt: None
    """After how long a program ends by itself, and how; None: it runs on."""
    save_s: Callable[[str, int], float] = lambda task, attempt: 0.0
    """How long the agent saves after the program's end."""
    checkpoint_s: Callable[[str, int], float | None] = lambda task, attempt: None
    """How long the program takes for a checkpoint it is asked for; None: it takes no notice."""
    ignores_sigterm: Callable[[str, int], bool] = lambda task, attempt: False
    cannot_be_killed: Callable[[str, int], bool] = lambda task, attempt: False


class Phase(enum.Enum):
    """What an agent does with an attempt; `HeldPhase` lacks the first, which it does not report."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    RUNNING = "running"
    SAVING = "saving"
    EXITED = "exited"


class Program:
    """One attempt in its agent."""

    def __init__(self, order: PrepareTask) -> None:
        self.task = order.task
        self.attempt = order.attempt
        self.generation = order.generation
        self.order = order
        self.phase = Phase.PREPARING
        self.ports: tuple[int, ...] = ()
        self.joined = False
        self.hung = False
        self.told_to_stop = False
        self.save_limit_s = SAVING_S
        self.save_until = 0.0
        self.saving_is_known = False
        self.exit: Exit | None = None

    @property
    def name(self) -> str:
        return str(self.task)

    @property
    def over(self) -> bool:
        return self.phase is Phase.EXITED

    def __repr__(self) -> str:
        return f"{self.task}#{self.attempt} (generation {self.generation}, {self.phase.value})"


class Node:
    def __init__(self, name: str) -> None:
        self.name = name
        self.silent = False
        """The backend does not reach it, whatever its agents do."""
        self.ports: set[int] = set()


class Connection:
    """One connection of an agent: in order in each direction, what is under way is lost with it."""

    def __init__(self, life: int) -> None:
        self.life = life
        """Of the coordinator at its other end."""
        self.open = True
        self.up_at = self.down_at = 0.0
        self.told_to_end = False


class Agent:
    """An agent and the container it lives in."""

    def __init__(self, container_id: str, node: Node, task: Task) -> None:
        self.container_id = container_id
        self.node = node
        self.task = task
        self.alive = True
        self.cut = False
        self.leaving = False
        self.forgetful = False
        """It has lost what it held, as if it had been started anew."""
        self.deaf = False
        """Its connection stands, but it says nothing more of what it holds, and takes no orders."""
        self.connection: Connection | None = None
        self.latest: Connection | None = None
        """The one it has, or had last."""
        self.lost_at: float | None = None
        self.held: Program | None = None
        self.following: PrepareTask | None = None
        """To begin once the attempt it holds has ended."""
        self.dropped: dict[Task, int] = {}


class Coordinator(Protocol):
    """What the cluster needs of the coordinator, dead or alive."""

    life: int

    @property
    def alive(self) -> bool: ...
    def tell(self, event: AnyEvent) -> None: ...
    def holds(self, container_id: str) -> bool: ...
    def wants(self, request_id: int) -> Task | None: ...


class Watcher(Protocol):
    """Who holds what happens against what must never happen."""

    def starts(self, agent: Agent, program: Program, order: StartTask) -> None: ...
    def ends(self, program: Program, exit: Exit) -> None: ...
    def releases(self, agent: Agent) -> None: ...


class Cluster:
    """Backend, network, agents, programs."""

    def __init__(
        self,
        clock: Clock,
        draw: random.Random,
        habits: Habits,
        coordinator: Coordinator,
        watcher: Watcher,
        nodes: int,
    ) -> None:
        self.clock = clock
        self.random = draw
        self.habits = habits
        self.coordinator = coordinator
        self.watcher = watcher
        self.nodes = {f"node{n}": Node(f"node{n}") for n in range(nodes)}
        self.containers: dict[str, Node] = {}
        """What the backend still lists."""
        self.left_behind: dict[str, tuple[str, ...]] = {}
        """By container: what of its files will not come with its end."""
        self.end_late_s = 0.0
        """So late the backend says that a container has ended."""
        self.agents: dict[str, Agent] = {}
        """Those that live, also where the backend believes otherwise."""
        self.joined: set[tuple[str, int]] = set()
        """Tasks that have joined their peers, with the generation."""
        self.checkpoints = 0
        self.notices: list[tuple[float, str, str]] = []
        """Requests for a checkpoint that programs have heard: time, task, reason."""
        self._asked: set[int] = set()
        self._avoided: tuple[str, ...] = ()
        self._cancelled: set[int] = set()
        self._granted: set[int] = set()
        self._launched: set[str] = set()
        self.released: set[str] = set()
        self.unnamed: set[str] = set()
        """No coordinator that lives has been told of them."""
        self._serial = 0
        self.all_ends_proven = True
        """Whether the backend knows that nothing runs in the containers it lists no longer."""

    # -- what the coordinator wants ---------------------------------------------------------------

    def carry_out(self, command: AnyCommand) -> None:
        match command:
            case RequestContainers():
                self._avoided = command.avoid_nodes
                for request in command.requests:
                    self._request(request)
            case CancelRequests():
                self._cancelled.update(command.request_ids)
            case LaunchAgent():
                self.clock.later(
                    self.lag(), lambda: self._launch(command.container_id, command.task)
                )
            case ReleaseContainer():
                self._release(command.container_id)
            case PrepareTask() | StartTask() | StopTask() | NotifyCheckpoint():
                self._send(command.container_id, command)
            case DumpStacks():
                if not self._send(command.container_id, command):
                    self._later_tell(
                        StacksTaken(task=command.task, attempt=command.attempt, problem="gone")
                    )
            case _:
                pass

    def lag(self) -> float:
        mean = self.habits.delay_s
        return self.random.expovariate(1 / mean) if mean else 0.0

    def _later_tell(self, event: AnyEvent, after_s: float = 0.0) -> None:
        self.clock.later(after_s + self.lag(), lambda: self.coordinator.tell(event))

    # -- the backend ------------------------------------------------------------------------------

    def _request(self, request: ContainerRequest) -> None:
        number = request.request_id
        if number in self._asked:
            return
        self._asked.add(number)
        task = self.coordinator.wants(number)
        name = str(task) if task is not None else f"{request.role}:0"
        if reason := self.habits.refuse(name):
            self._later_tell(RequestRefused(request_id=number, reason=reason))
        elif (after_s := self.habits.grant_s(name)) is not None:
            life = self.coordinator.life
            self.clock.later(after_s + self.lag(), lambda: self._grant(number, life))

    def _grant(self, number: int, life: int) -> None:
        stale = number in self._cancelled or life != self.coordinator.life
        if number in self._granted or (stale and not self.chance(self.habits.late_grants)):
            return
        # As a resource manager's blacklist: what is on it is never given.
        able = [n for n in self.nodes.values() if not n.silent and n.name not in self._avoided]
        if not able:
            self.clock.later(5.0, lambda: self._grant(number, life))
            return
        self._granted.add(number)
        self._serial += 1
        container_id = f"container-{self._serial}"
        node = self.random.choice(able)
        self.containers[container_id] = node
        # Without a coordinator nobody hears of it: the next one must find and return it.
        self.coordinator.tell(
            ContainerGranted(request_id=number, container_id=container_id, node=node.name)
        )

    def _launch(self, container_id: str, task: Task) -> None:
        node = self.containers.get(container_id)
        if node is None or node.silent or container_id in self._launched:
            return
        self._launched.add(container_id)
        problem = self.habits.launch(str(task))
        if problem is None:
            return
        if problem:
            self.end_container(container_id, ContainerEndKind.LAUNCH_FAILED, detail=problem)
            return
        agent = Agent(container_id, node, task)
        self.agents[container_id] = agent
        self._out_of_touch(agent)
        self.clock.later(0.05 + self.lag(), lambda: self.connect(agent))

    def _release(self, container_id: str) -> None:
        agent = self.agents.get(container_id)
        again = container_id in self.released
        self.released.add(container_id)
        if agent is None or agent.connection is None:
            slow_s = self.habits.release_s + self.lag()
            self.clock.later(slow_s, lambda: self._take(container_id))
            return
        if not again:
            self.watcher.releases(agent)
        agent.connection.told_to_end = True
        self._pass_down(agent, agent.connection, lambda: self._leave(agent))
        self.clock.later(SHUTDOWN_S, lambda: self._take(container_id))

    def _take(self, container_id: str) -> None:
        """The backend ends a container it was given back, if it can reach it."""
        node = self.containers.get(container_id)
        if node is None:
            return
        if node.silent:
            del self.containers[container_id]
            self._report_end(container_id, ContainerEndKind.RELEASED, proven=False)
        else:
            self.end_container(container_id, ContainerEndKind.RELEASED)

    def end_container(
        self,
        container_id: str,
        kind: ContainerEndKind,
        *,
        detail: str = "",
        late_s: float = 0.0,
        proven: bool = True,
    ) -> None:
        """A container ends with all that runs in it, and the backend says so."""
        agent = self.agents.get(container_id)
        if agent is not None:
            self._die(agent)
        if self.containers.pop(container_id, None) is not None:
            self._report_end(container_id, kind, detail=detail, late_s=late_s, proven=proven)

    def _report_end(
        self,
        container_id: str,
        kind: ContainerEndKind,
        *,
        detail: str = "",
        late_s: float = 0.0,
        proven: bool = True,
    ) -> None:
        self.all_ends_proven &= proven
        self._later_tell(
            ContainerEnded(
                container_id=container_id,
                kind=kind,
                detail=detail,
                proven=proven,
                unsaved=self.left_behind.get(container_id, ()),
            ),
            late_s + self.end_late_s,
        )

    def lose_node(self, node: Node) -> None:
        """A machine is gone. Peers' errors and silence come first; the backend notices last."""
        for container_id, where in list(self.containers.items()):
            if where is not node:
                continue
            if (agent := self.agents.get(container_id)) is not None:
                self._die(agent, word=False)
            self.end_container(
                container_id,
                ContainerEndKind.NODE_LOST,
                late_s=self.random.uniform(0, 3),
                proven=self.habits.backend_is_sure,
            )

    def silence_node(self, node: Node, for_s: float, expiry_s: float, cut: bool) -> None:
        """The backend hears nothing of a machine that lives on, and in the end calls it lost.

        When it is heard of again it ends what was called lost.
        """
        if node.silent:
            return
        node.silent = True
        there = [agent for agent in self.agents.values() if agent.node is node]
        for agent in there if cut else ():
            self.cut(agent)
        lost: list[str] = []

        def expire() -> None:
            if node.silent:
                for container_id, where in list(self.containers.items()):
                    if where is node:
                        del self.containers[container_id]
                        lost.append(container_id)
                        self._report_end(container_id, ContainerEndKind.NODE_LOST, proven=False)

        def come_back() -> None:
            node.silent = False
            for agent in there if cut else ():
                self.heal(agent)
            for container_id in lost:
                if (agent := self.agents.get(container_id)) is not None:
                    self.clock.later(self.random.uniform(0, 5), lambda a=agent: self._die(a))

        self.clock.later(expiry_s, expire)
        self.clock.later(for_s, come_back)

    def named(self) -> tuple[str, ...]:
        """The containers that a new coordinator is told of at once."""
        late_s = self.habits.named_late_s
        if not late_s or not self.containers:
            return tuple(self.containers)
        self.all_ends_proven = False
        away = self.random.choice(list(self.containers.values()))
        late = [container_id for container_id, node in self.containers.items() if node is away]

        self.unnamed.update(late)

        def name() -> None:
            self.unnamed.difference_update(late)
            for container_id in late:
                if container_id not in self.containers:
                    continue
                if container_id in self.released:
                    self._take(container_id)
                    continue
                self.coordinator.tell(
                    ContainerGranted(request_id=0, container_id=container_id, node=away.name)
                )

        self.clock.later(late_s, name)
        return tuple(each for each in self.containers if each not in late)

    # -- connections ------------------------------------------------------------------------------

    def connect(self, agent: Agent) -> None:
        if not agent.alive or agent.cut or agent.leaving:
            return
        if agent.connection is not None:
            return
        if not self.coordinator.alive:
            self.clock.later(0.2 + self.lag(), lambda: self.connect(agent))
            return
        if not self.coordinator.holds(agent.container_id):
            self._die(agent)  # it is told that it is not wanted
            self._exited(agent)
            return
        agent.connection = agent.latest = Connection(self.coordinator.life)
        agent.lost_at = None
        program = agent.held
        if program is not None and self.chance(self.habits.forget):
            self._free(agent, program)
            agent.held = program = None
            agent.forgetful = True
        self.coordinator.tell(
            AgentRegistered(
                container_id=agent.container_id,
                host=agent.node.name,
                held=self._held(agent, program),
            )
        )

    def _held(self, agent: Agent, program: Program | None) -> Held | None:
        if program is None or program.phase is Phase.PREPARING:
            return None
        if program.phase is Phase.SAVING:
            program.saving_is_known = True
        return Held(
            task=program.task,
            attempt=program.attempt,
            generation=program.generation,
            phase=HeldPhase(program.phase.value),
            host=agent.node.name,
            ports=program.ports,
            pids=(1,) if program.phase is Phase.RUNNING else (),
            joined=program.joined,
            exit=program.exit,
            save_s=max(0.0, program.save_until - self.clock.now),
        )

    def hang_up_all(self) -> None:
        """The coordinator has died."""
        for agent in self.agents.values():
            if agent.connection is not None:
                agent.connection.open = False
                agent.connection = None
                self._out_of_touch(agent)

    def call_all(self) -> None:
        """A new coordinator is there."""
        for agent in list(self.agents.values()):
            self.clock.later(self.lag(), lambda agent=agent: self.connect(agent))

    def cut(self, agent: Agent, noticed: bool | None = None) -> None:
        """Nothing gets through to an agent or from it. ``noticed``: the connection is seen to break;
        otherwise it falls silent first."""
        if agent.cut or not agent.alive:
            return
        agent.cut = True
        self._drop(agent, self.random.random() < 0.5 if noticed is None else noticed)

    def drop_connection(self, agent: Agent) -> None:
        """A connection breaks, with what is under way, and is made again."""
        self._drop(agent, noticed=True)
        self.clock.later(0.3 + self.lag(), lambda: self.connect(agent))

    def _drop(self, agent: Agent, noticed: bool) -> None:
        connection, agent.connection = agent.connection, None
        if connection is None:
            return
        connection.open = False
        self._out_of_touch(agent)
        if connection.told_to_end:
            # A closed connection after a word to end is taken for the end: so it has to be one.
            self._leave(agent)
        closed = AgentDisconnected(container_id=agent.container_id)
        silent = AgentSilent(container_id=agent.container_id, silent_s=SILENT_S)
        if noticed:
            self._notice(agent, connection, closed)
        else:
            self.clock.later(SILENT_S, lambda: self._notice(agent, connection, silent))
            self.clock.later(SILENT_S + 5, lambda: self._notice(agent, connection, closed))

    def _notice(self, agent: Agent, connection: Connection, event: AnyEvent) -> None:
        """Unless a newer connection, or coordinator, has made it meaningless."""
        if agent.latest is connection and connection.life == self.coordinator.life:
            self.coordinator.tell(event)

    def heal(self, agent: Agent) -> None:
        agent.cut = False
        self.connect(agent)

    def _out_of_touch(self, agent: Agent) -> None:
        """Its lease runs from now; when it is over, the agent ends with its program."""
        agent.lost_at = since = self.clock.now

        def orphaned() -> None:
            if agent.alive and agent.lost_at == since:
                self._die(agent)
                self._exited(agent)

        self.clock.later(self.habits.lease_s, orphaned)

    def _exited(self, agent: Agent) -> None:
        """An agent has ended by itself; the backend sees it if it sees the machine."""
        if not agent.node.silent:
            self.end_container(agent.container_id, ContainerEndKind.EXITED)

    def say(self, agent: Agent, event: AnyEvent) -> None:
        """An agent's message: in order, perhaps twice, lost if its connection breaks."""
        connection = agent.connection
        if connection is None or agent.deaf:
            return
        connection.up_at = max(connection.up_at, self.clock.now + self.lag())

        def arrive() -> None:
            if connection.open:
                if isinstance(event, TaskSaving) and agent.held is not None:
                    agent.held.saving_is_known = True
                self.coordinator.tell(event)
                if self.chance(self.habits.repeat):
                    self.clock.later(self.random.uniform(0.0, 3.0), repeat)

        def repeat() -> None:
            if not agent.forgetful:
                self.coordinator.tell(event)

        self.clock.later(connection.up_at - self.clock.now, arrive)

    def _send(self, container_id: str, command: AnyCommand) -> bool:
        agent = self.agents.get(container_id)
        if agent is None or agent.connection is None:
            return False
        self._pass_down(agent, agent.connection, lambda: self._hear(agent, command))
        return True

    def _pass_down(self, agent: Agent, connection: Connection, action: Callable[[], None]) -> None:
        connection.down_at = max(connection.down_at, self.clock.now + self.lag())

        def arrive() -> None:
            if agent.alive and connection.open:
                action()

        self.clock.later(connection.down_at - self.clock.now, arrive)

    # -- agents -----------------------------------------------------------------------------------

    def _hear(self, agent: Agent, command: AnyCommand) -> None:
        if agent.leaving or agent.deaf:
            return
        match command:
            case PrepareTask():
                self._prepare(agent, command)
            case StartTask():
                self._start(agent, command)
            case StopTask():
                self._stop(agent, command)
            case DumpStacks():
                stacks = StacksTaken(
                    task=command.task, attempt=command.attempt, innermost="train.py:1"
                )
                self.say(agent, stacks)
            case NotifyCheckpoint():
                self._checkpoint_wanted(agent, command)
            case _:
                pass

    def _prepare(self, agent: Agent, order: PrepareTask) -> None:
        held = agent.held
        if agent.dropped.get(order.task, 0) >= order.attempt:
            self._say_dropped(agent, order.task, order.attempt)
        elif held is not None and order.attempt <= held.attempt:
            if order.attempt == held.attempt:
                self._tell_again(agent, held)
        elif held is not None and not held.over:
            agent.following = order
            self._stop_program(agent, held, 0.0, 0.0)
        else:
            self._begin(agent, order)

    def _begin(self, agent: Agent, order: PrepareTask) -> None:
        program = agent.held = Program(order)
        self.clock.later(
            self.habits.prepare_s(program.name, program.attempt),
            lambda: self._prepared(agent, program),
        )

    def _prepared(self, agent: Agent, program: Program) -> None:
        if not agent.alive or agent.held is not program or program.phase is not Phase.PREPARING:
            return
        failed = self.habits.prepare(program.name, program.attempt)
        if failed is not None:
            self._finish(agent, program, failed)
            return
        kept = program.order.keep_ports
        if taken := sorted(agent.node.ports & set(kept)):
            self._finish(
                agent,
                program,
                Exit(port_taken=True, transient=True, port=taken[0], detail="still in use"),
            )
            return
        program.ports = kept or tuple(
            self._free_port(agent.node) for _ in range(program.order.ports)
        )
        agent.node.ports.update(program.ports)
        program.phase = Phase.PREPARED
        self._tell_again(agent, program)

    def _free_port(self, node: Node) -> int:
        while (port := self.random.randint(10_000, 29_999)) in node.ports:
            pass
        node.ports.add(port)
        return port

    def _start(self, agent: Agent, order: StartTask) -> None:
        program = agent.held
        if program is None or program.attempt != order.attempt:
            return
        if program.phase is not Phase.PREPARED:
            self._tell_again(agent, program)
            return
        self.watcher.starts(agent, program, order)
        program.phase = Phase.RUNNING
        name, attempt = program.name, program.attempt
        self.clock.later(self.lag(), lambda: self._started(agent, program))
        if self.habits.joins(name, attempt):
            self.clock.later(self.lag() * 5, lambda: self._join(agent, program))
        if (work := self.habits.work(name, attempt)) is not None:
            self.clock.later(work[0], lambda: self.exit(agent, program, work[1]))

    def _started(self, agent: Agent, program: Program) -> None:
        if agent.held is program and program.phase is Phase.RUNNING:
            self.say(agent, TaskStarted(task=program.task, attempt=program.attempt, pids=(1,)))

    def _join(self, agent: Agent, program: Program) -> None:
        if agent.held is program and program.phase is Phase.RUNNING:
            program.joined = True
            self.joined.add((program.name, program.generation))
            self.say(agent, TaskJoined(task=program.task, attempt=program.attempt))

    def _stop(self, agent: Agent, order: StopTask) -> None:
        program = agent.held
        if agent.following is not None and agent.following.attempt == order.attempt:
            agent.following = None
        if program is None or program.attempt != order.attempt:
            dropped = agent.dropped
            dropped[order.task] = max(dropped.get(order.task, 0), order.attempt)
            self._say_dropped(agent, order.task, order.attempt)
        elif program.over:
            self._tell_again(agent, program)
        else:
            self._stop_program(agent, program, order.grace_s, order.save_s)

    def _stop_program(self, agent: Agent, program: Program, grace_s: float, save_s: float) -> None:
        program.told_to_stop = True
        program.save_limit_s = min(program.save_limit_s, save_s)
        match program.phase:
            case Phase.PREPARING | Phase.PREPARED:
                self._finish(agent, program, Exit(signal=15, stopped=True, detail="not started"))
            case Phase.SAVING:
                self._save_until(agent, program, min(program.save_until, self.clock.now + save_s))
            case Phase.RUNNING if not self.habits.cannot_be_killed(program.name, program.attempt):
                ignores = self.habits.ignores_sigterm(program.name, program.attempt)
                after_s = grace_s if ignores else min(grace_s, self.lag())
                exit = Exit(signal=9 if ignores else 15)
                self.clock.later(after_s, lambda: self.exit(agent, program, exit))
            case _:
                pass

    def exit(self, agent: Agent, program: Program, exit: Exit, late_s: float = 0.0) -> None:
        """The program ends now; the coordinator is told now, or ``late_s`` later."""
        if not agent.alive or agent.held is not program or program.phase is not Phase.RUNNING:
            return
        if program.hung and exit.code == 0:
            return
        exit = msgspec.structs.replace(exit, stopped=program.told_to_stop)
        self.watcher.ends(program, exit)
        save_s = self.habits.save_s(program.name, program.attempt)
        if save_s <= 0 or program.save_limit_s <= 0:
            self._finish(agent, program, exit, late_s)
            return
        program.phase, program.exit = Phase.SAVING, exit
        if save_s > program.save_limit_s:
            program.exit = msgspec.structs.replace(exit, unsaved=("checkpoint: no time left",))
        saving = TaskSaving(
            task=program.task, attempt=program.attempt, exit=exit, limit_s=program.save_limit_s
        )
        self.say(agent, saving)
        program.save_until = self.clock.now + program.save_limit_s
        self._save_until(agent, program, self.clock.now + min(save_s, program.save_limit_s))

    def _save_until(self, agent: Agent, program: Program, when: float) -> None:
        program.save_until = min(program.save_until, max(when, self.clock.now))

        def saved() -> None:
            if agent.alive and agent.held is program and program.phase is Phase.SAVING:
                assert program.exit is not None
                self._finish(agent, program, program.exit)

        self.clock.later(when - self.clock.now, saved)

    def _finish(self, agent: Agent, program: Program, exit: Exit, late_s: float = 0.0) -> None:
        """The attempt is over: what it held is free, its end is told."""
        if exit.stopped is None:
            exit = msgspec.structs.replace(exit, stopped=program.told_to_stop)
        program.phase, program.exit = Phase.EXITED, exit
        self._free(agent, program)
        event = TaskExited(task=program.task, attempt=program.attempt, exit=exit)
        if late_s:
            self.clock.later(late_s, lambda: self.say(agent, event))
        else:
            self.say(agent, event)
        following, agent.following = agent.following, None
        if agent.leaving:
            self._hang_up(agent)
        elif following is not None:
            self._begin(agent, following)

    def _free(self, agent: Agent, program: Program) -> None:
        agent.node.ports.difference_update(program.ports)

    def _tell_again(self, agent: Agent, program: Program) -> None:
        names = {"task": program.task, "attempt": program.attempt}
        if program.phase is Phase.PREPARED:
            self.say(agent, TaskPrepared(**names, host=agent.node.name, ports=program.ports))
        elif program.phase is Phase.RUNNING:
            self.say(agent, TaskStarted(**names, pids=(1,)))
            if program.joined:
                self.say(agent, TaskJoined(**names))
        elif program.phase is Phase.EXITED and program.exit is not None:
            self.say(agent, TaskExited(**names, exit=program.exit))

    def _say_dropped(self, agent: Agent, task: Task, attempt: int) -> None:
        exit = Exit(signal=15, stopped=True, detail="the agent does not hold this attempt")
        self.say(agent, TaskExited(task=task, attempt=attempt, exit=exit))

    def _checkpoint_wanted(self, agent: Agent, order: NotifyCheckpoint) -> None:
        program = agent.held
        if program is None or program.attempt != order.attempt:
            return
        self.notices.append((self.clock.now, program.name, order.reason))
        after_s = self.habits.checkpoint_s(program.name, program.attempt)
        if after_s is not None:
            self.clock.later(after_s, lambda: self.save_checkpoint(agent, program))

    def save_checkpoint(self, agent: Agent, program: Program) -> None:
        if agent.held is program and program.phase is Phase.RUNNING:
            self.checkpoints += 1
            name = f"{self.checkpoints:06d}"
            self.say(agent, CheckpointSaved(task=program.task, attempt=program.attempt, name=name))

    # -- the end of an agent ----------------------------------------------------------------------

    def _leave(self, agent: Agent) -> None:
        """It was told to end: its program first, then it hangs up."""
        if not agent.alive or agent.leaving or agent.deaf:
            return
        agent.leaving = True
        if agent.held is None or agent.held.over:
            self._hang_up(agent)
        else:
            self._stop_program(agent, agent.held, 0.0, 0.0)

    def _hang_up(self, agent: Agent) -> None:
        self._die(agent)
        self.clock.later(self.lag(), lambda: self._take(agent.container_id))

    def _die(self, agent: Agent, word: bool = True) -> None:
        """Agent and program are gone. ``word``: what was sent arrives, and then the connection is
        seen to close; a machine that dies sends neither."""
        if not agent.alive:
            return
        agent.alive = False
        self.agents.pop(agent.container_id, None)
        if agent.held is not None:
            self._free(agent, agent.held)
            agent.held = None
        connection = agent.connection
        if connection is None:
            return
        if not word:
            self._drop(agent, noticed=self.random.random() < 0.5)
            return
        agent.connection = None
        closed = AgentDisconnected(container_id=agent.container_id)

        def arrive() -> None:
            if connection.open:
                connection.open = False
                self._notice(agent, connection, closed)

        at = max(connection.up_at, self.clock.now + self.lag())
        self.clock.later(at - self.clock.now, arrive)

    # -- looking at it ----------------------------------------------------------------------------

    def chance(self, chance: float) -> bool:
        return chance > 0 and self.random.random() < chance

    def running(self) -> Iterator[tuple[Agent, Program]]:
        """What really runs."""
        for agent in self.agents.values():
            if agent.held is not None and agent.held.phase is Phase.RUNNING:
                yield agent, agent.held
