"""Which requests are granted and which never can be: pure, no device needed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah.backends.base import RoleResources
from howdah.backends.local.allocation import MachineCapacity, choose, impossible, minimums
from howdah.core.messages import ContainerRequest
from howdah.core.plan import Plan, RolePlan
from howdah.spec.model import Mode

MACHINE = MachineCapacity(memory_mb=16384, cores=8, gpus=4, all_gpus=4)


def requests(*roles: str) -> list[ContainerRequest]:
    return [ContainerRequest(request_id=n, role=role) for n, role in enumerate(roles, start=1)]


def plan(*roles: RolePlan, mode: Mode = Mode.GANG) -> Plan:
    return Plan(job_id="j", roles=roles, mode=mode)


def ids(chosen: list[ContainerRequest]) -> list[int]:
    return [request.request_id for request in chosen]


def test_a_gang_gets_all_its_devices_or_none() -> None:
    pending = requests("worker", "worker", "ps")
    gpus, minimum = {"worker": 2, "ps": 0}, {"worker": 2, "ps": 1}
    assert ids(choose(pending, gpus, {}, minimum, free=4)) == [1, 2, 3]
    assert ids(choose(pending, gpus, {}, minimum, free=3)) == []


def test_an_elastic_gang_gets_its_minimum_and_as_much_more_as_fits() -> None:
    pending = requests(*["worker"] * 6)
    assert ids(choose(pending, {"worker": 1}, {}, {"worker": 2}, free=4)) == [1, 2, 3, 4]
    assert ids(choose(pending, {"worker": 1}, {}, {"worker": 2}, free=1)) == []


def test_a_gang_that_has_its_minimum_takes_what_comes() -> None:
    pending = requests("worker", "worker")
    assert ids(choose(pending, {"worker": 1}, {"worker": 2}, {"worker": 2}, free=1)) == [1]


def test_a_lost_container_alone_is_asked_for_again() -> None:
    pending = requests("worker")
    held, minimum = {"worker": 3, "ps": 1}, {"worker": 4, "ps": 1}
    assert ids(choose(pending, {"worker": 2, "ps": 0}, held, minimum, free=2)) == [1]
    assert ids(choose(pending, {"worker": 2, "ps": 0}, held, minimum, free=1)) == []


def test_tasks_that_start_one_by_one_get_devices_one_by_one() -> None:
    role = RolePlan(name="trial", minimum=8, maximum=8)
    minimum = minimums(plan(role, mode=Mode.EACH))
    assert ids(choose(requests(*["trial"] * 8), {"trial": 1}, {}, minimum, free=3)) == [1, 2, 3]


@given(
    st.lists(st.sampled_from("abc"), max_size=12),
    st.fixed_dictionaries({name: st.integers(0, 3) for name in "abc"}),
    st.fixed_dictionaries({name: st.integers(0, 4) for name in "abc"}),
    st.fixed_dictionaries({name: st.integers(0, 4) for name in "abc"}),
    st.integers(0, 12),
)
def test_choosing_never_exceeds_what_is_free_nor_holds_part_of_a_minimum(
    roles: list[str],
    gpus: dict[str, int],
    held: dict[str, int],
    minimum: dict[str, int],
    free: int,
) -> None:
    pending = requests(*roles)
    chosen = choose(pending, gpus, held, minimum, free)
    assert sum(gpus[r.role] for r in chosen) <= free
    assert [r for r in pending if r in chosen] == chosen
    if not chosen:
        return
    asked, got = Counter(roles), Counter(r.role for r in chosen)
    for role in asked:
        lacking = max(0, minimum[role] - held[role])
        assert got[role] >= min(lacking, asked[role])


def test_a_job_that_fits_has_no_problem() -> None:
    roles = {"worker": RoleResources(memory_mb=1024, cores=64, gpus=2)}
    gang = plan(RolePlan(name="worker", minimum=2, maximum=8))
    assert impossible(roles, gang, MACHINE) == []


def test_stages_need_their_devices_one_after_the_other() -> None:
    roles = {"prepare": RoleResources(gpus=4), "worker": RoleResources(gpus=2)}
    gang = plan(
        RolePlan(name="prepare", minimum=1, maximum=1),
        RolePlan(name="worker", minimum=2, maximum=2, stage=1),
    )
    assert impossible(roles, gang, MACHINE) == []


@pytest.mark.parametrize(
    ("role", "machine", "words"),
    [
        (
            RoleResources(memory_mb=20000),
            MACHINE,
            "roles.w.memory: a container of 20000 MiB cannot fit into this machine's 16384 MiB",
        ),
        (RoleResources(gpus=5), MACHINE, "roles.w.gpus: 5 per container are asked for; this"),
        (
            RoleResources(gpus=1),
            MachineCapacity(memory_mb=1, cores=1),
            "roles.w.gpus: 1 per container are asked for; this machine has no GPU",
        ),
        (
            RoleResources(gpus=2),
            MachineCapacity(memory_mb=1, cores=1, gpus=1, all_gpus=4),
            "CUDA_VISIBLE_DEVICES leaves 1 of this machine's 4",
        ),
        (
            RoleResources(gpus=1),
            MachineCapacity(
                memory_mb=1,
                cores=1,
                gpus=0,
                all_gpus=0,
                unusable_gpus="GPU 0 can't be used: GPU is lost",
            ),
            "this machine has no GPU (GPU 0 can't be used: GPU is lost)",
        ),
        (
            RoleResources(gpus=1),
            MachineCapacity(memory_mb=1, cores=1, gpu_problem="the package is missing: install it"),
            "1 per container are asked for, but: the package is missing: install it",
        ),
    ],
)
def test_what_can_never_be_says_which_key_which_value_and_what_to_do(
    role: RoleResources, machine: MachineCapacity, words: str
) -> None:
    (problem,) = impossible({"w": role}, None, machine)
    assert words in problem


def test_every_reason_is_told_at_once() -> None:
    role = RoleResources(memory_mb=20000, gpus=9)
    assert len(impossible({"w": role}, None, MACHINE)) == 2


def test_a_gang_that_needs_more_devices_at_once_than_there_are_is_refused() -> None:
    roles = {"worker": RoleResources(gpus=2), "evaluator": RoleResources(gpus=1)}
    gang = plan(
        RolePlan(name="worker", minimum=2, maximum=2),
        RolePlan(name="evaluator", minimum=1, maximum=1),
    )
    (problem,) = impossible(roles, gang, MACHINE)
    assert "need 5 GPUs at the same time; this machine has 4" in problem
    assert impossible(roles, plan(*gang.roles, mode=Mode.EACH), MACHINE) == []


@pytest.mark.parametrize("mode", Mode)
def test_more_tasks_than_the_machine_has_memory_for_their_agents_are_refused(mode: Mode) -> None:
    roles = {"worker": RoleResources(memory_mb=500)}
    many = plan(RolePlan(name="worker", minimum=10_000, maximum=10_000), mode=mode)
    (problem,) = impossible(roles, many, MACHINE)
    assert "roles.worker.instances: the agents of 10000 tasks alone need 60000 MiB" in problem
    assert "run at most 2730 tasks at the same time" in problem
    some = plan(RolePlan(name="worker", minimum=2, maximum=10_000), mode=mode)
    assert impossible(roles, some, MACHINE) == []
