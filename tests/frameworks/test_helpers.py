"""Helper scripts, run as Howdah runs them: by the user's interpreter, with a task's variables."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from howdah.core.messages import Task
from howdah.frameworks import planning, programs
from howdah.frameworks.helpers import ray_main
from howdah.frameworks.programs import ProgramPaths
from howdah.spec.model import Role, TensorBoard
from tests.unit.frameworks.gangs import job, topology


def places(folder: Path) -> ProgramPaths:
    return ProgramPaths(
        python=sys.executable,
        path=os.environ["PATH"],
        shared_dir=str(folder),
        tensorboard_dir=str(folder / "tensorboard"),
    )


def fetch(url: str, within_s: float, child: subprocess.Popen[bytes]) -> str:
    """The page, once it is served."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            headers = {"Authorization": "Bearer open-sesame"}
            request = urllib.request.Request(url, headers=headers)
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError:
            raise
        except (urllib.error.URLError, ConnectionError):
            assert child.poll() is None, "it ended instead"
            assert time.monotonic() < deadline, "it does not answer"
            time.sleep(0.1)


@pytest.mark.timeout(180)
@pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
def test_tensorboard_serves_under_the_proxys_path_without_tensorflow(
    tmp_path: Path, free_port: Callable[[], int]
):
    made = job("command", {"worker": 1}, tensorboard=TensorBoard())
    place = topology(("worker:0", 0), ("tensorboard:0", None))
    board = replace(place.members[1], host="127.0.0.1", ports=(free_port(),))
    place = replace(place, members=(place.members[0], board))
    plan = planning.plan(made, "job-1")
    (program,) = programs.programs(made, plan, place, board.task, 1, places(tmp_path))
    token = tmp_path / "page-token"
    token.write_text("open-sesame")
    child = subprocess.Popen(
        program.argv,
        env=os.environ | program.env | {"HOWDAH_PAGE_TOKEN_FILE": str(token)},
        cwd=tmp_path,
        stderr=(tmp_path / "said").open("wb"),
    )
    try:
        root = f"http://127.0.0.1:{board.ports[0]}"
        page = fetch(f"{root}/proxy/tensorboard:0/", 60, child)
        assert "<title>TensorBoard</title>" in page
        assert fetch(f"{root}/proxy/tensorboard:0/data/runs", 60, child) == "[]"
        with pytest.raises(urllib.error.HTTPError):
            fetch(f"{root}/data/runs", 5, child)
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"{root}/proxy/tensorboard:0/data/runs", timeout=5)
        process = psutil.Process(child.pid)
        loaded = {Path(mapped.path).name for mapped in process.memory_maps()}
        assert not any(name.startswith(("libtensorflow", "_pywrap_tensorflow")) for name in loaded)
        assert process.memory_info().rss < 250e6
        assert "TensorFlow installation not found" not in (tmp_path / "said").read_text()
    finally:
        child.terminate()
        child.wait(20)


def test_without_tensorboard_the_launcher_says_what_to_do(tmp_path: Path):
    script = Path(programs.HELPERS) / "tensorboard_main.py"
    # -S: without site-packages nothing is installed.
    done = subprocess.run(
        [sys.executable, "-S", str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    assert done.returncode == 1
    assert "tensorboard is not installed in the environment of" in done.stderr
    assert "[tensorboard] python = ..." in done.stderr


def mpi(command: list[str], folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    made = job("mpi", {"worker": Role(instances=2, command=command)})
    place = topology(("worker:0", 0, 2), ("worker:1", 2, 1))
    plan = planning.plan(made, "job-1")
    program = programs.programs(made, plan, place, Task("worker", 0), 1, places(folder))[1]
    return subprocess.run(
        program.argv,
        env=os.environ | program.env | env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_mpirun_finds_a_hostfile(tmp_path: Path):
    show = (
        "import os; print(*(open(os.environ[n]).read() for n in ('HOWDAH_MPI_HOSTFILE', "
        "'OMPI_MCA_orte_default_hostfile', 'PRTE_MCA_prte_default_hostfile', 'HYDRA_HOST_FILE')))"
    )
    launcher = {
        "HOWDAH_IS_CHIEF": "true",
        "HOWDAH_CHECKPOINT_REQUEST": str(tmp_path / "request"),
        "HOWDAH_MPI_HOSTS": "h0:2,h1:1",
        "HOWDAH_MPI_NODES": "",
    }
    done = mpi([sys.executable, "-c", show], tmp_path, **launcher)
    hostfile, machines = "h0 slots=2\nh1 slots=1\n", "h0:2\nh1:1\n"
    assert done.stdout == f"{hostfile} {hostfile} {hostfile} {machines}\n"


def test_a_program_that_mpi_cannot_start_is_named(tmp_path: Path):
    done = mpi(["no-such-program"], tmp_path)
    assert done.returncode == 127
    assert done.stderr == "cannot start no-such-program: No such file or directory\n"


def test_rays_node_daemon_is_told_its_agents_port_before_the_agent_is_up(tmp_path: Path):
    started = 'import subprocess, sys; subprocess.run([sys.argv[1], "-c", *sys.argv[2:]])'
    daemon = tmp_path / "raylet"
    daemon.symlink_to(sys.executable)
    options = [f"--session_dir={tmp_path}", "--node_id=ab12"]
    program = [sys.executable, "-c", started, str(daemon), "import time; time.sleep(60)", *options]
    with subprocess.Popen(program, start_new_session=True) as ray:
        try:
            deadline = time.monotonic() + 20
            while not ray_main.tell_port(ray.pid, "20012"):
                assert time.monotonic() < deadline, "the daemon was not found"
                time.sleep(0.05)
            file = tmp_path / "dashboard_agent_listen_port_ab12"
            assert file.read_text() == "20012"
            file.write_text("-1")  # the agent knows better
            assert ray_main.tell_port(ray.pid, "20012")
            assert file.read_text() == "-1"
            assert sorted(path.name for path in tmp_path.iterdir()) == [file.name, daemon.name]
        finally:
            os.killpg(ray.pid, signal.SIGKILL)
    assert not ray_main.tell_port(ray.pid, "20012")
