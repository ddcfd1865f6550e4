"""One generation after another, elsewhere each time: nobody is ever told, or shown, former values.

Who the others are is made once for all members of a topology (`howdah.coordinator.agents.launch_specs`,
`howdah.frameworks.addresses`), and found again for each document (`howdah.wire.status`).
"""

from __future__ import annotations

import itertools
import json
import random

from howdah.backends.base import Places
from howdah.coordinator.agents.container_secrets import ContainerSecrets
from howdah.coordinator.agents.launch_specs import LaunchSpecs
from howdah.core.messages import ContainerEnded, ContainerEndKind, StartTask, Task, TaskPrepared
from howdah.core.plan import RolePlan
from howdah.core.state import TaskState
from howdah.spec.model import Job, Restart, Role
from howdah.storage.jobdir import JobDirectory
from howdah.wire.status import JobIdentity, view
from tests.unit.core.bench import Bench

IDENTITY = JobIdentity(name="j", framework="pytorch", user="u", backend="b", directory="/j")
PLACES = Places(
    python="python",
    path="/usr/bin",
    python_path="/p",
    source="/src",
    shared_dir="/shared",
    home="/j",
    tensorboard_dir="/tb",
)


class Gang:
    """A machine and what is made of its commands; hosts and ports are new at each preparation."""

    def __init__(self, name: str, role: RolePlan, instances: str | int) -> None:
        self.name = name
        self.bench = Bench(role)
        job = Job(
            name=name,
            framework="pytorch",
            command="true",
            roles={"worker": Role(instances=instances)},  # type: ignore[arg-type]
        )
        plan = self.bench.state.job
        self.orders = LaunchSpecs(
            job, plan, JobDirectory("/j"), 20.0, PLACES, ContainerSecrets(None)
        )
        self.places: dict[Task, tuple[str, int]] = {}
        self._serial = itertools.count()

    def prepare(self) -> list[StartTask]:
        """Everybody is ready somewhere else; returns who is started."""
        starts: list[StartTask] = []
        for data in list(self.bench.state.tasks.values()):
            if data.state is TaskState.PREPARING:
                number = next(self._serial)
                host, port = f"{self.name}{number}", 20000 + number
                self.places[data.task] = host, port
                self.bench.tell(
                    TaskPrepared(task=data.task, attempt=data.attempt, host=host, ports=(port,))
                )
                starts += self.bench.of(StartTask)
        return starts

    def verify_told(self, command: StartTask, members: list[Task]) -> None:
        """What one member is told is where the members are now."""
        told = self.orders.start(command)
        others = [self.places[task] for task in members if task != command.task]
        assert list(told.peers) == others
        env = told.processes[0].env
        addresses = [f"{host}:{port}" for host, port in map(self.places.__getitem__, members)]
        assert json.loads(env["HOWDAH_CLUSTER"]) == {"worker": addresses}
        assert json.loads(env["CLUSTER_SPEC"]) == {"worker": addresses}
        assert env["HOWDAH_HOST"] == self.places[command.task][0]
        assert env["RANK"] == str(members.index(command.task))
        assert env["WORLD_SIZE"] == str(len(members))
        assert env["MASTER_ADDR"] == self.places[members[0]][0]

    def ranks(self) -> dict[str, int | None]:
        """By task, as the status document has them."""
        return {task.task: task.rank for task in view(self.bench.state, IDENTITY).tasks}


def workers(minimum: int, maximum: int, restart: Restart = Restart.GANG) -> RolePlan:
    return RolePlan(
        name="worker", minimum=minimum, maximum=maximum, chief=True, restart=restart, attempts=99
    )


W = [Task("worker", index) for index in range(4)]


def test_each_generation_of_two_jobs_in_one_process_is_told_its_own_places(
    chance: random.Random,
) -> None:
    gangs = [Gang("one", workers(3, 3), 3), Gang("two", workers(3, 3), 3)]
    for gang in gangs:
        gang.bench.grant_all()
        gang.bench.register_all()
    for _ in range(5):
        # Both at once, and in any order: neither may get what was made for the other.
        started = [(gang, start) for gang in gangs for start in gang.prepare()]
        assert len(started) == 6
        chance.shuffle(started)
        for gang, start in started:
            gang.verify_told(start, W[:3])
        for gang, start in started:
            gang.verify_told(start, W[:3])
        for gang in gangs:
            assert gang.ranks() == {"worker:0": 0, "worker:1": 1, "worker:2": 2}
            gang.bench.join_all()
            gang.bench.exit(chance.choice(W[:3]), code=1)
            gang.bench.restart()


def test_a_task_that_comes_back_alone_and_its_peers_started_later_are_told_its_new_place() -> None:
    gang = Gang("one", workers(3, 3, Restart.TASK), 3)
    gang.bench.grant_all()
    gang.bench.register_all()
    for start in gang.prepare():
        gang.verify_told(start, W[:3])
    gang.bench.join_all()
    for task in (W[1], W[0], W[1]):
        gang.bench.exit(task, code=1)
        gang.bench.wait(10.0)
        (start,) = gang.prepare()
        assert start.task == task
        gang.verify_told(start, W[:3])
        gang.bench.join_all()


def test_ranks_move_up_when_an_elastic_gang_shrinks_and_nobody_shows_an_old_one() -> None:
    gang = Gang("one", workers(1, 4), "1..4")
    gang.bench.grant_all()
    gang.bench.register_all()
    for start in gang.prepare():
        gang.verify_told(start, W)
    assert gang.ranks() == {"worker:0": 0, "worker:1": 1, "worker:2": 2, "worker:3": 3}
    gang.bench.join_all()
    for lost, left in ((W[0], W[1:]), (W[2], [W[1], W[3]])):
        container = gang.bench.task(lost).container_id
        assert container is not None
        gang.bench.tell(ContainerEnded(container_id=container, kind=ContainerEndKind.NODE_LOST))
        gang.bench.restart()
        gang.bench.due()
        between = gang.ranks()
        assert set(between.values()) == {None}, "there is no topology yet"
        starts = gang.prepare()
        assert [start.task for start in starts] == left
        for start in starts:
            gang.verify_told(start, left)
        shown = gang.ranks()
        assert [shown[str(task)] for task in left] == list(range(len(left)))
        assert all(rank is None for name, rank in shown.items() if name not in map(str, left))
        gang.bench.join_all()
