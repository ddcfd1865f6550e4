"""What programs of a job with ``compat = "tony"`` are told, and when such a job is done."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from howdah.core.messages import Task
from howdah.core.plan import Completion
from howdah.frameworks import planning, programs
from howdah.frameworks.programs import ProgramPaths
from howdah.spec.model import Compat, Job, Mode, Role, Tracking
from tests.unit.frameworks.gangs import job, problems, roles, topology

PLACES = ProgramPaths(
    python="/env/bin/python",
    shared_dir="/job/shared",
    tensorboard_dir="/job/tensorboard",
    application="application_1_0001",
)
UNTRACKED = {"tracking": Tracking.UNTRACKED}
ALL = topology(
    ("chief:0", 0),
    ("worker:0", 1),
    ("worker:1", 2),
    ("ps:0", None),
    ("evaluator:0", None),
    ("head:0", None),
)


def tonys(framework: str = "tensorflow", given: dict[str, Any] | None = None, **rest: Any) -> Job:
    given = given or {
        "chief": 1,
        "worker": 2,
        "ps": Role(**UNTRACKED),
        "evaluator": Role(tracking=Tracking.TRACKED),
        "head": 1,
        "monitor": Role(tracking=Tracking.SIDECAR),
    }
    return job(framework, given, compat=Compat.TONY, **rest)


def env(made: Job, name: str, place: Any = ALL, attempt: int = 1) -> dict[str, str]:
    role, _, index = name.partition(":")
    plan = planning.plan(made, "job-1")
    task = Task(role, int(index))
    return programs.programs(made, plan, place, task, attempt, PLACES)[0].env


@pytest.mark.parametrize("task", ["chief:0", "worker:1", "ps:0", "head:0"])
def test_every_role_has_all_but_the_evaluator_in_its_tf_config(task: str) -> None:
    role, _, index = task.partition(":")
    assert json.loads(env(tonys(), task)["TF_CONFIG"]) == {
        "cluster": {
            "chief": ["h0:20000"],
            "head": ["h5:20050"],
            "ps": ["h3:20030"],
            "worker": ["h1:20010", "h2:20020"],
        },
        "task": {"type": role, "index": int(index)},
    }


def test_the_evaluator_is_in_its_own_tf_config() -> None:
    config = json.loads(env(tonys(), "evaluator:0")["TF_CONFIG"])
    assert sorted(config["cluster"]) == ["chief", "evaluator", "head", "ps", "worker"]
    assert config["task"] == {"type": "evaluator", "index": 0}


def test_a_sidecar_is_in_no_tf_config_and_has_none() -> None:
    place = topology(("worker:0", 0), ("monitor:0", None))
    made = tonys(given={"worker": 1, "monitor": Role(tracking=Tracking.SIDECAR)})
    assert [*json.loads(env(made, "worker:0", place)["TF_CONFIG"])["cluster"]] == ["worker"]
    assert "TF_CONFIG" not in env(made, "monitor:0", place)


def test_all_tracked_tasks_are_counted() -> None:
    assert {env(tonys(), task)["TASK_NUM"] for task in ("worker:0", "ps:0", "head:0")} == {"5"}


def test_only_a_chief_is_told_whether_it_is_one() -> None:
    made = tonys()
    assert env(made, "chief:0")["IS_CHIEF"] == "true"
    assert "IS_CHIEF" not in env(made, "worker:0")
    place = topology(("worker:0", 0), ("worker:1", 1))
    made = tonys(given={"worker": 2})
    assert env(made, "worker:0", place)["IS_CHIEF"] == "true"
    assert "IS_CHIEF" not in env(made, "worker:1", place)


def test_the_chief_has_a_port_for_its_tensorboard_whatever_the_framework() -> None:
    place = topology(("worker:0", None), ("worker:1", None))
    made = tonys("command", {"worker": 2})
    assert roles(made)["worker"].ports == 2
    assert env(made, "worker:0", place)["TB_PORT"] == "20001"
    assert "TB_PORT" not in env(made, "worker:1", place)


def test_the_job_is_called_what_the_cluster_calls_it() -> None:
    assert env(tonys(), "worker:0")["JOB_ID"] == "application_1_0001"


def test_sessions_and_attempts_are_counted_from_zero() -> None:
    found = env(tonys(), "worker:0", replace(ALL, generation=3), attempt=2)
    assert (found["SESSION_ID"], found["ATTEMPT_NUMBER"]) == ("2", "1")


def test_in_mode_each_there_is_neither_tf_config_nor_a_cluster() -> None:
    found = env(tonys(mode=Mode.EACH), "worker:0")
    assert (found["DISTRIBUTED_MODE"], found["TASK_NUM"]) == ("FCFS", "5")
    assert not {"TF_CONFIG", "CLUSTER_SPEC"} & {*found}


def test_without_compat_a_custom_role_finds_the_others_in_howdahs_own_variable() -> None:
    made = replace(tonys(), compat=None)
    found = env(made, "head:0")
    assert "TF_CONFIG" not in found
    cluster = ["chief", "evaluator", "head", "ps", "worker"]
    assert sorted(json.loads(found["HOWDAH_CLUSTER"])) == cluster
    assert (found["TASK_NUM"], found["IS_CHIEF"], found["JOB_ID"]) == ("1", "false", "job-1")


def test_all_tracked_tasks_are_waited_for() -> None:
    assert planning.plan(tonys(), "job-1").completion is Completion.ALL
    made = replace(tonys(), compat=None)
    assert planning.plan(made, "job-1").completion is Completion.CHIEF


def test_a_job_of_tonys_may_have_any_roles() -> None:
    assert problems("tensorflow", {"head": 1, "node": 2}, compat=Compat.TONY) == []
    assert problems("tensorflow", {"head": 1, "node": 2}) != []


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({"worker": Role(instances=2, tolerate=True)}, {"worker": 1}),
        (
            {"chief": Role(tolerate=True), "worker": Role(tolerate=True)},
            {"chief": 1, "worker": 0},
        ),
        (
            {"worker": 1, "node": Role(instances=2, tolerate=True)},
            {"worker": None, "node": 0},
        ),
    ],
)
@pytest.mark.parametrize("framework", ["tensorflow", "command"])
def test_all_may_fail_but_the_chief(
    framework: str, given: dict[str, Any], first: dict[str, int | None]
) -> None:
    planned = roles(tonys(framework, given))
    assert {name: role.tolerated_from for name, role in planned.items()} == first
