"""A machine on the bench: drives one through plain situations and keeps what it commands."""

from __future__ import annotations

from typing import TypeVar

from howdah.core.machine import Machine
from howdah.core.messages import (
    AgentRegistered,
    AnyCommand,
    AnyEvent,
    Command,
    ContainerGranted,
    Exit,
    JobSubmitted,
    Record,
    Task,
    TaskExited,
    TaskJoined,
    TaskPrepared,
    TaskStarted,
    TimePassed,
    Topology,
)
from howdah.core.plan import Plan, RolePlan
from howdah.core.state import JobPhase, JobState, TaskData, TaskState
from tests import invariants

C = TypeVar("C", bound=Command)
WORKER = [Task("worker", index) for index in range(8)]


def workers(number: int = 2, **rules: object) -> RolePlan:
    return RolePlan(name="worker", minimum=number, maximum=number, chief=True, **rules)  # type: ignore[arg-type]


class Bench:
    """``bench.commands`` holds what the newest event caused."""

    def __init__(self, *roles: RolePlan, waited_s: float = 0.0, **rules: object) -> None:
        self.machine = Machine()
        self.now = 100.0
        self.commands: list[AnyCommand] = []
        self.story: list[Record] = []
        plan = Plan(job_id="job", roles=roles or (workers(),), **rules)  # type: ignore[arg-type]
        self.tell(JobSubmitted(plan=plan, waited_s=waited_s))

    @property
    def state(self) -> JobState:
        return self.machine.state

    @property
    def plan(self) -> Plan:
        return self.state.job

    @property
    def topology(self) -> Topology:
        assert self.machine.state.topology is not None
        return self.machine.state.topology

    @property
    def phase(self) -> JobPhase:
        return self.machine.state.phase

    def tell(self, event: AnyEvent, after_s: float = 0.01) -> list[AnyCommand]:
        self.now += after_s
        self.commands = self.machine.handle(event, self.now)
        self.story += [c for c in self.commands if isinstance(c, Record)]
        invariants.check(self.state, self.now)
        invariants.settled(self.machine, self.now)
        return self.commands

    def of(self, kind: type[C]) -> list[C]:
        """Commands of that kind the newest event caused."""
        return [command for command in self.commands if isinstance(command, kind)]

    def kinds(self) -> list[str]:
        """Names of the newest commands, records left out."""
        return [type(c).__name__ for c in self.commands if not isinstance(c, Record)]

    def due(self) -> list[AnyCommand]:
        """Let time pass until something is done about it."""
        for _ in range(20):
            due = self.machine.next_due()
            assert due is not None, "nothing will come due"
            self.now = due
            if self.tell(TimePassed(), 0.0):
                return self.commands
        raise AssertionError("nothing is done about what comes due")

    def wait(self, seconds: float) -> None:
        """Let so much time pass."""
        until = self.now + seconds
        while (due := self.machine.next_due()) is not None and due <= until:
            self.now = due
            self.tell(TimePassed(), 0.0)
        self.now = until

    def task(self, task: Task | str) -> TaskData:
        return self.state.tasks[str(task)]

    def grant_all(self) -> None:
        for request_id, task in list(self.state.requests.items()):
            self.tell(
                ContainerGranted(
                    request_id=request_id, container_id=f"c{request_id}", node=f"node-{task.index}"
                )
            )

    def register_all(self) -> None:
        for container in list(self.state.containers.values()):
            if container.task is not None and not container.registered:
                self.tell(AgentRegistered(container_id=container.container_id, host="host"))

    def prepare_all(self) -> None:
        for data in list(self.state.tasks.values()):
            if data.state is TaskState.PREPARING:
                self.tell(
                    TaskPrepared(task=data.task, attempt=data.attempt, host="host", ports=(20000,))
                )

    def join_all(self) -> None:
        for data in list(self.state.tasks.values()):
            if data.state is TaskState.STARTING:
                self.tell(TaskStarted(task=data.task, attempt=data.attempt, pids=(7,)))
            if data.state is TaskState.RUNNING and not data.joined:
                self.tell(TaskJoined(task=data.task, attempt=data.attempt))

    def run(self) -> None:
        """Bring everything up that can come up."""
        for _ in range(3):
            self.grant_all()
            self.register_all()
            self.prepare_all()
            self.join_all()

    def exit(self, task: Task, **how: object) -> list[AnyCommand]:
        """The task's present attempt ends."""
        attempt = self.task(task).attempt
        return self.tell(TaskExited(task=task, attempt=attempt, exit=Exit(**how)))  # type: ignore[arg-type]

    def end_stopping(self) -> None:
        """Everyone told to stop does."""
        for data in list(self.state.tasks.values()):
            if data.state is TaskState.STOPPING:
                self.exit(data.task, signal=15)

    def restart(self) -> None:
        """Let a broken gang end, its failure window close and its delay pass."""
        self.end_stopping()
        self.due()
        while self.phase is JobPhase.RESTARTING:
            self.due()

    def told(self, kind: str) -> list[str]:
        """Texts of the story's lines of that kind."""
        return [record.text for record in self.story if record.kind == kind]
