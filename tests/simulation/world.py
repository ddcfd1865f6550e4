"""A simulated job under a virtual clock: the real machine, pretended everything else.

A `World` is the coordinator of one job: it feeds the machine what the pretended cluster
(`tests.simulation.cluster`) reports, has its commands carried out, may die and be followed by
another, which replays the journal. What really happens is held against what must never happen
(`Truth`), after every step.

Scenarios drive it from point to point (`until`, `sleep`) and do harm in between; `run` lives through
the rest and returns the state at the end.
"""

from __future__ import annotations

import pickle
import random
import sys
import time
from collections import Counter
from collections.abc import Callable

import msgspec

from howdah.core.causes import RULES, FailureCause, of_exit
from howdah.core.machine import Machine
from howdah.core.messages import (
    AnyCommand,
    AnyEvent,
    CheckpointSaved,
    ContainerEndKind,
    CoordinatorStarted,
    Exit,
    FinishJob,
    JobSubmitted,
    Member,
    PreemptionNoticed,
    PrepareTask,
    Record,
    StartTask,
    StopRequested,
    Task,
    TaskExited,
    TaskHung,
    TimePassed,
    Topology,
)
from howdah.core.plan import Completion, Plan, RolePlan
from howdah.core.state import JobPhase, JobState, Outcome, TaskState
from howdah.spec.model import Mode, Tracking
from tests import invariants
from tests.simulation.clock import Clock
from tests.simulation.cluster import Agent, Cluster, Habits, Phase, Program


class Truth(AssertionError):
    """The machine did something that the world shows to be wrong."""


SPIN = 1000
"""Steps without any time between them that only time caused: the machine goes round in circles."""


class World:
    """One job's whole life."""

    def __init__(
        self,
        plan: Plan,
        seed: int = 1,
        habits: Habits | None = None,
        *,
        nodes: int = 4,
        check_every: int = 1,
        count_work: bool = False,
        waited_s: float = 0.0,
    ) -> None:
        self.plan = plan
        self.waited_s = waited_s
        self.seed = seed
        self.random = random.Random(seed)
        self.habits = habits or Habits()
        self.clock = Clock()
        self.cluster = Cluster(self.clock, self.random, self.habits, self, self, nodes)
        self.machine: Machine | None = None
        self.life = 0
        self.done = False
        self.steps = 0
        self.moves: Counter[tuple[str, str]] = Counter()
        self.commands: Counter[str] = Counter()
        self.records: list[Record] = []
        self.prepared: list[PrepareTask] = []
        self.handle_s = 0.0
        """Seconds that the machine took: for figures, never for a verdict. Of the wall clock, which
        costs nothing to ask; a thread's own takes a system call."""
        self.work = 0
        """Calls the machine made, counted if asked for."""
        self.coordinator_dies: float = 0.0
        """Chance that the coordinator dies between two commands."""
        self.endings: dict[str, tuple[int, Exit]] = {}
        """How the newest attempt of each task that has run really ended."""
        self._check_every = check_every
        self._count_work = count_work
        self._journal: list[tuple[float, str, bytes]] = []
        self._replayed: tuple[int, bytes] = (0, pickle.dumps(Machine()))
        """How much of the journal the newest successor has read, and the machine that gave."""
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(AnyEvent)
        self._replay_at = 20 * check_every
        self._due: float | None = None
        self._spinning = 0
        self._late_causes: dict[Task, Exit] = {}
        self._judged: object = None
        """The newest failure of the gang."""
        self._ranks: dict[tuple[int, int, str], tuple[int | None, int]] = {}
        self._places: tuple[Topology | None, dict[Task, Member]] = (None, {})
        """Of the topology that was looked at last."""
        self._stop_asked = False
        self._small = sum(role.maximum for role in plan.roles) <= 64

    # -- driving it -------------------------------------------------------------------------------

    def run(self, limit_s: float = 100_000.0) -> JobState:
        """Live through the rest of the job; returns the state at the end.

        Raises:
            Truth, InvariantBroken, ImpossibleMove: with the seed in a note.
        """
        self.until(lambda: self.done, limit_s)
        self._verify_end()
        return self.state

    def until(self, holds: Callable[[], object], limit_s: float = 1000.0) -> None:
        """Live until something is so.

        Raises:
            Truth: it did not become so in time, or never will.
        """
        end = self.now + limit_s
        try:
            if self.life == 0:
                self.start_coordinator()
            while not holds():
                due = self._next()
                if due is None:
                    raise Truth(f"nothing will ever happen again: {self.where()}")
                if due > end:
                    raise Truth(f"not so after {limit_s:g}s: {self.where()}")
                if self.done:
                    raise Truth(f"the job has ended before: {self.where()}")
                self._step()
        except Exception as error:
            error.add_note(f"seed {self.seed}, step {self.steps}, time {self.now:.3f}")
            raise

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        over: list[bool] = []
        self.clock.later(seconds, lambda: over.append(True))
        self.until(lambda: over or self.done, seconds + 1.0)

    def _next(self) -> float | None:
        head = self.clock.next()
        if self._due is None or head is None:
            return self._due if head is None else head
        return min(self._due, head)

    def _step(self) -> None:
        head = self.clock.next()
        if self._due is None or (head is not None and head < self._due):
            self._spinning = 0
            self.clock.act()
            return
        assert self.machine is not None
        self._spinning = self._spinning + 1 if self._due <= self.now else 0
        if self._spinning > SPIN:
            raise Truth(f"time has come, and nothing moves: {self.where()}")
        self.clock.advance(self._due)
        self.tell(TimePassed())

    # -- the coordinator --------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.clock.now

    @property
    def state(self) -> JobState:
        assert self.machine is not None, "no coordinator lives"
        return self.machine.state

    @property
    def alive(self) -> bool:
        return self.machine is not None

    def holds(self, container_id: str) -> bool:
        return self.machine is not None and container_id in self.machine.state.containers

    def wants(self, request_id: int) -> Task | None:
        return None if self.machine is None else self.machine.state.requests.get(request_id)

    def start_coordinator(self) -> None:
        """The first one, or one that takes over."""
        self.life += 1
        if self._journal:
            self.machine = self._take_over()
        else:
            self.machine = Machine()
            self.tell(JobSubmitted(plan=self.plan, seed=self.seed, waited_s=self.waited_s))
        self.tell(
            CoordinatorStarted(
                incarnation=self.life,
                containers=self.cluster.named(),
                others_ended=self.cluster.all_ends_proven,
            )
        )
        self.cluster.call_all()

    def kill_coordinator(self, away_s: float = 0.2) -> None:
        if self.machine is None:
            return
        self.machine, self._due = None, None
        self.cluster.hang_up_all()
        self.clock.later(away_s, self.start_coordinator)

    def tell(self, event: AnyEvent) -> None:
        """One step of the machine, with everything that must hold after it."""
        machine = self.machine
        if machine is None or self.done:
            return
        line = self._encoder.encode(event)
        cause = f"{type(event).__name__}#{len(self._journal)}"
        self._journal.append((self.now, cause, line))
        before = {n: d.state for n, d in machine.state.tasks.items()} if self._small else {}
        stored = machine.state.checkpoint
        self._note_late_cause(event)
        commands = self._handle(machine, self._decoder.decode(line), cause)
        self.steps += 1
        self._verify_cause()
        self._verify_checkpoint(event, stored)
        for name, state in before.items():
            self._note_moves(state, name)
        if self.steps % self._check_every == 0:
            invariants.check(machine.state, self.now)
            invariants.settled(machine, self.now)
        if self.steps >= self._replay_at:
            self._replay_at = self.steps * 2  # so that a long story costs no more than twice
            self.verify_replay()
        # Records are in the journal with their event. Of the other commands a coordinator may die with
        # any part not carried out.
        self.records += [command for command in commands if isinstance(command, Record)]
        for number, command in enumerate(commands):
            self._carry_out(command)
            if number < len(commands) - 1 and self.cluster.chance(self.coordinator_dies / 200):
                self.kill_coordinator(0.2 + self.cluster.lag())
                return

    def _handle(self, machine: Machine, event: AnyEvent, cause: str) -> list[AnyCommand]:
        began = time.perf_counter()
        if self._count_work:
            sys.setprofile(self._count)
        try:
            commands = machine.handle(event, self.now, cause)
            self._due = machine.next_due()
        finally:
            if self._count_work:
                sys.setprofile(None)
        self.handle_s += time.perf_counter() - began
        if any(command.cause != cause for command in commands):
            raise Truth(f"of {cause} follows what does not say so: {commands}")
        return commands

    def _count(self, frame: object, kind: str, argument: object) -> None:
        if kind in ("call", "c_call"):
            self.work += 1

    def _carry_out(self, command: AnyCommand) -> None:
        self.commands[type(command).__name__] += 1
        match command:
            case FinishJob():
                self.done = True
            case Record():
                pass
            case PrepareTask():
                self.prepared.append(command)
                self.cluster.carry_out(command)
            case _:
                self.cluster.carry_out(command)

    def _take_over(self) -> Machine:
        """What a successor reads, from where the one before it began: `verify_replay` reads all."""
        lines, kept = self._replayed
        machine: Machine = pickle.loads(kept)
        self._read(machine, lines)
        self._replayed = len(self._journal), pickle.dumps(machine)
        return machine

    def _read(self, machine: Machine, begin: int = 0) -> None:
        for at, cause, line in self._journal[begin:]:
            machine.handle(self._decoder.decode(line), at, cause)

    def where(self) -> str:
        """What an error says of the present."""
        if self.machine is None:
            return "no coordinator lives"
        state = self.state
        tasks = {
            name: f"{data.state.value}#{data.attempt}"
            for name, data in list(state.tasks.items())[:12]
        }
        return (
            f"phase {state.phase.value}, outcome {state.outcome} ({state.reason}), machine: {tasks}; "
            f"really running: {[p for _, p in self.cluster.running()][:12]}; next due {self._due}"
        )

    # -- what scenarios ask and do ----------------------------------------------------------------

    def program(self, name: str) -> tuple[Agent, Program] | None:
        """What really runs of a task; of two (a defect), the newer."""
        found = [(a, p) for a, p in self.cluster.running() if p.name == name]
        return max(found, key=lambda each: each[1].attempt, default=None)

    def runs(self, *names: str) -> bool:
        """All of them really run, in the machine's belief too."""
        for name in names:
            found = self.program(name)
            if found is None or self.state.tasks[name].state is not TaskState.RUNNING:
                return False
            if found[1].attempt != self.state.tasks[name].attempt:
                return False
        return True

    def attempt(self, name: str) -> int:
        return self.state.tasks[name].attempt

    def kinds(self) -> list[str]:
        """Kinds of all records so far."""
        return [record.kind for record in self.records]

    def fail(self, name: str, exit: Exit | None = None, *, late_s: float = 0.0) -> None:
        """A running program ends by itself: with code 1, or as said."""
        agent, program = self._running(name)
        self.cluster.exit(agent, program, exit or Exit(code=1, tail=("Error",)), late_s)

    def succeed(self, *names: str) -> None:
        for name in names:
            self.fail(name, Exit(code=0))

    def lose(self, name: str, kind: ContainerEndKind = ContainerEndKind.EXITED) -> None:
        """A task's container ends, whatever it is doing."""
        self.cluster.end_container(self.agent(name).container_id, kind)

    def preempt(self, name: str) -> None:
        container_id = self.agent(name).container_id
        self.tell(PreemptionNoticed(container_id=container_id, deadline_s=3.0))
        self.clock.later(
            3.0, lambda: self.cluster.end_container(container_id, ContainerEndKind.PREEMPTED)
        )

    def hang(self, name: str) -> None:
        """A running program makes no progress any more, and that is noticed."""
        agent, program = self._running(name)
        program.hung = True
        self.report_hang(agent, program)

    def report_hang(self, agent: Agent, program: Program) -> None:
        if agent.held is program and program.phase is Phase.RUNNING:
            self.tell(TaskHung(task=program.task, attempt=program.attempt, idle_s=5.0))
            self.clock.later(30.0, lambda: self.report_hang(agent, program))

    def save(self, name: str) -> None:
        """A running program saves a checkpoint."""
        self.cluster.save_checkpoint(*self._running(name))

    def stop(self, *, firm: bool = False) -> None:
        self._stop_asked = True
        self.tell(StopRequested(by="a user", firm=firm))

    def agent(self, name: str) -> Agent:
        """The agent in the task's present container."""
        container_id = self.state.tasks[name].container_id
        assert container_id is not None, f"{name} has no container"
        return self.cluster.agents[container_id]

    def _running(self, name: str) -> tuple[Agent, Program]:
        found = self.program(name)
        assert found is not None, f"{name} does not run: {self.where()}"
        return found

    # -- what must never happen -------------------------------------------------------------------

    def starts(self, agent: Agent, program: Program, order: StartTask) -> None:
        """No program of another attempt or an older generation runs beside one that starts, and it
        is told the truth about itself and its peers."""
        role = self.plan.role(program.task.role)
        others = self.cluster.running() if self._small or self.cluster.chance(0.005) else ()
        member = self._member(order.topology, program.task)
        if member.attempt != program.attempt:
            raise Truth(f"{program} is started with the topology of attempt {member.attempt}")
        if (member.host, member.ports) != (agent.node.name, program.ports):
            raise Truth(
                f"{program} is at {agent.node.name}:{program.ports}, but its peers are told "
                f"{member.host}:{member.ports}"
            )
        places = self._places[1]
        for where, other in others:
            if other is program:
                continue
            if other.task == program.task:
                raise Truth(f"{program.task} runs twice: {other} and {program}")
            if self.plan.mode is Mode.EACH:
                continue
            if not (self._of_gang(program.task) and self._of_gang(other.task)):
                continue
            if other.generation != program.generation:
                raise Truth(f"{program} starts while {other} runs")
            place = places.get(other.task)
            if place is None or place.attempt != other.attempt or not place.ports:
                continue  # it was not known yet
            if (place.host, place.ports) != (where.node.name, other.ports):
                raise Truth(f"{program} is told a wrong address of {other}: {place}")
        self._verify_order(program, role)
        self._verify_ranks(program, order, role)
        self.endings.pop(program.name, None)

    def _member(self, topology: Topology, task: Task) -> Member:
        if topology.own is not None and topology.own.task == task:
            return topology.own
        if self._places[0] is not topology:
            self._places = topology, {member.task: member for member in topology.members}
        return self._places[1][task]

    def _of_gang(self, task: Task) -> bool:
        role = self.plan.role(task.role)
        return role.tracking is not Tracking.SIDECAR and role.stage == self.state.stage

    def _verify_order(self, program: Program, role: RolePlan) -> None:
        """What it comes after has joined, or has succeeded."""
        for name in role.after:
            for index in range(self.plan.role(name).minimum):
                before = f"{name}:{index}"
                end = self.endings.get(before)
                joined = (before, program.generation) in self.cluster.joined
                first = self.plan.role(name).tolerated_from
                given_up = first is not None and index >= first and self.state.tasks[before].retired
                if not joined and not given_up and (end is None or end[1].code != 0):
                    raise Truth(f"{program} starts before {before} has joined: {self.where()}")

    def _verify_ranks(self, program: Program, order: StartTask, role: RolePlan) -> None:
        topology = order.topology
        if self._small:
            ranks = [m.rank for m in topology.members if m.rank is not None]
            if len(ranks) != len(set(ranks)):
                raise Truth(f"two members share a rank: {sorted(ranks)}")
        if role.tracking is Tracking.SIDECAR or role.stage != self.state.stage:
            return
        if self.plan.mode is Mode.EACH:
            world = sum(
                r.maximum * r.processes
                for r in self.plan.roles
                if r.ranked and r.stage == role.stage and r.tracking is not Tracking.SIDECAR
            )
            if topology.world_size != world:
                raise Truth(f"{program} is told of a world of {topology.world_size}, not {world}")
        key = (role.stage, program.generation, program.name)
        place = (self._member(topology, program.task).rank, topology.world_size)
        if self._ranks.setdefault(key, place) != place:
            raise Truth(f"{program} was {self._ranks[key]} of its generation, and is now {place}")

    def ends(self, program: Program, exit: Exit) -> None:
        newest, _ = self.endings.get(program.name, (0, None))
        if program.attempt >= newest:
            self.endings[program.name] = (program.attempt, exit)

    def releases(self, agent: Agent) -> None:
        """What is known to save is given the time it was promised."""
        program = agent.held
        if program is None or program.phase is not Phase.SAVING or not program.saving_is_known:
            return
        if agent.container_id not in self.cluster.containers:
            return  # the backend has given it up
        if self.now < program.save_until and not self.state.firm:
            left_s = program.save_until - self.now
            raise Truth(f"the container of {program} is taken {left_s:.0f}s before it has saved")

    def _note_late_cause(self, event: AnyEvent) -> None:
        """A program of the gang failed by itself, and is heard of after it was told to stop."""
        state = self.state
        if state.phase is not JobPhase.FAILURE_WINDOW or not isinstance(event, TaskExited):
            return
        data, exit = state.tasks[str(event.task)], event.exit
        if data.state is not TaskState.STOPPING or data.attempt != event.attempt:
            return
        if not self._of_gang(event.task) or (data.reported and not exit.out_of_memory):
            return
        if exit.code != 0 and exit.stopped is False:
            self._late_causes[event.task] = exit

    def _verify_cause(self) -> None:
        """What such a program failed of is no weaker than what its generation is said to."""
        state = self.state
        of_gang = (f.report for f in reversed(state.failures) if self._of_gang(f.report.task))
        cause = next(of_gang, None)
        key = cause and (cause.task, cause.attempt, cause.cause, cause.time)
        judged, self._judged = cause is not None and key != self._judged, key
        if not self._late_causes or state.phase is JobPhase.FAILURE_WINDOW:
            return
        if state.phase is JobPhase.RESTARTING and not judged:
            raise Truth(f"the gang restarts without a cause, but saw {self._late_causes}")
        for task, exit in self._late_causes.items() if judged else ():
            assert cause is not None
            if RULES[of_exit(exit)].strength > RULES[cause.cause].strength:
                raise Truth(f"{task} ended with {exit}, but the cause is said to be {cause}")
        self._late_causes.clear()

    def _verify_checkpoint(self, event: AnyEvent, before: str | None) -> None:
        """What an older attempt saved late never takes the place of a newer one's checkpoint."""
        if isinstance(event, CheckpointSaved) and self.state.checkpoint != before:
            data = self.state.tasks[str(event.task)]
            if event.attempt < data.attempt:
                raise Truth(f"attempt {event.attempt} of {data.attempt} saved {event.name} late")

    def _note_moves(self, before: TaskState, name: str) -> None:
        story = self.state.tasks[name].moves
        if not story or story[-1].time != self.now:
            return
        for move in story[-3:]:
            if move.time == self.now:
                self.moves[move.before, move.after] += 1

    def verify_replay(self) -> None:
        assert self.machine is not None
        machine = Machine()
        self._read(machine)
        if machine.state == self.machine.state:
            return
        live, again = map(msgspec.to_builtins, (self.machine.state, machine.state))
        if different := [key for key in live if live[key] != again[key]]:
            raise Truth(f"a replay of the journal gives another state: {different}")

    def verify_all_run(self, *, sidecars: bool = True) -> None:
        """Long after the last trouble everything that should run does run."""
        state = self.state
        if state.outcome is not None:
            return
        if state.phase is not JobPhase.RUNNING:
            raise Truth(f"the job has not come back from its troubles: {self.where()}")
        for role in self.plan.roles:
            tracked = role.tracking is Tracking.TRACKED
            if role.stage > state.stage or (role.stage < state.stage and tracked):
                continue
            if role.tracking is Tracking.SIDECAR and not sidecars:
                continue
            for index in range(role.maximum):
                name = f"{role.name}:{index}"
                if not self.runs(name) and not self._may_be_absent(role, name, index):
                    raise Truth(f"{name} does not run: {self.where()}")

    def _may_be_absent(self, role: RolePlan, name: str, index: int) -> bool:
        if self.state.tasks[name].retired or index >= role.minimum:
            return True
        end = self.endings.get(name)
        if role.tracking is not Tracking.TRACKED or end is None:
            return False
        return end[1].code == 0 and not end[1].stopped

    def _verify_end(self) -> None:
        assert self.machine is not None
        state = self.state
        invariants.check(state, self.now)
        self.verify_replay()
        if state.phase is not JobPhase.FINISHED:
            raise Truth(f"FinishJob in phase {state.phase.value}")
        unknown = self.cluster.released | self.cluster.unnamed  # those end with the application
        if kept := sorted(set(self.cluster.containers) - unknown):
            raise Truth(f"containers never given back: {kept[:8]}")
        if sum(record.kind == "finishing" for record in self.records) != 1:
            raise Truth(f"the outcome was recorded otherwise than once: {self.kinds()}")
        if state.outcome is Outcome.STOPPED and not self._stop_asked:
            raise Truth("stopped, but nobody had asked for that")
        if state.outcome is Outcome.FAILED and state.failures:
            self._verify_culprit(state)
        if state.outcome is Outcome.SUCCEEDED and self.plan.completion is Completion.ALL:
            self._verify_success(state)

    def _verify_culprit(self, state: JobState) -> None:
        """Optional tasks never end a job: a sidecar by nothing, one above the elastic minimum not by
        the loss of its container."""
        report = state.failures[-1].report
        role = self.plan.role(report.task.role)
        if not state.reason.startswith((report.what, str(report.task))):
            return
        if role.tracking is Tracking.SIDECAR:
            raise Truth(f"a sidecar decided the job: {state.reason}")
        surplus = report.task.index >= role.minimum
        if surplus and report.cause in (FailureCause.LAUNCH_FAILED, FailureCause.PREEMPTED):
            raise Truth(f"a task above the minimum decided the job: {state.reason}")

    def _verify_success(self, state: JobState) -> None:
        for role in self.plan.roles:
            if role.tracking is not Tracking.TRACKED or role.name in state.released:
                continue
            ends = [self.endings.get(f"{role.name}:{index}") for index in range(role.maximum)]
            clean = [e is not None and e[1].code == 0 and not e[1].stopped for e in ends]
            needed = role.minimum
            if role.tolerated_from is not None:
                needed = min(needed, role.tolerated_from)
                clean = clean[:needed]
            if sum(clean) < needed:
                raise Truth(f"succeeded, but the tasks of {role.name} ended with {ends[:8]}")
