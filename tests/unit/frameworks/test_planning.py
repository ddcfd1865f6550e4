"""What a job file and its framework make of each role."""

from __future__ import annotations

import pytest

from howdah.core.plan import Completion, Join, Plan, RolePlan
from howdah.frameworks import planning
from howdah.spec.model import (
    Checkpoint,
    Job,
    Linger,
    Lingering,
    Mode,
    Preprocess,
    Restart,
    Role,
    RoleTimeouts,
    TensorBoard,
    Timeouts,
    Tracking,
)
from tests.unit.frameworks.gangs import job, roles

TRACKED, UNTRACKED, SIDECAR = Tracking.TRACKED, Tracking.UNTRACKED, Tracking.SIDECAR
GANG, TASK, NEVER = Restart.GANG, Restart.TASK, Restart.NEVER

PS = {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1}


# framework, roles, then for each role: tracking, restart, ranked, chief, watched, sticky, join
RULES = [
    ("tensorflow", {"chief": 1, "worker": 2}, {
        "chief": (TRACKED, GANG, True, True, True, False, Join.NETWORK),
        "worker": (TRACKED, GANG, True, False, True, False, Join.NETWORK),
    }),
    ("tensorflow", {"worker": 2, "evaluator": 1}, {
        "worker": (TRACKED, GANG, True, True, True, False, Join.NETWORK),
        "evaluator": (UNTRACKED, TASK, False, False, False, False, Join.NOW),
    }),
    ("tensorflow", PS, {
        "chief": (TRACKED, TASK, True, True, True, True, Join.NETWORK),
        "worker": (TRACKED, TASK, True, False, False, True, Join.NETWORK),
        "ps": (UNTRACKED, GANG, False, False, False, False, Join.NETWORK),
        "evaluator": (UNTRACKED, TASK, False, False, False, False, Join.NOW),
    }),
    ("tensorflow", {"worker": 2, "ps": 1}, {
        "worker": (TRACKED, TASK, True, True, True, True, Join.NETWORK),
        "ps": (UNTRACKED, GANG, False, False, False, False, Join.NETWORK),
    }),
    ("pytorch", {"worker": 1, "chief": 1, "loader": 1}, {
        "worker": (TRACKED, GANG, True, False, True, False, Join.NETWORK),
        "chief": (TRACKED, GANG, True, True, True, False, Join.NETWORK),
        "loader": (TRACKED, TASK, False, False, True, False, Join.NOW),
    }),
    ("jax", {"worker": 2}, {"worker": (TRACKED, GANG, True, True, True, False, Join.NETWORK)}),
    ("xgboost", {"worker": 2}, {
        "tracker": (UNTRACKED, GANG, False, False, False, False, Join.NETWORK),
        "worker": (TRACKED, GANG, True, True, True, False, Join.NETWORK),
    }),
    ("lightgbm", {"worker": 2}, {"worker": (TRACKED, GANG, True, True, True, False, Join.NETWORK)}),
    ("dask", {"client": 1, "worker": 2}, {
        "scheduler": (UNTRACKED, GANG, False, False, False, False, Join.NETWORK),
        "client": (TRACKED, TASK, True, True, True, False, Join.NETWORK),
        "worker": (UNTRACKED, TASK, False, False, False, False, Join.REPORT),
    }),
    ("ray", {"driver": 1, "worker": 2}, {
        "head": (UNTRACKED, GANG, False, False, False, False, Join.NETWORK),
        "driver": (TRACKED, TASK, True, True, True, False, Join.NOW),
        "worker": (UNTRACKED, TASK, False, False, False, False, Join.NETWORK),
    }),
    ("horovod", {"worker": 2}, {
        # Workers connect to the driver at once: it must listen before they start.
        "driver": (UNTRACKED, GANG, False, False, False, False, Join.NETWORK),
        "worker": (TRACKED, GANG, True, True, True, False, Join.NOW),
    }),
    ("mpi", {"worker": 2}, {"worker": (TRACKED, GANG, True, True, True, False, Join.NOW)}),
    ("mxnet", {"server": 1, "worker": 2}, {
        "scheduler": (UNTRACKED, GANG, False, False, False, False, Join.NETWORK),
        "server": (UNTRACKED, GANG, False, False, False, False, Join.NETWORK),
        "worker": (TRACKED, GANG, True, True, True, False, Join.NETWORK),
    }),
    ("command", {"worker": 2, "chief": 1}, {
        "worker": (TRACKED, GANG, True, False, True, False, Join.NOW),
        "chief": (TRACKED, GANG, True, True, True, False, Join.NOW),
    }),
]  # fmt: skip


@pytest.mark.parametrize(
    ("framework", "given", "expected"),
    RULES,
    ids=[f"{name} with {', '.join(given)}" for name, given, _ in RULES],
)
def test_each_framework_has_its_own_rules_for_its_roles(framework, given, expected):
    found = {
        name: (r.tracking, r.restart, r.ranked, r.chief, r.watched, r.sticky_ports, r.join)
        for name, r in roles(job(framework, given)).items()
    }
    assert found == expected


ORDER = {
    "xgboost": ({"worker": 1}, {"worker": ("tracker",)}),
    "dask": (
        {"client": 1, "worker": 1},
        {"client": ("scheduler", "worker"), "worker": ("scheduler",)},
    ),
    "ray": ({"driver": 1, "worker": 1}, {"driver": ("head", "worker"), "worker": ("head",)}),
    "horovod": ({"worker": 1}, {"worker": ("driver",)}),
    "mxnet": ({"server": 1, "worker": 1}, {"server": ("scheduler",), "worker": ("scheduler",)}),
}


@pytest.mark.parametrize("framework", ORDER)
def test_who_is_connected_to_starts_first(framework: str):
    given, waits = ORDER[framework]
    made = roles(job(framework, given))
    assert {name: role.after for name, role in made.items() if role.after} == waits


def completion(framework: str, given: dict, **rest) -> Completion:
    return planning.plan(job(framework, given, **rest), "job-1").completion


def test_the_chief_alone_decides_only_with_parameter_servers():
    assert completion("tensorflow", PS) is Completion.CHIEF
    assert completion("tensorflow", {"chief": 1, "worker": 2}) is Completion.ALL
    assert completion("tensorflow", {"worker": 2, "ps": 1}) is Completion.ALL
    assert completion("pytorch", {"chief": 1, "worker": 2}) is Completion.ALL
    assert completion("dask", {"client": 1, "worker": 2}) is Completion.ALL
    assert completion("tensorflow", {**PS, "chief": Role(tracking=UNTRACKED)}) is Completion.ALL


def planned(role: str, framework: str, given: dict, **rest) -> RolePlan:
    return roles(job(framework, given, **rest))[role]


def test_who_has_to_find_peers():
    assert planned("worker", "pytorch", {"worker": 1}).join is Join.NOW
    assert planned("worker", "pytorch", {"worker": "1..8"}).join is Join.NOW, "it may be alone"
    assert planned("worker", "pytorch", {"worker": "2..8"}).join is Join.NETWORK
    assert planned("worker", "pytorch", {"worker": Role(processes=2)}).join is Join.NETWORK
    own = Role(command="dask worker --nworkers 2")  # it is only seen to listen
    assert planned("worker", "dask", {"client": 1, "worker": own}).join is Join.NETWORK


def test_survivors_of_a_broken_gang_get_a_very_short_grace():
    for framework in ("tensorflow", "pytorch", "jax", "xgboost", "lightgbm", "horovod", "mpi"):
        assert planned("worker", framework, {"worker": 2}).restart_grace_s == 0.5


# -- what the user wrote wins ----------------------------------------------------------------------


def test_what_a_role_says_wins_over_the_job_and_that_over_the_framework():
    independent = planned("worker", "command", {"worker": 2}, mode=Mode.EACH)
    assert independent.restart is TASK
    own = Role(restart=TASK, attempts=7, stop_on_failure=True)
    made = roles(job("command", {"a": 1, "b": own}, restart=NEVER, attempts=2))
    found = [(role.restart, role.attempts, role.stop_on_failure) for role in made.values()]
    assert found == [(NEVER, 2, False), (TASK, 7, True)]
    ps = Role(stop_on_failure=True)
    assert planned("ps", "tensorflow", {**PS, "ps": ps}).stop_on_failure
    evaluator = planned("evaluator", "tensorflow", {**PS, "evaluator": Role(tracking=TRACKED)})
    assert (evaluator.tracking, evaluator.ranked) == (TRACKED, False)
    side = planned("notebook", "command", {"a": 1, "notebook": Role(tracking=SIDECAR)})
    assert (side.tracking, side.ranked, side.watched, side.restart) == (SIDECAR, False, False, TASK)
    assert side.join is Join.NOW
    after = Role(after=("loader",))
    assert planned("worker", "xgboost", {"worker": after, "loader": 1}).after == (
        "tracker",
        "loader",
    )


def test_numbers_of_tasks_and_programs():
    elastic = planned("worker", "pytorch", {"worker": "2..8"})
    assert (elastic.minimum, elastic.maximum) == (2, 8)
    of_gpus = planned("worker", "pytorch", {"worker": Role(processes="gpus", gpus=4)})
    assert of_gpus.processes == 4


def test_the_jobs_restart_leaves_sidecars_and_loners_alone():
    made = roles(job("tensorflow", PS, restart=GANG, tensorboard=TensorBoard()))
    assert {name: role.restart for name, role in made.items()} == {
        "chief": GANG,
        "worker": GANG,
        "ps": GANG,
        "evaluator": TASK,
        "tensorboard": TASK,
    }
    never = roles(job("tensorflow", PS, restart=NEVER, tensorboard=TensorBoard()))
    assert {name for name, role in never.items() if role.restart is not NEVER} == {"tensorboard"}


def test_time_limits_are_the_roles_or_else_the_jobs():
    limits = RoleTimeouts(startup="5s", hang="7s", run="off", stop_grace="1s")
    common = Timeouts(
        registration="30s", startup="1m", hang="2m", run="1h", stop_grace="3s",
        allocation="10m", hold="4s", total="1d",
    )  # fmt: skip
    made = planning.plan(
        job("command", {"a": 1, "b": Role(timeouts=limits)}, timeouts=common), "job-1"
    )
    found = [(r.registration_s, r.startup_s, r.hang_s, r.run_s, r.grace_s) for r in made.roles]
    assert found == [(30, 60, 120, 3600, 3), (30, 5, 7, None, 1)]
    assert (made.allocation_s, made.hold_s, made.total_s) == (600, 4, 86400)


def test_what_is_left_may_be_saved_for_half_an_hour_unless_the_job_says_otherwise():
    assert planning.save_s(job("command")) == 1800.0
    assert planning.save_s(job("command", checkpoint=Checkpoint(save_limit="2m"))) == 120.0


# -- ports -----------------------------------------------------------------------------------------


def test_ports_are_what_the_framework_needs_or_the_user_says():
    assert planned("chief", "tensorflow", {"chief": 1}).ports == 2, "one is for a TensorBoard"
    assert planned("worker", "tensorflow", {"chief": 1, "worker": 1}).ports == 1
    beside = roles(job("tensorflow", {"chief": 1}, tensorboard=TensorBoard()))
    assert {name: role.ports for name, role in beside.items()} == {"chief": 1, "tensorboard": 1}
    of_three = {"chief": 1, "worker": Role(processes=3)}
    assert planned("worker", "lightgbm", of_three).ports == 3
    assert planned("b", "command", {"a": 1, "b": Role(ports=5)}).ports == 5
    assert planned("scheduler", "dask", {"client": 1, "worker": 1}).ports == 2
    assert planned("head", "ray", {"driver": 1, "worker": 1}).ports == 9


# -- expansion -------------------------------------------------------------------------------------


def test_a_job_without_roles_is_one_worker():
    assert job("pytorch").roles == {"worker": Role()}


@pytest.mark.parametrize(("framework", "given", "expected"), RULES)
def test_expanding_twice_changes_nothing(framework, given, expected):
    made = job(
        framework, given, tensorboard=TensorBoard(), preprocess=Preprocess(command="prepare")
    )
    assert planning.expand(made) == made


def test_helper_roles_run_the_frameworks_command_not_the_jobs():
    made = job("xgboost", {"worker": 2})
    assert made.roles["tracker"].command == '"$HOWDAH_PYTHON" "$HOWDAH_HELPERS/xgboost_main.py"'
    assert made.roles["worker"].command is None


def test_a_helper_role_may_be_given_other_resources():
    made = job("xgboost", {"worker": 2, "tracker": Role(memory="4g")})
    assert made.roles["tracker"].memory == "4g"
    assert "xgboost_main.py" in str(made.roles["tracker"].command)


def test_a_helper_role_may_run_a_command_of_the_users():
    made = job("dask", {"client": 1, "worker": 1, "scheduler": Role(command="dask scheduler")})
    assert made.roles["scheduler"].command == "dask scheduler"


def test_dask_workers_have_the_roles_cores_and_memory():
    made = job("dask", {"client": 1, "worker": Role(cores=4, memory="2g")})
    command = str(made.roles["worker"].command)
    assert "--nthreads 4" in command and "--memory-limit 2048MiB" in command
    bare = str(job("dask", {"client": 1, "worker": 1}).roles["worker"].command)
    assert "--nthreads 1" in bare and "--memory-limit 0" in bare


def test_ray_nodes_have_the_roles_cores_gpus_and_memory():
    made = job("ray", {"driver": 1, "worker": Role(cores=4, gpus=1, memory="1g")})
    command = str(made.roles["worker"].command)
    assert command.endswith("--num-cpus 4 --num-gpus 1 --object-store-memory 322122547")
    assert str(made.roles["head"].command).endswith("--num-cpus 0 --num-gpus 0")


def test_a_scheduler_of_mxnet_runs_what_the_workers_run():
    own = Role(command="python mine.py")
    made = job("mxnet", {"server": own, "worker": own}, command=None)
    assert made.roles["scheduler"].command == "python mine.py"


def preprocessed() -> Plan:
    step = Preprocess(command="python prepare.py", timeout="5m", memory="1g", env={"A": "b"})
    return planning.plan(job("pytorch", {"worker": 2}, preprocess=step), "job-1")


def test_preprocessing_has_one_life_of_its_own_fault_and_its_own_time():
    step = preprocessed().roles[0]
    assert (step.tracking, step.attempts, step.restart) == (TRACKED, 1, TASK)
    assert (step.run_s, step.ranked, step.watched, step.join) == (300, False, False, Join.NOW)


def test_preprocessing_cannot_end_a_job_whose_chief_decides():
    step = Preprocess(command="prepare")
    assert completion("tensorflow", PS, preprocess=step) is Completion.CHIEF
    assert not roles(job("tensorflow", PS, preprocess=step))["preprocess"].chief


def test_tensorboard_is_a_sidecar_role():
    made = job("pytorch", {"worker": 2}, tensorboard=TensorBoard(memory="1g"))
    board = roles(made)["tensorboard"]
    assert (board.tracking, board.restart, board.ports, board.ranked) == (SIDECAR, TASK, 1, False)
    assert made.roles["tensorboard"].memory == "1g"


def test_tensorboard_may_run_with_an_interpreter_of_its_own():
    made = job("command", {"a": 1}, tensorboard=TensorBoard(python="/opt/my board/bin/python"))
    assert str(made.roles["tensorboard"].command).startswith("'/opt/my board/bin/python' ")


def test_a_role_called_tensorboard_is_a_sidecar_as_in_tony():
    made = job("command", {"a": 1, "tensorboard": Role(command="tensorboard --logdir x")})
    assert made.roles["tensorboard"].tracking is SIDECAR
    assert roles(made)["tensorboard"].tracking is SIDECAR


def test_checkpoints_are_the_chiefs_in_a_gang_and_everyones_where_tasks_start_alone() -> None:
    def source(framework: str, mode: Mode = Mode.GANG, **table: str) -> str | None:
        one = Job(
            framework=framework,
            mode=mode,
            command="python train.py",
            roles={"worker": Role(instances=2)},
            checkpoint=Checkpoint(**table),  # type: ignore[arg-type]
        )
        expanded = planning.expand(one)
        assert expanded.checkpoint is not None
        return expanded.checkpoint.source

    assert source("pytorch") == "chief"
    assert source("command") == "chief"
    assert source("command", Mode.EACH) == "each"
    assert source("pytorch", source="each") == "each"


PREPARING = {"db": Role(prepare=True, tracking=UNTRACKED), "loader": Role(prepare=True)}


@pytest.mark.parametrize("framework", ["tensorflow", "command", "pytorch"])
def test_roles_that_prepare_are_a_stage_of_independent_programs(framework: str):
    found = roles(job(framework, {**PREPARING, "worker": 2}))
    assert {name: role.stage for name, role in found.items()} == {"db": 0, "loader": 0, "worker": 1}
    assert [found[name].ranked for name in found] == [False, False, True]
    assert found["worker"].chief
    assert (found["loader"].restart, found["loader"].join) == (TASK, Join.NOW)
    assert found["db"].tracking is UNTRACKED


def test_the_preprocess_step_comes_before_the_roles_that_prepare():
    step = Preprocess(command="prepare")
    found = roles(job("command", {**PREPARING, "worker": 1}, preprocess=step))
    assert (found["preprocess"].stage, found["loader"].stage, found["worker"].stage) == (0, 1, 2)


def test_a_role_lingers_as_the_job_file_says():
    linger = Linger(after=("worker",), limit="1h", then=Lingering.STOP)
    found = roles(job("tensorflow", {"worker": 1, "evaluator": Role(linger=linger)}))
    plan = found["evaluator"]
    assert (plan.lingers_after, plan.linger_s, plan.linger_then) == (
        ("worker",),
        3600.0,
        Lingering.STOP,
    )
    assert found["worker"].linger_s is None
