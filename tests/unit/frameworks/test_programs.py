"""The programs of a task: command, variables and what they may override."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from howdah.core.messages import Member, Task, Topology
from howdah.frameworks import planning, programs
from howdah.frameworks.programs import ProgramPaths
from howdah.spec.model import Job, Mode, Role, TensorBoard
from howdah.wire.messages import ProcessSpec
from tests.unit.frameworks.gangs import RUNNABLE, job, topology

PLACES = ProgramPaths(
    python="/env/bin/python",
    path="/usr/bin:/bin",
    shared_dir="/job/shared",
    tensorboard_dir="/job/tensorboard",
    helpers="/howdah/helpers",
)
TWO = topology(("worker:0", 0), ("worker:1", 1))


def started(made: Job, place: Topology, name: str, attempt: int = 1) -> tuple[ProcessSpec, ...]:
    role, _, index = name.partition(":")
    plan = planning.plan(made, "job-1")
    return programs.programs(made, plan, place, Task(role, int(index)), attempt, PLACES)


def env(made: Job, place: Topology, name: str, **rest: Any) -> dict[str, str]:
    return started(made, place, name, **rest)[0].env


def test_a_program_is_told_all_about_itself_and_the_others():
    place = replace(TWO, generation=3)
    assert env(job("command", {"worker": 2}), place, "worker:1", attempt=4) == {
        "PYTHONUNBUFFERED": "1",
        "PATH": "/env/bin:/usr/bin:/bin",
        "HOWDAH_JOB_ID": "job-1",
        "HOWDAH_ROLE": "worker",
        "HOWDAH_INDEX": "1",
        "HOWDAH_ATTEMPT": "4",
        "HOWDAH_GENERATION": "3",
        "HOWDAH_RANK": "1",
        "HOWDAH_WORLD_SIZE": "2",
        "HOWDAH_LOCAL_RANK": "0",
        "HOWDAH_LOCAL_WORLD_SIZE": "1",
        "HOWDAH_IS_CHIEF": "false",
        "HOWDAH_HOST": "h1",
        "HOWDAH_PORTS": "20010,20011,20012,20013,20014,20015,20016,20017,20018",
        "HOWDAH_PORT": "20010",
        "HOWDAH_CLUSTER": '{"worker":["h0:20000","h1:20010"]}',
        "HOWDAH_SHARED_DIR": "/job/shared",
        "HOWDAH_TENSORBOARD_DIR": "/job/tensorboard",
        "HOWDAH_PYTHON": "/env/bin/python",
        "HOWDAH_HELPERS": "/howdah/helpers",
        # TonY's
        "JOB_NAME": "worker",
        "TASK_INDEX": "1",
        "TASK_NUM": "2",
        "IS_CHIEF": "false",
        "JOB_ID": "job-1",
        "SESSION_ID": "2",
        "DISTRIBUTED_MODE": "GANG",
        "ATTEMPT_NUMBER": "4",
        "CLUSTER_SPEC": '{"worker":["h0:20000","h1:20010"]}',
    }


def test_in_mode_each_there_is_no_cluster_of_tonys():
    found = env(job("command", {"worker": 2}, mode=Mode.EACH), TWO, "worker:1")
    assert found["DISTRIBUTED_MODE"] == "FCFS"
    assert "CLUSTER_SPEC" not in found


def planned(known: Topology, *later: str) -> Topology:
    """What a task of mode each is started with: all planned tasks, some without an address yet."""
    missing = tuple(Task(name.partition(":")[0], int(name.partition(":")[2])) for name in later)
    members = (*known.members, *(unknown(task, task.index) for task in missing))
    world = sum(member.rank is not None for member in members)
    return Topology(generation=1, world_size=world, members=members)


def unknown(task: Task, rank: int) -> Member:
    return Member(task=task, attempt=0, host="", ports=(), rank=rank)


def test_the_first_task_of_mode_each_is_told_how_many_are_planned():
    made = job("command", {"worker": 4}, mode=Mode.EACH)
    place = planned(topology(("worker:0", 0)), "worker:1", "worker:2", "worker:3")
    found = env(made, place, "worker:0")
    assert found["HOWDAH_WORLD_SIZE"] == "4"
    assert found["TASK_NUM"] == "4"
    assert json.loads(found["HOWDAH_CLUSTER"]) == {"worker": ["h0:20000", "", "", ""]}


def test_in_mode_each_a_task_is_told_the_same_whichever_other_was_faster():
    made = job("command", {"worker": 3}, mode=Mode.EACH)
    alone = planned(topology(("worker:0", 0)), "worker:1", "worker:2")
    later = planned(topology(("worker:0", 0), ("worker:1", 1)), "worker:2")
    assert env(made, later, "worker:0") == env(made, alone, "worker:0")


def test_in_mode_each_a_task_finds_the_roles_it_was_started_after():
    roles = {"server": 2, "other": 1, "worker": Role(instances=2, after=("server",))}
    made = job("command", roles, mode=Mode.EACH)
    known = topology(("server:0", 0), ("server:1", 1), ("other:0", 2), ("worker:0", 3))
    found = env(made, planned(known, "worker:1"), "worker:0")
    assert json.loads(found["HOWDAH_CLUSTER"]) == {
        "other": [""],
        "server": ["h0:20000", "h1:20010"],
        "worker": ["h3:20030", ""],
    }


def test_ten_thousand_tasks_of_mode_each_can_all_be_started():
    made = job("command", {"worker": 10_000}, mode=Mode.EACH)
    members = tuple(unknown(Task("worker", index), index) for index in range(10_000))
    plan = planning.plan(made, "job-1")
    for index in range(10_000):
        own = replace(members[index], host="node-1234.example.com", ports=(20000,))
        place = Topology(generation=1, world_size=10_000, members=members, own=own)
        task = Task("worker", index)
        (found,) = programs.programs(made, plan, place, task, 1, PLACES)
        assert found.env["TASK_NUM"] == "10000"
        assert longest(found) <= programs.LONGEST


def test_a_gang_whose_addresses_no_variable_can_hold_starts_without_them():
    names = [(f"worker:{index}", index) for index in range(10_000)]
    place = topology(*names)
    (found,) = started(job("command", {"worker": 10_000}), place, "worker:9999")
    assert "HOWDAH_CLUSTER" not in found.env
    assert "CLUSTER_SPEC" not in found.env
    assert found.env["HOWDAH_WORLD_SIZE"] == "10000"
    assert longest(found) <= programs.LONGEST


def test_a_framework_whose_variable_gets_too_long_is_refused_with_its_name():
    place = topology(*[(f"worker:{index}", index) for index in range(10_000)])
    with pytest.raises(programs.VariableTooLong) as error:
        started(job("tensorflow", {"worker": 10_000}), place, "worker:0")
    assert "the variable TF_CONFIG of worker:0" in str(error.value)
    assert "10000 tasks" in str(error.value)


def longest(program: ProcessSpec) -> int:
    """Bytes of the program's longest environment string."""
    return max(len(f"{name}={value}\0".encode()) for name, value in program.env.items())


def test_only_rank_0_is_the_chief():
    made = job("pytorch", {"worker": Role(instances=2, processes=2)})
    place = topology(("worker:0", 0, 2), ("worker:1", 2, 2))
    found = [p.env for name in ("worker:0", "worker:1") for p in started(made, place, name)]
    assert [e["HOWDAH_IS_CHIEF"] for e in found] == ["true", "false", "false", "false"]
    assert [e["IS_CHIEF"] for e in found] == ["true", "false", "false", "false"]


def test_several_programs_of_a_task_are_told_apart():
    made = job("pytorch", {"worker": Role(instances=2, processes=2)})
    place = topology(("worker:0", 0, 2), ("worker:1", 2, 2))
    first, second = started(made, place, "worker:1")
    assert (first.label, second.label) == ("0", "1")
    assert [p.env["HOWDAH_RANK"] for p in (first, second)] == ["2", "3"]
    assert [p.env["HOWDAH_LOCAL_RANK"] for p in (first, second)] == ["0", "1"]
    assert first.env["HOWDAH_LOCAL_WORLD_SIZE"] == "2"


def test_unranked_programs_have_no_rank_and_sidecars_are_in_no_cluster():
    made = job("tensorflow", {"chief": 1, "ps": 1, "worker": 1}, tensorboard=TensorBoard())
    place = topology(("chief:0", 0), ("worker:0", 1), ("ps:0", None), ("tensorboard:0", None))
    found = env(made, place, "ps:0")
    assert "HOWDAH_RANK" not in found
    assert set(json.loads(found["HOWDAH_CLUSTER"])) == {"chief", "worker", "ps"}


def test_the_chiefs_spare_port_is_tonys_tensorboard_port():
    made = job("tensorflow", {"chief": 1, "worker": 1})
    place = topology(("chief:0", 0), ("worker:0", 1))
    place = replace(
        place,
        members=(
            replace(place.members[0], ports=(20000, 20001)),
            replace(place.members[1], ports=(20010,)),
        ),
    )
    assert env(made, place, "chief:0")["TB_PORT"] == "20001"
    assert "TB_PORT" not in env(made, place, "worker:0")
    assert programs.web(made, place, Task("chief", 0)) == {
        "name": "TensorBoard",
        "port": 20001,
        "keeps_prefix": False,
        "expected": False,
    }


def test_tensorboard_beside_the_job_has_the_port_and_keeps_the_proxys_path():
    made = job("command", {"worker": 1}, tensorboard=TensorBoard())
    place = topology(("worker:0", 0), ("tensorboard:0", None))
    place = replace(
        place, members=tuple(replace(member, ports=member.ports[:1]) for member in place.members)
    )
    (board,) = started(made, place, "tensorboard:0")
    assert board.env["TB_PORT"] == "20010"
    assert board.argv == (
        "/bin/sh",
        "-c",
        'exec "$HOWDAH_PYTHON" "$HOWDAH_HELPERS/tensorboard_main.py" '
        '--logdir "$HOWDAH_TENSORBOARD_DIR" --host "$HOWDAH_HOST" --port "$HOWDAH_PORT" '
        '--path_prefix "/proxy/tensorboard:$HOWDAH_INDEX" --reload_interval 2 --load_fast false',
    )
    assert programs.web(made, place, Task("tensorboard", 0)) == {
        "name": "TensorBoard",
        "port": 20010,
        "keeps_prefix": True,
        "locked": True,
    }
    assert programs.web(made, place, Task("worker", 0)) is None


def test_a_tensorboard_of_the_users_own_is_not_expected_to_keep_the_path():
    made = job("command", {"a": 1, "tensorboard": Role(command="tensorboard --port $TB_PORT")})
    place = topology(("a:0", 0), ("tensorboard:0", None))
    page = programs.web(made, place, Task("tensorboard", 0))
    assert page == {"name": "TensorBoard", "port": 20010, "keeps_prefix": False, "locked": False}


def test_dasks_dashboard_is_on_the_schedulers_second_port():
    made = job("dask", {"client": 1, "worker": 1})
    place = topology(("client:0", 0), ("scheduler:0", None), ("worker:0", None))
    assert programs.web(made, place, Task("scheduler", 0)) == {
        "name": "Dask",
        "port": 20011,
        "keeps_prefix": False,
        "locked": False,
    }


def test_a_roles_variables_win_over_the_jobs():
    made = job(
        "command",
        {"worker": Role(instances=2, env={"A": "role", "PATH": "/mine"})},
        env={"A": "job", "B": 'a, "b" $c\n'},
    )
    found = env(made, TWO, "worker:0")
    assert (found["A"], found["B"], found["PATH"]) == ("role", 'a, "b" $c\n', "/mine")


def test_no_variable_of_a_job_file_gives_a_wrong_rank_or_address():
    wrong = {"RANK": "7", "MASTER_ADDR": "elsewhere", "JOB_NAME": "x", "HOWDAH_RANK": "7"}
    found = env(job("pytorch", {"worker": 2}, env=wrong), TWO, "worker:1")
    assert [found[name] for name in wrong] == ["1", "h0", "worker", "1"]


def test_mpi_programs_are_started_through_a_script_that_knows_of_mpirun():
    (program,) = started(job("mpi", {"worker": 2}), TWO, "worker:0")
    assert program.argv == (
        "/env/bin/python",
        "/howdah/helpers/mpi_main.py",
        "/bin/sh",
        "-c",
        "exec python train.py",
    )


def test_rays_programs_are_started_through_a_script_that_makes_the_clusters_token():
    made = job("ray", {"driver": 1})
    place = topology(("driver:0", 0), ("head:0", None))
    for name in ("driver:0", "head:0"):
        (program,) = started(made, place, name)
        assert program.argv[:2] == ("/env/bin/python", "/howdah/helpers/ray_token.py")


@pytest.mark.parametrize(("framework", "given"), RUNNABLE)
def test_every_task_of_every_framework_can_be_started(framework: str, given: dict[str, Any]):
    made = job(framework, given, tensorboard=TensorBoard())
    members: list[tuple[str, int | None]] = []
    for role in sorted(planning.plan(made, "job-1").roles, key=lambda role: not role.chief):
        for index in range(role.maximum):
            rank = sum(r is not None for _, r in members) if role.ranked else None
            members.append((f"{role.name}:{index}", rank))
    place = topology(*members)
    for name, _ in members:
        for program in started(made, place, name):
            assert all(isinstance(value, str) for value in program.env.values())
            assert program.argv


@pytest.mark.parametrize(("framework", "given"), RUNNABLE)
def test_a_sidecar_may_start_before_the_others_have_ports(framework: str, given: dict[str, Any]):
    made = job(framework, given, tensorboard=TensorBoard())
    names = [role.name for role in planning.plan(made, "job-1").roles]
    place = topology(*((f"{name}:0", None) for name in names))
    place = replace(
        place,
        members=tuple(
            member if member.task.role == "tensorboard" else replace(member, host="", ports=())
            for member in place.members
        ),
    )
    assert env(made, place, "tensorboard:0")["HOWDAH_CLUSTER"] == "{}"
    assert programs.web(made, place, Task("tensorboard", 0)) is not None


def test_what_the_preprocess_step_printed_and_where_the_master_is_are_tonys_variables():
    made = job("command", {"worker": 2})
    plan = planning.plan(made, "job-1")
    (program,) = programs.programs(
        *(made, plan, TWO, Task("worker", 1), 1, PLACES), answer='{"lr": 1}', master=("h9", 4711)
    )
    assert program.env["MODEL_PARAMS"] == '{"lr": 1}'
    assert (program.env["AM_HOST"], program.env["AM_PORT"]) == ("h9", "4711")
    assert not {"MODEL_PARAMS", "AM_HOST"} & set(env(made, TWO, "worker:1"))
