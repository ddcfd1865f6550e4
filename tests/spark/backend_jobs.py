"""Function jobs on the Spark backend, as `howdah.spark` starts them, without its feeds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from howdah.backends.local import runtime_paths
from howdah.backends.spark import SparkSubmission
from howdah.client.submission.functions import FunctionJob, values
from howdah.client.submission.submit import submit
from howdah.spec.load import LoadedJob
from howdah.spec.model import Slots, Spark
from howdah.storage.jobdir import JobDirectory
from howdah.wire.status import JobView

DEADLINE_S = 120.0


class FarSubmission(SparkSubmission):
    """Its executors do not see the job directory: they look for another nonce in it."""

    def _prepare(self, directory: JobDirectory) -> Any:
        bundle = super()._prepare(directory)
        config = msgspec.structs.replace(bundle.config, nonce="not this one")
        return msgspec.structs.replace(bundle, config=config)


class Started:
    """One job."""

    def __init__(
        self,
        spark: Any,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        *,
        slots: Slots | None = Slots.SHARED,
        roles: dict[str, Any] | None = None,
        far: bool = False,
        on_driver: frozenset[str] = frozenset(),
        source: Path | None = None,
        host: str | None = None,
        profile: Any = None,
        **fields: Any,
    ) -> None:
        kind = FarSubmission if far else SparkSubmission
        self.submission = kind(spark, on_driver=on_driver, profile=profile)
        self.submission.host = host or self.submission.host
        roles = roles or {"worker": 2}
        call = FunctionJob(function, args, roles=roles, spark=Spark(slots=slots), **fields)
        self.directory = submit(
            LoadedJob(job=call.job, source=source),
            backend="spark",
            populate=call.populate,
            submission=self.submission,
        )

    @property
    def job_id(self) -> str:
        return self.directory.job_id

    def ended(self, timeout_s: float = DEADLINE_S) -> JobView:
        """How it ended, once it has and nothing is left of it."""
        assert self.submission.closed.wait(timeout_s), self.story()
        view = self.directory.final()
        assert view is not None, self.story()
        return view

    def values(self) -> dict[int, Any]:
        return values(self.directory, self.ended())

    def story(self) -> str:
        """The coordinator's log, for whoever has to find out why a test has failed."""
        log = self.directory.logs / "coordinator.log"
        return log.read_text() if log.exists() else "the coordinator never had a log"

    def processes(self) -> list[psutil.Process]:
        """Everything that carries this job's marker."""
        return marked(self.job_id)


def marked(job_id: str) -> list[psutil.Process]:
    """Living processes of the job's containers."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOWDAH_CONTAINER", "").startswith(f"{job_id}/"):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def container_folders() -> list[Path]:
    """Folders of container processes that live, or have left something."""
    return sorted(
        (Path(os.environ[runtime_paths.FOLDER_VARIABLE]) / f"howdah-{os.getuid()}").glob("s-*")
    )


def eventually(holds: Callable[[], Any], what: str, timeout_s: float = DEADLINE_S) -> Any:
    """What it returns once that is true."""
    deadline = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)
    return found


def wait_for(file: str) -> int:
    """A job's function that notes who runs it, and waits to be let go by that file."""
    folder = Path(file).parent
    (folder / f"{os.environ['HOWDAH_RANK']}.{os.getpid()}.said").write_text("here")
    while not Path(file).exists():
        time.sleep(0.02)
    return os.getpid()


def pids(folder: Path) -> list[int]:
    """Who has run `wait_for` for a file of that folder."""
    return sorted(int(path.name.split(".")[1]) for path in folder.glob("*.said"))
