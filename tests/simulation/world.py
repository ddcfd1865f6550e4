"""A simulated cluster under a virtual clock: real machine, pretended everything else.

A `World` runs one job. The coordinator's driver, the backend, the network and the agents with their
programs are small models that may be late, repeat themselves, lose connections or die, by a random
generator whose seed a failing run prints. What the world knows to be true (which programs really
run, how they really ended) is held against what the machine believes.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable

import msgspec

from howdah.core import invariants
from howdah.core.causes import RULES, of_exit
from howdah.core.machine import Machine
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
    CoordinatorStarted,
    DumpStacks,
    Exit,
    FinishJob,
    Held,
    HeldPhase,
    JobSubmitted,
    LaunchAgent,
    NotifyCheckpoint,
    PreemptionNoticed,
    PrepareTask,
    Record,
    ReleaseContainer,
    RequestContainers,
    StacksTaken,
    StartTask,
    StopRequested,
    StopTask,
    Task,
    TaskExited,
    TaskHung,
    TaskJoined,
    TaskPrepared,
    TaskStarted,
    TimerDue,
)
from howdah.core.plan import Plan
from howdah.core.state import JobPhase, Outcome, TaskState
from howdah.spec.model import Tracking


class Truth(AssertionError):
    """The machine did something that the world shows to be wrong."""


class Faults(msgspec.Struct, kw_only=True):
    """Chances per simulated second, and habits of the network."""

    kill: float = 0.0
    crash: float = 0.0
    out_of_memory: float = 0.0
    port_taken: float = 0.0
    agent: float = 0.0
    node: float = 0.0
    preempt: float = 0.0
    partition: float = 0.0
    coordinator: float = 0.0
    hang: float = 0.0
    stop: float = 0.0
    echo: float = 0.0
    """Chance that a peer's own error is heard before the exit that caused it."""
    flaky: float = 0.0
    """Chance that a program fails when its work is done."""
    forget: float = 0.0
    """Chance that an agent that reconnects has lost what it held."""
    repeat: float = 0.0
    """Chance that a message to the coordinator arrives twice."""
    delay_s: float = 0.02
    until_s: float = 120.0
    """Faults end here, so that every job must end."""


class Program:
    """What really runs in a container."""

    def __init__(self, task: Task, attempt: int, generation: int) -> None:
        self.task = task
        self.attempt = attempt
        self.generation = generation
        self.phase = HeldPhase.PREPARED
        self.joined = False
        self.hung = False
        self.told_to_stop = False
        self.exit: Exit | None = None


class Agent:
    """An agent and its container."""

    def __init__(self, container_id: str, node: str, task: Task) -> None:
        self.container_id = container_id
        self.node = node
        self.task = task
        self.alive = True
        self.connected = False
        self.cut = False
        self.held: Program | None = None


class World:
    """One job's whole life. `run` drives it to its end."""

    def __init__(
        self,
        plan: Plan,
        seed: int,
        faults: Faults | None = None,
        *,
        nodes: int = 4,
        work_s: float = 20.0,
        check_every: int = 1,
        stingy: int = 0,
        starved: bool = False,
    ) -> None:
        self.plan = plan
        self.seed = seed
        self.faults = faults or Faults()
        self.random = random.Random(seed)
        self.now = 1000.0
        self.work_s = work_s
        self.check_every = check_every
        self.stingy = stingy  # grants kept back until the job has let go of a part of its gang
        self.nodes = [f"node{n}" for n in range(nodes)]
        self.journal: list[tuple[float, bytes]] = []
        self.machine: Machine | None = None
        self.incarnation = 0
        self.starved = starved  # the first request of the first role is never granted
        self.released: set[str] = set()
        self.containers: dict[str, str] = {}  # what the backend still has: id -> node
        self.granted: set[int] = set()
        self.cancelled: set[int] = set()
        self.agents: dict[str, Agent] = {}
        self.done = False
        self.steps = 0
        self.moves: Counter[tuple[str, str]] = Counter()
        self.truth: dict[Task, tuple[int, Exit | None]] = {}
        self.late_causes: dict[Task, Exit] = {}  # own failures, heard while the gang is ended
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._serial = 0
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(AnyEvent)

    # -- clock ----------------------------------------------------------------------------------

    def later(self, after_s: float, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (self.now + after_s, self._order, action))

    def lag(self) -> float:
        return self.random.expovariate(1 / self.faults.delay_s) if self.faults.delay_s else 0.0

    def run(self, limit_s: float = 100_000.0) -> Machine:
        """Live through the job; returns the machine at the end.

        Raises:
            Truth, InvariantBroken, ImpossibleMove: with the seed in the message.
        """
        try:
            self._start_coordinator()
            self.later(self.random.uniform(0.1, 1.0), self._mischief)
            end = self.now + limit_s
            while not self.done:
                if not self._queue:
                    raise Truth(f"nothing will ever happen again in {self._where()}")
                due, _, action = heapq.heappop(self._queue)
                if due > end:
                    raise Truth(f"not ended after {limit_s:g}s: {self._where()}")
                self.now = max(self.now, due)
                action()
            return self._verify_end()
        except Exception as error:
            error.add_note(f"seed {self.seed}, step {self.steps}, time {self.now:.3f}")
            raise

    def _where(self) -> str:
        if self.machine is None:
            return "a time without coordinator"
        state = self.machine.state
        tasks = {name: data.state.value for name, data in list(state.tasks.items())[:8]}
        return f"phase {state.phase.value}, timers {state.timers}, tasks {tasks}"

    # -- the coordinator ------------------------------------------------------------------------

    def _start_coordinator(self) -> None:
        self.incarnation += 1
        machine = Machine()
        if not self.journal:
            self.machine = machine
            self._tell(JobSubmitted(plan=self.plan, seed=self.seed))
        else:
            for at, line in self.journal:
                machine.handle(self._decoder.decode(line), at)
            self.machine = machine
        self._tell(
            CoordinatorStarted(incarnation=self.incarnation, containers=tuple(self.containers))
        )
        for agent in list(self.agents.values()):
            if agent.alive and not agent.cut:
                self.later(self.lag(), lambda agent=agent: self._connect(agent))

    def _kill_coordinator(self) -> None:
        self.machine = None
        for agent in self.agents.values():
            agent.connected = False
        self.later(0.2 + self.lag(), self._start_coordinator)

    def _tell(self, event: AnyEvent) -> None:
        """One step of the machine, with everything that must hold after it."""
        if self.machine is None or self.done:
            return
        line = self._encoder.encode(event)
        self.journal.append((self.now, line))
        before = {n: d.state for n, d in self.machine.state.tasks.items()} if self._small else {}
        self._note_late_cause(event)
        commands = self.machine.handle(self._decoder.decode(line), self.now)
        self._verify_cause(commands)
        self.steps += 1
        for name, data in self.machine.state.tasks.items() if self._small else ():
            self._note_moves(before.get(name), data.story)
        if self.steps % self.check_every == 0:
            invariants.check(self.machine.state)
        if self.steps % (self.check_every * (50 if self._small else 5000)) == 0:
            self._verify_replay()
        # A coordinator may die with any part of its commands not carried out.
        for number, command in enumerate(commands):
            self._carry_out(command)
            if number < len(commands) - 1 and self._chance(self.faults.coordinator / 200):
                self._kill_coordinator()
                return
        self._wake()

    def _note_late_cause(self, event: AnyEvent) -> None:
        """A program of the gang failed by itself, and is heard of after it was told to stop."""
        assert self.machine is not None
        state = self.machine.state
        if state.phase is not JobPhase.SETTLING or not isinstance(event, TaskExited):
            return
        data, exit = state.tasks[str(event.task)], event.exit
        role = self.plan.role(event.task.role)
        if data.state is not TaskState.STOPPING or data.attempt != event.attempt:
            return
        if role.tracking is Tracking.SIDECAR or role.stage != state.stage:
            return
        if exit.code != 0 and exit.stopped is False:
            self.late_causes[event.task] = exit

    def _verify_cause(self, commands: list[AnyCommand]) -> None:
        """What such a program failed of is no weaker than what its generation is said to."""
        assert self.machine is not None
        state = self.machine.state
        if not self.late_causes or state.phase is JobPhase.SETTLING:
            return
        judged = any(isinstance(c, Record) and c.kind == "generation-ended" for c in commands)
        if state.phase is JobPhase.RESTARTING and not judged:
            raise Truth(f"the gang starts anew without a cause, but saw {self.late_causes}")
        for task, exit in self.late_causes.items() if judged else ():
            cause = state.failures[-1].report
            if RULES[of_exit(exit)].strength > RULES[cause.cause].strength:
                raise Truth(f"{task} ended with {exit}, but the cause is said to be {cause}")
        self.late_causes.clear()

    @property
    def _small(self) -> bool:
        return len(self.plan.roles) and sum(r.maximum for r in self.plan.roles) <= 64

    def _note_moves(self, before: TaskState | None, story: list) -> None:
        if before is None or not story or story[-1].time != self.now:
            return
        for move in story[-3:]:
            if move.time == self.now:
                self.moves[move.before, move.after] += 1

    def _verify_replay(self) -> None:
        assert self.machine is not None
        again = Machine()
        for at, line in self.journal:
            again.handle(self._decoder.decode(line), at)
        live, replayed = map(msgspec.to_builtins, (self.machine.state, again.state))
        if live != replayed:
            different = [key for key in live if live[key] != replayed[key]]
            raise Truth(f"a replay of the journal gives another state: {different}")

    def _wake(self) -> None:
        machine = self.machine
        if machine is None or (due := machine.next_due()) is None:
            return

        def fire() -> None:
            if self.machine is machine and machine.state.timers.get(due[1]) == due[0]:
                self._tell(TimerDue(timer=due[1]))

        self.later(max(0.0, due[0] - self.now), fire)

    def _carry_out(self, command: AnyCommand) -> None:
        match command:
            case RequestContainers():
                for request in command.requests:
                    self.later(
                        0.1 + self.lag(), lambda r=request: self._grant(r.request_id, r.role)
                    )
            case CancelRequests():
                self.cancelled.update(command.request_ids)
            case LaunchAgent():
                self.later(self.lag(), lambda: self._launch(command.container_id, command.task))
            case ReleaseContainer():
                self.released.add(command.container_id)
                self.later(
                    self.lag(),
                    lambda: self._end_container(command.container_id, ContainerEndKind.RELEASED),
                )
            case PrepareTask() | StartTask() | StopTask() | DumpStacks() | NotifyCheckpoint():
                agent = self.agents.get(command.container_id)
                if agent is not None and agent.connected:
                    self.later(self.lag(), lambda: self._agent_hears(agent, command))
            case FinishJob():
                self.done = True
            case Record():
                pass

    # -- the backend ----------------------------------------------------------------------------

    def _grant(self, request_id: int, role: str) -> None:
        if request_id in self.cancelled and self.random.random() < 0.7:
            return
        if request_id in self.granted or (self.starved and role == self.plan.roles[0].name):
            return
        if self.stingy and not self.cancelled and request_id <= self.stingy:
            return
        self.granted.add(request_id)
        self._serial += 1
        container_id = f"container-{self._serial}"
        node = self.random.choice(self.nodes)
        self.containers[container_id] = node
        # Without a coordinator nobody hears of it: the next one must find and return it.
        self._tell(ContainerGranted(request_id=request_id, container_id=container_id, node=node))

    def _launch(self, container_id: str, task: Task) -> None:
        if container_id not in self.containers or container_id in self.agents:
            return
        agent = Agent(container_id, self.containers[container_id], task)
        self.agents[container_id] = agent
        self.later(0.05 + self.lag(), lambda: self._connect(agent))

    def _end_container(
        self, container_id: str, kind: ContainerEndKind, late_s: float = 0.0
    ) -> None:
        agent = self.agents.pop(container_id, None)
        if agent is not None:
            agent.alive = agent.connected = False
            agent.held = None
        if self.containers.pop(container_id, None) is None:
            return
        self.later(
            late_s + self.lag(),
            lambda: self._tell(ContainerEnded(container_id=container_id, kind=kind)),
        )

    # -- agents and programs --------------------------------------------------------------------

    def _connect(self, agent: Agent) -> None:
        if not agent.alive or agent.connected or agent.cut:
            return
        if self.machine is None:
            self.later(0.2 + self.lag(), lambda: self._connect(agent))
            return
        agent.connected = True
        program, held = agent.held, None
        if program is not None and self._chance(self.faults.forget):
            agent.held = program = None
        if program is not None:
            held = Held(
                task=program.task,
                attempt=program.attempt,
                generation=program.generation,
                phase=program.phase,
                host=agent.node,
                ports=(20000,),
                pids=(1,) if program.phase is HeldPhase.RUNNING else (),
                joined=program.joined,
                exit=program.exit,
            )
        self._tell(AgentRegistered(container_id=agent.container_id, host=agent.node, held=held))

    def _say(self, agent: Agent, event: AnyEvent) -> None:
        """An agent's message: in order, perhaps twice; lost if it is cut off (held says it again)."""
        if not agent.connected:
            return
        self._tell(event)
        if self._chance(self.faults.repeat):
            self.later(self.random.uniform(0.0, 3.0), lambda: self._tell(event))

    def _agent_hears(self, agent: Agent, command: AnyCommand) -> None:
        if not agent.alive or not agent.connected:
            return
        match command:
            case PrepareTask():
                self._prepare(agent, command)
            case StartTask():
                self._start(agent, command)
            case StopTask():
                self._stop(agent, command)
            case DumpStacks():
                self.later(
                    self.lag(),
                    lambda: self._say(
                        agent,
                        StacksTaken(task=command.task, attempt=command.attempt, innermost="x.py:1"),
                    ),
                )
            case _:
                pass

    def _prepare(self, agent: Agent, command: PrepareTask) -> None:
        held = agent.held
        if held is not None and held.attempt >= command.attempt:
            if held.attempt > command.attempt or held.phase is not HeldPhase.PREPARED:
                return
        else:
            if held is not None and held.phase is HeldPhase.RUNNING:
                raise Truth(f"{command.task} is prepared anew while attempt {held.attempt} runs")
            agent.held = Program(command.task, command.attempt, command.generation)
        self._say(
            agent,
            TaskPrepared(
                task=command.task, attempt=command.attempt, host=agent.node, ports=(20000,)
            ),
        )

    def _start(self, agent: Agent, command: StartTask) -> None:
        program = agent.held
        if program is None or program.attempt != command.attempt:
            return
        if program.phase is not HeldPhase.PREPARED:
            return
        self._verify_start(program, command)
        program.phase = HeldPhase.RUNNING
        self.truth[program.task] = (program.attempt, None)
        started = TaskStarted(task=program.task, attempt=program.attempt, pids=(1,))
        self.later(self.lag(), lambda: self._say(agent, started))
        self.later(self.lag() * 5, lambda: self._join(agent, program))
        role = self.plan.role(program.task.role)
        if role.tracking is Tracking.TRACKED:
            flaky = self._chance(self.faults.flaky)
            self.later(
                self.work_s * (0.5 + self.random.random()),
                lambda: self._exit(agent, program, Exit(code=3 if flaky else 0)),
            )

    def _verify_start(self, program: Program, command: StartTask) -> None:
        """No program of another attempt or an older generation runs beside it."""
        # Looking at everyone for everyone is too much in a large world: a sample has to do.
        agents = self.agents.values() if self._small or self._chance(0.005) else ()
        for other in agents:
            running = other.held
            if running is None or running is program or running.phase is not HeldPhase.RUNNING:
                continue
            if other.cut and other.container_id in self.released:
                continue  # unreachable and given back: its lease ends it
            if running.task == program.task:
                raise Truth(f"{program.task} runs twice: {running.attempt} and {program.attempt}")
            one, two = (self.plan.role(p.task.role) for p in (program, running))
            if Tracking.SIDECAR in (one.tracking, two.tracking) or one.stage != two.stage:
                continue
            if running.generation != program.generation:
                raise Truth(
                    f"{program.task} of generation {program.generation} starts while "
                    f"{running.task} of generation {running.generation} runs"
                )
        member = command.topology.member(program.task)
        if member.attempt != program.attempt:
            raise Truth(f"{program.task} is started with the topology of attempt {member.attempt}")
        ranks = [m.rank for m in command.topology.members if agents and m.rank is not None]
        if len(ranks) != len(set(ranks)):
            raise Truth(f"two members share a rank: {sorted(ranks)}")

    def _join(self, agent: Agent, program: Program) -> None:
        if agent.held is program and program.phase is HeldPhase.RUNNING:
            program.joined = True
            self._say(agent, TaskJoined(task=program.task, attempt=program.attempt))

    def _exit(
        self, agent: Agent, program: Program, exit: Exit, late_s: float | None = None
    ) -> None:
        """The program ends now; it is told now, or later."""
        if not agent.alive or agent.held is not program or program.phase is HeldPhase.EXITED:
            return
        if program.hung and exit.code == 0:
            return
        exit = msgspec.structs.replace(exit, stopped=program.told_to_stop)
        program.phase, program.exit = HeldPhase.EXITED, exit
        self.truth[program.task] = (program.attempt, exit)
        event = TaskExited(task=program.task, attempt=program.attempt, exit=exit)
        if late_s is None:
            self._say(agent, event)
        else:
            self.later(late_s, lambda: self._say(agent, event))

    def _stop(self, agent: Agent, command: StopTask) -> None:
        program = agent.held
        if program is None or program.attempt < command.attempt:
            # Never heard of it: its preparation was lost on the way.
            agent.held = program = Program(command.task, command.attempt, 0)
        if program.attempt != command.attempt:
            return
        if program.phase is HeldPhase.EXITED and program.exit is not None:
            self._say(
                agent,
                TaskExited(task=program.task, attempt=program.attempt, exit=program.exit),
            )
            return
        program.told_to_stop = True
        ignores = self.random.random() < 0.3
        after = command.grace_s if ignores else min(command.grace_s, self.lag())
        exit = Exit(signal=9 if ignores else 15)
        self.later(after, lambda: self._exit(agent, program, exit))

    # -- mischief -------------------------------------------------------------------------------

    def _chance(self, chance: float) -> bool:
        return chance > 0 and self.random.random() < chance

    def _some_running(self) -> tuple[Agent, Program] | None:
        running = [
            (agent, agent.held)
            for agent in self.agents.values()
            if agent.held is not None and agent.held.phase is HeldPhase.RUNNING
        ]
        return self.random.choice(running) if running else None

    def _mischief(self) -> None:
        if self.done:
            return
        faults = self.faults
        if self.now - 1000.0 > faults.until_s:
            return
        self.later(self.random.expovariate(1.0), self._mischief)
        if self._chance(faults.coordinator) and self.machine is not None:
            self._kill_coordinator()
        for chance, exit in (
            (faults.kill, Exit(signal=9)),
            (faults.crash, Exit(code=1, tail=("Error",))),
            (faults.out_of_memory, Exit(signal=9, out_of_memory=True)),
            (faults.port_taken, Exit(code=1, port_taken=True)),
        ):
            if self._chance(chance) and (victim := self._some_running()):
                self._fail(*victim, exit)
        if self._chance(faults.hang) and (victim := self._some_running()):
            agent, program = victim
            program.hung = True
            self.later(5.0, lambda: self._report_hang(agent, program))
        if self._chance(faults.agent) and self.agents:
            self._end_container(self.random.choice(list(self.agents)), ContainerEndKind.EXITED)
        if self._chance(faults.agent) and (victim := self._some_running()):
            self._take_back(*victim)
        if self._chance(faults.node):
            self._lose_node(self.random.choice(self.nodes))
        if self._chance(faults.partition) and self.agents:
            agent = self.random.choice(list(self.agents.values()))
            agent.cut, agent.connected = True, False
            self._tell(AgentDisconnected(container_id=agent.container_id))
            if self.random.random() < 0.7:
                self.later(self.random.uniform(0.5, 12.0), lambda: self._heal(agent))
        if self._chance(faults.preempt) and self.containers:
            container_id = self.random.choice(list(self.containers))
            self._tell(PreemptionNoticed(container_id=container_id, deadline_s=3.0))
            self.later(3.0, lambda: self._end_container(container_id, ContainerEndKind.PREEMPTED))
        if self._chance(0.3) and (victim := self._some_running()):
            task, attempt = victim[1].task, victim[1].attempt
            self._say(
                victim[0], CheckpointSaved(task=task, attempt=attempt, name=f"{self.steps:06d}")
            )
        if self._chance(faults.stop):
            self._tell(StopRequested(by="a user", firm=self.random.random() < 0.3))

    def _take_back(self, agent: Agent, program: Program) -> None:
        """The agent is told to end by who runs containers, ends its program, and goes. A program may
        well take that as a reason to end with exit code 0."""
        program.told_to_stop = True
        self._exit(agent, program, Exit(code=0) if self.random.random() < 0.5 else Exit(signal=15))
        kind = self.random.choice(
            [ContainerEndKind.EXITED, ContainerEndKind.PREEMPTED, ContainerEndKind.OUT_OF_MEMORY]
        )
        late_s = self.random.uniform(0, 2)
        self.later(self.lag(), lambda: self._end_container(agent.container_id, kind, late_s=late_s))

    def _fail(self, agent: Agent, program: Program, exit: Exit) -> None:
        """A program fails by itself; a peer may fail of that, and be heard of first."""
        echoes = self._chance(self.faults.echo)
        self._exit(agent, program, exit, late_s=self.random.uniform(0, 0.5) if echoes else None)
        if echoes and (peer := self._some_running()):
            self._exit(*peer, Exit(code=1, tail=("ConnectionResetError",)))

    def _report_hang(self, agent: Agent, program: Program) -> None:
        if agent.held is program and program.phase is HeldPhase.RUNNING:
            self._tell(TaskHung(task=program.task, attempt=program.attempt, idle_s=5.0))
            self.later(30.0, lambda: self._report_hang(agent, program))

    def _heal(self, agent: Agent) -> None:
        agent.cut = False
        self._connect(agent)

    def _lose_node(self, node: str) -> None:
        """Its echoes come first: silence, peers' errors; the backend notices last."""
        for container_id, where in list(self.containers.items()):
            if where != node:
                continue
            agent = self.agents.get(container_id)
            if agent is not None:
                agent.alive = agent.connected = False
                if self.random.random() < 0.5:
                    self._tell(AgentSilent(container_id=container_id, silent_s=10.0))
                else:
                    self._tell(AgentDisconnected(container_id=container_id))
            self._end_container(
                container_id, ContainerEndKind.NODE_LOST, late_s=self.random.uniform(0, 3)
            )

    # -- the end --------------------------------------------------------------------------------

    def _verify_end(self) -> Machine:
        assert self.machine is not None
        state = self.machine.state
        invariants.check(state)
        self._verify_replay()
        if state.phase is not JobPhase.FINISHED:
            raise Truth(f"FinishJob in phase {state.phase.value}")
        kept = [c for c in self.containers if c not in state.containers]
        if self.containers:
            raise Truth(f"containers never given back: {kept}")
        for role in self.plan.roles:
            beside = role.tracking is Tracking.SIDECAR
            if beside and state.outcome is Outcome.FAILED and state.reason.startswith(role.name):
                raise Truth(f"a sidecar decided the job: {state.reason}")
        if state.outcome is Outcome.SUCCEEDED:
            for role in self.plan.roles:
                if role.tracking is not Tracking.TRACKED or self.plan.completion.value == "chief":
                    continue
                ends = [self.truth.get(Task(role.name, i)) for i in range(role.maximum)]
                clean = sum(
                    end is not None
                    and end[1] is not None
                    and end[1].code == 0
                    and not end[1].stopped
                    for end in ends
                )
                if clean < role.minimum:
                    raise Truth(f"succeeded, but the tasks of {role.name} ended with {ends}")
        return self.machine
