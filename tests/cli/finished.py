"""Two jobs that have ended, made once in a run of the tests: most commands only look at such.

They are everybody's: who changes one changes a `copy` in a home of the test's own.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from howdah.storage import layout
from howdah.storage.jobdir import JobDirectory, base_folder, list_jobs
from tests.cli.howdah import gone, job_file
from tests.cli.inside import howdah

DIGITS = """
import os, pathlib
from howdah import task
me = os.environ["HOWDAH_INDEX"]
pathlib.Path("model").mkdir()
pathlib.Path("model/weights.pt").write_text("weights of " + me)
pathlib.Path("notes.txt").write_text("notes")
pathlib.Path("saved/step-5").write_text("weights")
for step in range(3):
    task.report(step=step, loss=1 / (step + 1))
print("all is well with", me)
"""
LETTERS = """
print("one")
print("two")
raise SystemExit(3)
"""


class Finished(NamedTuple):
    """The jobs, and their home."""

    home: Path
    digits: JobDirectory
    """Of two tasks that succeeded: they reported, made files and saved a checkpoint."""
    letters: JobDirectory
    """Of one task that failed twice."""

    def copy(self, job_id: str, *, failed: bool = False, later_s: float = 0.0) -> JobDirectory:
        """A job of that id in the test's own home, whose files are those of one of the two.

        ``later_s``: so much later it was submitted and has ended.
        """
        job = self.letters if failed else self.digits
        made = JobDirectory(base_folder() / job_id)
        shutil.copytree(job.path, made.path)
        final = job.final()
        assert final is not None
        assert final.finished is not None
        meta = job.meta()
        name, submitted = job_id.rsplit("-", 3)[0], meta.submitted + later_s
        made.write_final(
            msgspec.structs.replace(
                final,
                job_id=job_id,
                name=name,
                directory=str(made.path),
                submitted=submitted,
                finished=final.finished + later_s,
            )
        )
        made.write_meta(msgspec.structs.replace(meta, job_id=job_id, submitted=submitted))
        file = made.path / layout.JOB
        file.write_text(json.dumps({**json.loads(file.read_bytes()), "name": name}))
        return made


def made_once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]
) -> tuple[Path, dict[str, JobDirectory]]:
    """The home of jobs that one process of a run makes for all, and the jobs by name."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder /= name
    folder.mkdir(exist_ok=True)
    home, done = folder / "home", folder / "done"
    with pytest.MonkeyPatch.context() as patch, (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        patch.setenv("HOWDAH_HOME", str(home))
        patch.setenv("HOWDAH_SITE", "")
        if not done.exists():
            make(folder)
            for each in list_jobs(base_folder()):
                gone(each)
            done.touch()
        return home, {each.job_id.partition("-")[0]: each for each in list_jobs(base_folder())}


def finished(factory: pytest.TempPathFactory) -> Finished:
    """The two jobs, shared by all processes of the run."""
    home, jobs = made_once(factory, "finished", _make)
    return Finished(home, jobs["digits"], jobs["letters"])


def _make(folder: Path) -> None:
    file = job_file(
        folder / "a",
        DIGITS,
        name="digits",
        tags=["night", "gpu"],
        roles={"worker": {"instances": 2}},
        checkpoint={"folder": "saved", "settle": "20ms"},
    )
    howdah("run", str(file))
    file = job_file(folder / "b", LETTERS, name="letters", tags=["night"], attempts=2)
    howdah("run", str(file), code=1)
