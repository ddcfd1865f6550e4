"""TonY's end-to-end cases on this machine: the options of each, through ``howdah tony``.

The programs are ours; what they look at, how they end and what the job is told to be are TonY's. Cases
that need a cluster are in tests/yarn only, and so is the like of those that set a switch inside TonY.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from howdah.storage.jobdir import base_folder, list_jobs
from tests.cli.howdah import Run, ended_at_last, start
from tests.yarn.tony import CASES, conf

pytestmark = pytest.mark.timeout(200)

PROGRAMS = {
    "ok.py": "",
    "fail.py": "import sys\nsys.exit(1)\n",
    "fail_late.py": "import sys, time\ntime.sleep(3)\nsys.exit(1)\n",
    "a_while.py": "import time\ntime.sleep(2)\n",
    "for_ever.py": "import time\nwhile True:\n    time.sleep(1)\n",
    "checked.py": "import os\nassert os.environ['ENV_CHECK'] == 'ENV_CHECK'\n",
    "venv_checked.py": "import os\nassert os.path.isfile('venv/inside.txt')\n"
    "assert os.environ['ENV_CHECK'] == 'ENV_CHECK'\n",
    "ranked.py": "import os\nassert {'RANK', 'WORLD', 'INIT_METHOD'} <= {*os.environ}\n",
    "unpacked.py": "import os\nassert {'common.zip', 'other.zip'} <= {*os.listdir()}\n"
    "assert os.path.isfile('second.zip/inside.txt')\n",
    "board_of_chief.py": "import os\n"
    "assert ('TB_PORT' in os.environ) == (os.environ['JOB_NAME'] == 'chief')\n",
    "board_apart.py": "import os\nassert 'TB_PORT' not in os.environ\n",
    "ring.py": "import os\n"
    "names = 'CONTROLLER CPU_OPERATIONS GLOO_TIMEOUT_SECONDS GLOO_RENDEZVOUS_PORT RANK SIZE '\n"
    "names += 'GLOO_RENDEZVOUS_ADDR CROSS_RANK CROSS_SIZE LOCAL_RANK LOCAL_SIZE HOSTNAME'\n"
    "assert all(os.environ['HOROVOD_' + name] for name in names.split())\n",
}
PYTHON = ("-python_binary_path", "python3")
VENV = ("-python_venv", "first.zip")
CHECK = ("-shell_env", "ENV_CHECK=ENV_CHECK")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The current folder, with the programs and archives of all cases."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOWDAH_SITE", "")
    monkeypatch.delenv("TONY_CONF_DIR", raising=False)
    (tmp_path / "scripts").mkdir()
    for name, text in PROGRAMS.items():
        (tmp_path / "scripts" / name).write_text(text)
    for name in ("first.zip", "second.zip", "common.zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("inside.txt", "inside")
    with ended_at_last():
        yield tmp_path


def tony(*words: str, within_s: float = 90.0, **values: object) -> tuple[int, Run]:
    """Run TonY's command line on this machine; ``worker=2`` are instances. The exit code."""
    instances = {f"tony.{name}.instances": number for name, number in values.items()}
    run = start(
        *(
            "tony",
            "LocalSubmitter",
            "-src_dir",
            "scripts",
            "-container_env",
            "SKIP_HADOOP_PATH=true",
        ),
        *conf(instances),
        *words,
    )
    return run.end(within_s), run


def expected(row: str) -> int:
    """The exit code that the table has for us."""
    return next(case for case in CASES if case.row == row).here


def executes(program: str) -> tuple[str, ...]:
    return ("-executes", program, *PYTHON)


def commands(values: Mapping[str, str]) -> list[str]:
    """What each role runs."""
    return conf({f"tony.{role}.command": f"python3 {name}" for role, name in values.items()})


TIMED = {"tony.application.group.A": "chief", "tony.application.framework": "tensorflow"}
AFTER = "tony.application.dependency.worker.timeout.after.A"

MANY = "allocation time-out: more workers than the cluster has room for"
LINES: dict[str, tuple[list[str], dict[str, int]]] = {
    "a single node passes": ([*executes("checked.py"), *CHECK], {}),
    "missed heartbeats": (
        [
            *executes("checked.py"),
            *("-container_env", "TEST_TASK_EXECUTOR_NUM_HB_MISS=5"),
            *conf({"tony.task.max-missed-heartbeats": 2}),
        ],
        {"ps": 1, "worker": 1},
    ),
    "a skewed worker passes": (
        [
            *executes("checked.py"),
            *CHECK,
            *("-container_env", "TEST_TASK_EXECUTOR_SKEW=worker#0#30000"),
        ],
        {"ps": 1, "worker": 2},
    ),
    "ps and worker with a shipped environment and variables": (
        ["-executes", "python3 venv_checked.py", *CHECK, *VENV],
        {"worker": 1},
    ),
    "PyTorch's environment": (
        [*executes("ranked.py"), *CHECK, *conf({"tony.application.framework": "pytorch"})],
        {"ps": 0, "worker": 2},
    ),
    "ps and worker that exit with 1 fail": ([*executes("fail.py")], {"ps": 1, "worker": 1}),
    "a single node fails": ([*executes("fail.py")], {}),
    "the application master crashes": (
        [*executes("ok.py"), "-container_env", "TEST_AM_CRASH=true"],
        {},
    ),
    "the application master throws an exception": (
        [*executes("ok.py"), "-container_env", "TEST_AM_THROW_EXCEPTION_CRASH=true"],
        {},
    ),
    "stages: dbloader and db, then ps and worker": (
        [
            *executes("ok.py"),
            *conf(
                {
                    "tony.application.prepare-stage": "dbloader,db",
                    "tony.application.training-stage": "ps,worker",
                }
            ),
        ],
        {"worker": 1, "ps": 1, "db": 1, "dbloader": 1},
    ),
    "worker 0 is killed": (
        [*executes("ok.py"), "-container_env", "TEST_WORKER_TERMINATED=true"],
        {"worker": 1},
    ),
    "the client loses the application master": ([*executes("ok.py")], {}),
    "a worker that is not the chief fails": ([*executes("fail.py")], {"ps": 1, "worker": 1}),
    "resources: a name, an archive, a list, a remote folder": (
        [
            "-executes",
            "python3 unpacked.py",
            *conf({"tony.worker.resources": "first.zip::other.zip,second.zip#archive,,common.zip"}),
        ],
        {"worker": 1, "ps": 0},
    ),
    "TensorBoard's port on the chief only": (
        ["-executes", "python3 board_of_chief.py"],
        {"chief": 1, "ps": 1, "worker": 1},
    ),
    "standalone passes": (
        [*executes("ok.py"), *conf({"tony.application.framework": "standalone"})],
        {"worker": 1},
    ),
    "standalone with several instances is refused": (
        [*executes("ok.py"), *conf({"tony.application.framework": "standalone"})],
        {"worker": 1, "slave": 1},
    ),
    "a completion that is notified late": (
        [
            *executes("ok.py"),
            *conf({"tony.task.heartbeat-interval-ms": 100, "tony.task.max-missed-heartbeats": 5}),
            *("-container_env", "TEST_TASK_COMPLETION_NOTIFICATION_DELAYED=true"),
        ],
        {"ps": 0, "worker": 1},
    ),
    "client callbacks": (
        [*CHECK, *VENV, *commands({"ps": "for_ever.py", "worker": "venv_checked.py"})],
        {"ps": 1, "worker": 1},
    ),
    "a ps that crashes stops the job": (
        [
            *VENV,
            *commands({"ps": "fail.py", "worker": "for_ever.py"}),
            *conf({"tony.application.untracked.jobtypes": "ps"}),
        ],
        {"ps": 1, "worker": 1},
    ),
    "a sidecar that crashes is ignored": (
        [
            *VENV,
            *commands({"sidecarexecutor": "fail.py", "worker": "a_while.py"}),
            *conf({"tony.application.sidecar.jobtypes": "sidecarexecutor"}),
        ],
        {"sidecarexecutor": 1, "worker": 1},
    ),
    "Horovod's driver crashes": (
        [
            *commands({"worker": "a_while.py"}),
            *conf(
                {
                    "tony.horovod.mode.test.fast.fail": "true",
                    "tony.application.framework": "horovod",
                }
            ),
        ],
        {"worker": 1},
    ),
    "Horovod passes": (
        [
            "-executes",
            "python3 ring.py",
            *conf({"tony.horovod.mode.test": "true", "tony.application.framework": "horovod"}),
        ],
        {"worker": 2},
    ),
    "Horovod with a driver of one's own passes": (
        [
            *("-executes", "python3 ring.py"),
            *commands({"driver": "for_ever.py"}),
            *conf(
                {
                    "tony.application.framework": "horovod",
                    "tony.horovod.driver.mode.debug": "true",
                    "tony.application.untracked.jobtypes": "driver",
                }
            ),
        ],
        {"worker": 2, "driver": 1},
    ),
    MANY: (
        [
            *("-executes", "python3 ok.py"),
            *conf({"tony.worker.memory": "2g", "tony.container.allocation.timeout": "1000"}),
        ],
        {"worker": 10_000},
    ),
    "attached TensorBoard": (
        [
            *("-executes", "python3 board_apart.py", "--sidecar_tensorboard_log_dir", "/tmp"),
            *commands({"tensorboard": "for_ever.py"}),
        ],
        {"chief": 1, "ps": 1, "worker": 2},
    ),
    "a group's time-out ends the job": (
        [*executes("ok.py"), *commands({"worker": "for_ever.py"}), *conf(TIMED | {AFTER: "1"})],
        {"chief": 1, "worker": 2},
    ),
    "a group's time-out that is ignored": (
        [
            *executes("ok.py"),
            *commands({"worker": "for_ever.py"}),
            *conf(TIMED | {AFTER: "1", f"{AFTER}.ignored": "true"}),
        ],
        {"chief": 1, "worker": 2},
    ),
    "a group's time-out that is ignored, beside a ps": (
        [
            *executes("ok.py"),
            *commands({"worker": "for_ever.py", "ps": "for_ever.py"}),
            *conf(TIMED | {AFTER: "1", f"{AFTER}.ignored": "true"}),
        ],
        {"chief": 1, "worker": 2, "ps": 1},
    ),
    "a group's time-out that is ignored, and a failure": (
        [
            *executes("ok.py"),
            *commands({"worker": "fail_late.py", "evaluator": "for_ever.py"}),
            *conf(TIMED | {AFTER: "1", f"{AFTER}.ignored": "true"}),
            *conf({"tony.application.stop-on-failure-jobtypes": "worker"}),
        ],
        {"chief": 1, "worker": 2, "evaluator": 1},
    ),
}
"""By row: what is written, and instances by role."""


DEFAULT = {
    MANY,
    "ps and worker with a shipped environment and variables",
    "a sidecar that crashes is ignored",
}
"""What these do for the others is proved where it is done: in the converter, the core, the frameworks."""


def marks(row: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.tony(row), *([] if row in DEFAULT else [pytest.mark.nightly])]


@pytest.mark.parametrize("row", [pytest.param(row, id=row, marks=marks(row)) for row in LINES])
def test_a_case_of_tonys_ends_as_the_table_says(row: str) -> None:
    words, instances = LINES[row]
    code, run = tony(*words, **instances)
    assert code == expected(row), f"{run.text}\n{run.told}"
    if row == MANY:
        (line,) = [line for line in run.err if "worker" in line]
        assert "roles.worker.instances: the agents of 10000 tasks alone need" in line
        assert run.out == []
        assert list_jobs(base_folder()) == []
