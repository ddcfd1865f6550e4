"""The machine under arbitrary events, also such as no sane world would send."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from howdah.core.machine import Machine
from howdah.core.messages import (
    AgentDisconnected,
    AgentRegistered,
    AgentSilent,
    AnyCommand,
    AnyEvent,
    CheckpointSaved,
    ContainerEnded,
    ContainerEndKind,
    ContainerGranted,
    CoordinatorStarted,
    Exit,
    Held,
    HeldPhase,
    JobSubmitted,
    PreemptionNoticed,
    RequestContainers,
    RequestRefused,
    StacksTaken,
    StopRequested,
    Task,
    TaskExited,
    TaskHung,
    TaskJoined,
    TaskPrepared,
    TaskSaving,
    TaskStarted,
    TimePassed,
)
from howdah.core.plan import Completion, Join, Plan, RolePlan
from howdah.spec.model import Mode, Restart, Tracking
from tests import invariants

TASKS = st.sampled_from(
    [Task("worker", 0), Task("worker", 1), Task("worker", 2), Task("ps", 0), Task("board", 0)]
)
LAG = st.integers(-1, 1)
EXITS = st.builds(
    Exit,
    code=st.sampled_from([None, 0, 0, 1, 42, 127]),
    signal=st.sampled_from([None, 9, 15, 6]),
    out_of_memory=st.booleans(),
    port_taken=st.booleans(),
    failed_to_start=st.sampled_from(["", "", "no such file"]),
    transient=st.booleans(),
    stopped=st.sampled_from([None, False, True]),
)


def _plan(draw: st.DataObject) -> Plan:
    restart = st.sampled_from(Restart)
    return Plan(
        job_id="job",
        mode=draw.draw(st.sampled_from(Mode)),
        completion=draw.draw(st.sampled_from(Completion)),
        total_s=draw.draw(st.sampled_from([None, 50.0])),
        allocation_s=draw.draw(st.sampled_from([None, 20.0])),
        roles=(
            RolePlan(
                name="ps",
                minimum=1,
                maximum=1,
                tracking=Tracking.UNTRACKED,
                restart=draw.draw(restart),
                ranked=False,
                stop_on_failure=draw.draw(st.booleans()),
            ),
            RolePlan(
                name="worker",
                minimum=draw.draw(st.integers(1, 3)),
                maximum=3,
                chief=True,
                after=draw.draw(st.sampled_from([(), ("ps",)])),
                restart=draw.draw(restart),
                sticky_ports=draw.draw(st.booleans()),
                attempts=draw.draw(st.integers(1, 3)),
                stage=draw.draw(st.integers(0, 1)),
            ),
            RolePlan(
                name="board",
                minimum=1,
                maximum=1,
                tracking=Tracking.SIDECAR,
                restart=draw.draw(restart),
                ranked=False,
                join=Join.NOW,
            ),
        ),
    )


class AnyWorld(RuleBasedStateMachine):
    """Feeds events; after each, everything that must hold is held against the state."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()
        self.journal: list[tuple[float, bytes]] = []
        self.now = 0.0
        self.requests: list[int] = []
        self.containers: list[str] = []

    def tell(self, event: AnyEvent, after_s: float = 0.25) -> None:
        self.now += after_s
        line = msgspec.json.encode(event)
        self.journal.append((self.now, line))
        cause = f"{type(event).__name__}#{len(self.journal)}"
        commands: list[AnyCommand] = self.machine.handle(event, self.now, cause)
        for command in commands:
            assert command.cause == cause
            if isinstance(command, RequestContainers):
                self.requests += [request.request_id for request in command.requests]

    def some_container(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from([*self.containers, "never-granted"]))

    def attempt(self, task: Task, lag: int) -> int:
        known = self.machine.state.tasks.get(str(task))
        return max(0, (known.attempt if known else 0) + lag)

    @precondition(lambda self: not self.journal)
    @rule(data=st.data())
    def submit(self, data: st.DataObject) -> None:
        self.tell(JobSubmitted(plan=_plan(data), seed=1))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def grant(self, data: st.DataObject) -> None:
        number = len(self.containers)
        self.containers.append(f"c{number}")
        request = data.draw(st.sampled_from(self.requests))
        self.tell(ContainerGranted(request_id=request, container_id=f"c{number}", node="n"))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.requests))
        if data.draw(st.integers(0, 9)) == 0:
            self.tell(RequestRefused(request_id=request, reason="too large"))

    @precondition(lambda self: self.journal)
    @rule(data=st.data())
    def register(self, data: st.DataObject) -> None:
        held = None
        if data.draw(st.booleans()):
            task = data.draw(TASKS)
            held = Held(
                task=task,
                attempt=self.attempt(task, data.draw(LAG)),
                generation=1,
                phase=data.draw(st.sampled_from(HeldPhase)),
                joined=data.draw(st.booleans()),
                exit=data.draw(st.none() | EXITS),
                save_s=data.draw(st.sampled_from([0.0, 30.0])),
            )
        self.tell(AgentRegistered(container_id=self.some_container(data), host="h", held=held))

    @precondition(lambda self: self.journal)
    @rule(data=st.data(), kind=st.sampled_from(ContainerEndKind), proven=st.booleans())
    def end_container(self, data: st.DataObject, kind: ContainerEndKind, proven: bool) -> None:
        container_id = self.some_container(data)
        self.tell(ContainerEnded(container_id=container_id, kind=kind, proven=proven))

    @precondition(lambda self: self.journal)
    @rule(data=st.data())
    def lose_connection(self, data: st.DataObject) -> None:
        container_id = self.some_container(data)
        self.tell(
            data.draw(
                st.sampled_from(
                    [
                        AgentDisconnected(container_id=container_id),
                        AgentSilent(container_id=container_id, silent_s=9.0),
                        PreemptionNoticed(container_id=container_id),
                    ]
                )
            )
        )

    @precondition(lambda self: self.journal)
    @rule(task=TASKS, lag=LAG, exit=EXITS, data=st.data())
    def tell_of_task(self, task: Task, lag: int, exit: Exit, data: st.DataObject) -> None:
        attempt = self.attempt(task, lag)
        event = data.draw(
            st.sampled_from(
                [
                    TaskPrepared(task=task, attempt=attempt, host="h", ports=(1,)),
                    TaskStarted(task=task, attempt=attempt, pids=(1,)),
                    TaskJoined(task=task, attempt=attempt),
                    TaskSaving(task=task, attempt=attempt, exit=exit, limit_s=30.0),
                    TaskExited(task=task, attempt=attempt, exit=exit),
                    TaskHung(task=task, attempt=attempt, idle_s=5.0),
                    StacksTaken(task=task, attempt=attempt),
                    CheckpointSaved(task=task, attempt=attempt, name="000001"),
                ]
            )
        )
        self.tell(event)

    @precondition(lambda self: self.machine.next_due() is not None)
    @rule()
    def wait(self) -> None:
        due = self.machine.next_due()
        assert due is not None and due > self.now, "it was due when the machine looked last"
        self.tell(TimePassed(), due - self.now)

    @precondition(lambda self: self.journal)
    @rule(late_s=st.floats(2.0, 100.0))
    def stand_still(self, late_s: float) -> None:
        self.tell(TimePassed(late_s=late_s), late_s)

    @precondition(lambda self: self.journal)
    @rule(data=st.data())
    def restart_coordinator(self, data: st.DataObject) -> None:
        known = self.machine.state.incarnation
        kept = data.draw(st.lists(st.sampled_from([*self.containers, "x"]), unique=True))
        self.tell(
            CoordinatorStarted(
                incarnation=known + 1,
                containers=tuple(kept),
                others_ended=data.draw(st.booleans()),
            )
        )

    @precondition(lambda self: len(self.journal) > 20)
    @rule(firm=st.booleans())
    def stop(self, firm: bool) -> None:
        self.tell(StopRequested(by="user", firm=firm))

    @invariant()
    def holds(self) -> None:
        """Among much else: each unit is where it should be, or something will move it."""
        invariants.check(self.machine.state, self.now)

    @invariant()
    def has_missed_nothing(self) -> None:
        invariants.settled(self.machine, self.now)

    def teardown(self) -> None:
        if not self.journal:
            return
        again = Machine()
        decoder = msgspec.json.Decoder(AnyEvent)
        for number, (at, line) in enumerate(self.journal, 1):
            event = decoder.decode(line)
            again.handle(event, at, f"{type(event).__name__}#{number}")
        assert msgspec.to_builtins(again.state) == msgspec.to_builtins(self.machine.state)


class ManyWorlds(AnyWorld):
    """The same, for longer."""


TestAnyWorld = AnyWorld.TestCase
TestAnyWorld.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
TestManyWorlds = pytest.mark.nightly(pytest.mark.timeout(600)(ManyWorlds.TestCase))
TestManyWorlds.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
