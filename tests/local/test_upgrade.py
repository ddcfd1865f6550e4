"""A job of weeks outlives ``pip install -U howdah``: each process of it that is started after that is of one release.

Howdah lies in a folder of the test's. The upgrade puts another there, in which whole rooms have other names: what
looks for a module of the old release does not find it, and what has imported one gets classes of two releases.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

import howdah
from howdah.backends.local.messages import NodeAddress
from howdah.storage.jobdir import JobDirectory
from howdah.wire.status import JobView
from tests.conformance.local import wait_gone
from tests.local.test_coordinator_supervisor import wait_until

pytestmark = pytest.mark.timeout(240)

MOVED = {
    "core": "nucleus",
    "wire": "transport",
    "spec": "description",
    "coordinator/web": "coordinator/pages",
    "backends/local/site": "backends/local/whereabouts",
    "backends/local/node/lost_job": "backends/local/node/without_coordinator",
}
"""Rooms and modules, and what the next release calls them."""
PATIENCE_S = 30.0
LINES = 40
"""Of two seconds."""
JOB = """
name = "long"
[roles.worker]
command = "touch {folder}/began; while [ ! -e {folder}/end ]; do echo goes on; sleep 0.05; done; echo saved > {folder}/result"
"""
SAVING = """
name = "long"
[roles.worker]
command = '''
mkdir -p results
if [ $HOWDAH_ATTEMPT = 2 ]; then cp "$HOWDAH_CHECKPOINT_DIR/state" results/ && echo saved > {folder}/result; exit; fi
echo first > "$HOWDAH_CHECKPOINT_DIR/state"
touch {folder}/began
while [ ! -e {folder}/end ]; do echo goes on; sleep 0.05; done
exit 1
'''
attempts = 2
[checkpoint]
folder = "ckpt"
store = "{folder}/checkpoints"
[outputs]
folders = ["results"]
store = "{folder}/outputs"
"""


def release(folder: Path) -> None:
    """Howdah as it is."""
    shutil.copytree(
        Path(howdah.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__")
    )


class LongJob:
    """A job of a Howdah that lies in a folder by itself."""

    def __init__(self, folder: Path, text: str = JOB) -> None:
        self._folder = folder
        self._site = folder / "site"
        self._replaced = 0
        self._site.mkdir()
        release(self.package)
        self._env = {
            **os.environ,
            "PYTHONPATH": str(self._site),
            "HOWDAH_HOME": str(folder / "home"),
        }
        file = folder / "source" / "job.toml"
        file.parent.mkdir()
        file.write_text(text.format(folder=folder))
        job_id = self.howdah("submit", str(file)).split()[0]
        self.directory = JobDirectory(next((folder / "home" / "jobs").glob(f"*/{job_id}")))
        wait_until((folder / "began").exists, "the program runs", PATIENCE_S)
        self.get("")

    @property
    def package(self) -> Path:
        return self._site / "howdah"

    def howdah(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "howdah", *arguments],
            env=self._env,
            cwd=self._folder / "source",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def begun(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A command that goes on; its output has its standard error too."""
        command = [sys.executable, "-P", "-m", "howdah", *arguments]
        return subprocess.Popen(
            command,
            env=self._env,
            cwd=self._folder / "source",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    @property
    def coordinator(self) -> int:
        found = self.directory.coordinator()
        return 0 if found is None else found.pid

    @property
    def page(self) -> int | None:
        found = self.directory.coordinator()
        return None if found is None else found.http_port or None

    @property
    def node(self) -> int:
        file = self.directory.path / "node.json"
        return msgspec.json.decode(file.read_bytes(), type=NodeAddress).pid

    def upgrade(self) -> None:
        """Put the next release where this one is, or was."""
        new = self._folder / "next"
        release(new)
        for old, moved in MOVED.items():
            suffix = "" if (new / old).is_dir() else ".py"
            (new / f"{old}{suffix}").rename(new / f"{moved}{suffix}")
        modules = {old.replace("/", "."): moved.replace("/", ".") for old, moved in MOVED.items()}
        names = re.compile(rf"\bhowdah\.({'|'.join(map(re.escape, modules))})\b")
        for file in new.rglob("*.py"):
            text = file.read_text()
            file.write_text(names.sub(lambda found: f"howdah.{modules[found[1]]}", text))
        self._replace(new)

    def take_away(self) -> None:
        """As it is for a moment while one release is replaced by another."""
        nothing = self._folder / "next"
        nothing.mkdir()
        # Else the one that the tests are installed with would be found.
        (nothing / "__init__.py").write_text(f"open({str(self.missed)!r}, 'w').close()\n")
        self._replace(nothing)

    @property
    def missed(self) -> Path:
        """Exists once a process has looked for a Howdah that was taken away."""
        return self._folder / "missed"

    def let_end(self) -> None:
        """Let its first program end."""
        (self._folder / "end").touch()

    def _replace(self, package: Path) -> None:
        self._replaced += 1
        # Not removed: a coordinator that is being tried may write byte code into it.
        self.package.rename(self._folder / f"former-{self._replaced}")
        package.rename(self.package)

    def log(self, name: str) -> str:
        return (self.directory.logs / f"{name}.log").read_text()

    def get(self, path: str) -> bytes:
        """What the coordinator's page answers."""
        wait_until(lambda: self.page is not None, "the page is served", PATIENCE_S)
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.page}/{path}",
            headers={"Authorization": f"Bearer {self.directory.token()}"},
        )
        with urllib.request.urlopen(request, timeout=30.0) as answer:
            return answer.read()

    def end(self, attempt: int = 1) -> JobView:
        """Let its program end; returns the job as it ended."""
        self.let_end()
        logs = "\n".join(file.read_text() for file in self.directory.logs.glob("*.log"))
        wait_until(lambda: self.directory.final() is not None, f"the job ends:\n{logs}", PATIENCE_S)
        assert wait_gone(self.directory.path, PATIENCE_S)
        final = self.directory.final()
        assert final is not None
        assert final.outcome == "succeeded", f"{final.reason}\n{self.log('coordinator')}"
        assert (self._folder / "result").read_text() == "saved\n"
        assert final.tasks[0].attempt == attempt, "its program was left alone"
        return final

    def kill(self) -> None:
        for pid in (self.node, self.coordinator):
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def text() -> str:
    """The job file."""
    return JOB


@pytest.fixture
def job(tmp_path: Path, text: str) -> Iterator[LongJob]:
    made = LongJob(tmp_path, text)
    yield made
    if not wait_gone(made.directory.path, 0.0):
        made.kill()


def killed(pid: int, successor: Callable[[], int], job: LongJob) -> None:
    os.kill(pid, signal.SIGKILL)

    def there() -> bool:
        return successor() not in (0, pid) and psutil.pid_exists(successor())

    try:
        wait_until(there, "a successor comes", PATIENCE_S)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{job.log('node')}\n{job.log('coordinator')}") from None


@pytest.mark.nightly
def test_a_coordinator_that_dies_while_there_is_no_howdah_comes_back_with_it(job: LongJob) -> None:
    job.take_away()
    os.kill(job.coordinator, signal.SIGKILL)
    wait_until(lambda: "cannot be imported" in job.log("coordinator"), "one was tried", PATIENCE_S)
    job.upgrade()
    job.end()


def test_the_next_node_daemon_is_of_the_release_that_is_there_by_then(job: LongJob) -> None:
    coordinator = job.coordinator
    job.upgrade()
    killed(job.node, lambda: job.node, job)
    assert job.coordinator == coordinator
    killed(job.coordinator, lambda: job.coordinator, job)
    job.end()


@pytest.mark.nightly
def test_a_job_that_lost_both_is_revived_by_the_next_release(job: LongJob) -> None:
    job.upgrade()
    job.kill()
    with job.begun("attach", "--revive", job.directory.job_id) as attached:
        assert attached.stdout is not None
        for _ in range(LINES):
            assert attached.stdout.readline()
        job.end()
        assert b"succeeded after" in attached.stdout.read()
        assert attached.wait(PATIENCE_S) == 0


@pytest.mark.nightly
@pytest.mark.parametrize("text", [SAVING])
def test_a_restart_while_there_is_no_howdah_has_its_checkpoint(
    job: LongJob, tmp_path: Path
) -> None:
    saved = tmp_path / "checkpoints"
    wait_until(lambda: any(saved.glob("*/0*/state")), "the checkpoint is saved", PATIENCE_S)
    job.take_away()
    job.let_end()
    wait_until(job.missed.exists, "a helper looks for it", PATIENCE_S)
    job.upgrade()
    job.end(attempt=2)
    (result,) = (tmp_path / "outputs").rglob("state")
    assert result.read_text() == "first\n"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "text", [SAVING.replace("exit 1", "echo 1 > results/one; echo saved > {folder}/result")]
)
def test_a_task_that_ends_while_there_is_no_howdah_has_its_outputs_copied(
    job: LongJob, tmp_path: Path
) -> None:
    job.take_away()
    job.let_end()
    wait_until(job.missed.exists, "a helper looks for it", PATIENCE_S)
    job.upgrade()
    final = job.end()
    (result,) = (tmp_path / "outputs").rglob("one")
    assert result.read_text() == "1\n"
    assert not final.unsaved


@pytest.mark.parametrize(
    "name",
    [
        "backends/local/boot.py",
        "backends/local/backend.py",
        "coordinator/main.py",
        "storage/helper.py",
        "agent/monitoring/metrics.py",
        "storage/checkpoints/helper.py",
        "__main__.py",
        "frameworks/helpers/dask_joined.py",
        "frameworks/helpers/dask_last.py",
        "frameworks/helpers/horovod_main.py",
        "frameworks/helpers/mpi_main.py",
        "frameworks/helpers/mpi_remote.py",
        "frameworks/helpers/mpi_run.py",
        "frameworks/helpers/notebook_main.py",
        "frameworks/helpers/ray_main.py",
        "frameworks/helpers/ray_token.py",
        "frameworks/helpers/tensorboard_main.py",
        "frameworks/helpers/xgboost_main.py",
    ],
)
def test_what_processes_of_older_releases_start_is_where_it_was(name: str) -> None:
    assert Path(howdah.__file__).parent.joinpath(name).exists()
