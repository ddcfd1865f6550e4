"""Jobs on the test cluster, from submission to their end, and what can be done to them meanwhile.

    def test_something(yarn: Yarn) -> None:
        job = yarn.submit('command = "true"\\n[roles.worker]\\ninstances = 2')
        assert job.wait().outcome == "succeeded"

`yarn` is a fixture on the cluster all tests share; `Yarn` works with any cluster.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from howdah.client.api import submit
from howdah.client.errors import Unreachable
from howdah.client.sync import JobHandle
from howdah.storage.hdfs.files import Hdfs
from howdah.storage.jobdir import JobDirectory
from howdah.wire.status import JobView, TaskView
from tests.hadoop.cluster import Cluster
from tests.processes import runs

T = TypeVar("T")

WAIT_S = 120.0
DAEMON_S = 120.0
"""A daemon that was just started serves by then."""
SMALL = """
[master]
memory = "256m"
[timeouts]
stop-grace = "1s"
"""

STEPS = """
import os, time
from pathlib import Path
from howdah import task
folder = os.environ.get("HOWDAH_CHECKPOINT_DIR")
saved = Path(folder or ".", "step.txt")
step = int(saved.read_text()) if folder and saved.exists() else 0
print("from step", step, flush=True)
last = False
while not last:
    last = os.path.exists(os.environ["STOP_FILE"])
    step += 1
    if folder and (last or step % 4 == 0):
        saved.with_name("next.tmp").write_text(str(step))
        saved.with_name("next.tmp").rename(saved)
        task.checkpoint_saved(step)
    print("step", step, "pid", os.getpid(), "at", time.time(), flush=True)
    time.sleep(0.1)
print("trained to step", step, flush=True)
"""


def until(condition: Callable[[], T | None], what: str, within_s: float = WAIT_S) -> T:
    """Wait for a condition to give something; fail in words."""
    deadline = time.monotonic() + within_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {within_s:g}s: {what}")
        time.sleep(0.05)


def make_whole(cluster: Cluster) -> None:
    """Start what has been killed, and let one of each kind serve."""
    for daemon in cluster.site.daemons:
        if not cluster.is_running(daemon.name):
            cluster.start(daemon.name)
    if cluster.active_name_node() is None:
        until(lambda: _done(lambda: cluster.make_name_node_active(1)), "a NameNode", DAEMON_S)
    if cluster.active() is None:
        make_active(cluster, 1)
    cluster.wait_ready()


def make_active(cluster: Cluster, number: int) -> None:
    """Once it answers: it may have just been started."""

    def is_active() -> bool:
        with contextlib.suppress(OSError):
            cluster.make_active(number)
        return cluster.active() == number

    until(is_active, f"resourcemanager{number} serves", DAEMON_S)


def _done(work: Callable[[], object]) -> bool:
    """Whether the daemon was up already."""
    with contextlib.suppress(OSError):
        work()
        return True
    return False


class Yarn:
    """Submits jobs to one cluster, with folders of its own. ``HADOOP_CONF_DIR`` and
    ``HOWDAH_HOME`` are set by the fixture."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.jobs: list[YarnJob] = []

    def submit(
        self, text: str, *, files: dict[str, str] | None = None, small: bool = True
    ) -> YarnJob:
        """Submit the job file with that text; ``files`` lie beside it (its source folder).

        ``small``: with a master and graces for tests, unless the text has such tables itself.
        """
        source = self.folder / f"source-{len(self.jobs)}"
        source.mkdir()
        for name, content in (files or {}).items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text(content)
        if small:
            text = with_defaults(text)
        (source / "job.toml").write_text(text)
        return self.submit_file(source / "job.toml")

    def steps(self, more: str = "", instances: int = 2, memory: str = "256m") -> YarnJob:
        """A job that counts until `stop`; with ``[checkpoint]`` it saves its steps."""
        text = f"""
command = "python3 steps.py"
env = {{ STOP_FILE = "{self.folder}/stop-{len(self.jobs)}" }}
{more}
[roles.worker]
instances = {instances}
memory = "{memory}"
"""
        return self.submit(text, files={"steps.py": STEPS})

    def stop(self, job: YarnJob) -> None:
        """Let a job of `steps` come to its last step."""
        (self.folder / f"stop-{self.jobs.index(job)}").touch()

    def submit_file(self, path: Path, overrides: tuple[str, ...] = ()) -> YarnJob:
        """Submit a job file."""
        job = YarnJob(self.cluster, submit(path, backend="yarn", overrides=overrides))
        self.jobs.append(job)
        return job

    def close(self) -> None:
        """End what still runs, and check that nothing is left of any job."""
        for job in self.jobs:
            job.end()
        for job in self.jobs:
            until(lambda job=job: not job.processes(), f"{job.job_id} leaves no process", 20.0)


def with_defaults(text: str) -> str:
    """The job file with `SMALL`'s tables it does not have itself."""
    for table in SMALL.split("\n["):
        name, _, rest = table.strip().lstrip("[").partition("]")
        if name and f"[{name}]" not in text:
            text += f"\n[{name}]{rest}\n"
    return text


class YarnJob:
    """One submitted job."""

    def __init__(self, cluster: Cluster, handle: JobHandle) -> None:
        self.cluster = cluster
        self.handle = handle
        self.job_id = handle.job_id
        self.directory = JobDirectory(handle.directory)
        meta = self.directory.meta()
        assert meta.url is not None
        assert meta.application_id is not None
        self.url = meta.url
        self.application_id = meta.application_id

    def view(self) -> JobView:
        """The job as it is now; asked for again on a machine that has other things to do."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return self.handle.status()
            except Unreachable:
                if time.monotonic() > deadline:
                    raise

    def wait(self, within_s: float = WAIT_S) -> JobView:
        """Its end."""
        return self.handle.wait(within_s)

    def until(
        self, condition: Callable[[JobView], T | None], what: str, within_s: float = WAIT_S
    ) -> T:
        """Wait for something of its status document."""
        last: list[JobView] = []

        def look() -> T | None:
            last[:] = [self.view()]
            return condition(last[0])

        try:
            return until(look, what, within_s)
        except AssertionError as error:
            story = [(t.task, t.state, t.attempt) for t in last[0].tasks] if last else []
            raise AssertionError(f"{error}: {story} {last[0].reason if last else ''}") from None

    def running(self, within_s: float = WAIT_S) -> list[TaskView]:
        """All tasks, once all of them run."""

        def all_run(view: JobView) -> list[TaskView] | None:
            tasks = list(view.tasks)
            return tasks if tasks and all(t.state == "running" for t in tasks) else None

        return self.until(all_run, "all tasks run", within_s)

    def task(self, name: str) -> TaskView:
        """One task as it is now."""
        return next(task for task in self.view().tasks if task.task == name)

    def log(self, task: str) -> str:
        """What a task has printed, as far as it is told."""
        return "\n".join(line.text for line in self.handle.logs(task, follow=False))

    def until_logged(self, task: str, text: str, within_s: float = WAIT_S) -> str:
        """Wait until the task has printed that text; all of its log then."""

        def look() -> str | None:
            log = self.log(task)
            return log if text in log else None

        return until(look, f"{task} prints {text!r}", within_s)

    # -- on the cluster --------------------------------------------------------------------------

    def application(self) -> dict[str, Any]:
        """What the ResourceManager says of it."""
        return self.cluster.rm(f"apps/{self.application_id}")["app"]

    def until_application(self, state: str, within_s: float = WAIT_S) -> dict[str, Any]:
        """Wait until YARN has it in that state."""

        def look() -> dict[str, Any] | None:
            told = self.application()
            return told if told["state"] == state else None

        return until(look, f"{self.application_id} is {state}", within_s)

    def read(self, name: str) -> bytes:
        """A file of the job directory on HDFS."""
        return Hdfs(self.url, conf_dir=str(self.cluster.conf_dir)).read(f"{self.url}/{name}")

    def containers(self) -> list[str]:
        """Its containers on the nodes, the master's included."""
        application = self.application_id.removeprefix("application_")
        return [each["id"] for each in self.cluster.containers() if application in each["id"]]

    # -- its processes ---------------------------------------------------------------------------

    def master(self) -> psutil.Process:
        """The coordinator's process, once there is one."""
        return until(self.masters, f"the master of {self.job_id} runs")[0]

    def masters(self) -> list[psutil.Process]:
        """All processes of coordinators: a former one that nobody can reach may run for a while."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if "howdah.coordinator" in words and self.url in words and "-m" in words:
                    if Path(words[0]).name.startswith("python"):
                        found.append(process)
        return found

    def processes(self) -> list[psutil.Process]:
        """Agents, programs and everything they have started: what has the job's marker, or is of
        one of its containers. The master is none of them."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                env = process.environ()
                mine = env.get("HOWDAH_CONTAINER", "").startswith(f"{self.job_id}/")
                if (mine or self._number in env.get("CONTAINER_ID", "")) and (
                    "howdah.coordinator" not in process.cmdline()
                ):
                    found.append(process)
        return [process for process in found if runs(process)]

    @property
    def _number(self) -> str:
        """Part of the names of all its containers."""
        return f"_{self.application_id.removeprefix('application_')}_"

    def agent(self, task: str) -> psutil.Process:
        """The agent's process of a task, the oldest of its container's."""
        container = self.task(task).container
        born: dict[psutil.Process, float] = {}
        for process in self.processes():
            # Some have ended since, and what has only the job's marker is of no container.
            with contextlib.suppress(psutil.Error):
                if process.environ().get("CONTAINER_ID") == container:
                    born[process] = process.create_time()
        return min(born, key=born.__getitem__)

    def births(self) -> dict[int, float]:
        """Agents and programs with their start times."""
        view = self.view()
        pids = [pid for task in view.tasks for pid in task.pids]
        processes = [psutil.Process(pid) for pid in pids] + [self.agent(t.task) for t in view.tasks]
        return {process.pid: process.create_time() for process in processes}

    def last_step(self, task: str) -> int:
        """Of a job of `steps`."""
        # The last line may be on its way.
        steps = re.findall(r"^step (\d+)", self.log(task), re.MULTILINE)
        return int(steps[-1]) if steps else 0

    def goes_on(self, task: str) -> None:
        """Wait for steps that were made from now on."""
        seen = self.last_step(task)
        until(lambda: self.last_step(task) > seen + 5, "steps go on")

    def saves_on(self) -> None:
        """Wait until a checkpoint is on HDFS that was not saved before."""
        before = self.view().checkpoint
        self.until(lambda v: v.checkpoint not in (None, before), "a new checkpoint is saved")

    def kill_master(self) -> int:
        """kill -9; its process id."""
        master = self.master()
        os.kill(master.pid, signal.SIGKILL)
        with contextlib.suppress(psutil.Error):
            master.wait(10)
        return master.pid

    def end(self) -> None:
        """Kill the application if it still runs."""
        with contextlib.suppress(Exception):
            if self.application()["state"] not in ("FINISHED", "FAILED", "KILLED"):
                self.cluster.rm(f"apps/{self.application_id}/state", "PUT", {"state": "KILLED"})

    def story(self) -> str:
        """For a failure's message: what the coordinator wrote."""
        with contextlib.suppress(OSError):
            return self.read("logs/coordinator.log").decode()
        return ""
