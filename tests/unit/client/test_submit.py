"""Submission is all or nothing: what fails before the start leaves nothing, a refusal is kept."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from howdah.backends.base import BackendError, Step, SubmissionCancelled
from howdah.backends.local.submit import LocalSubmission
from howdah.client.errors import BadInput
from howdah.client.submission import begin as submission_start
from howdah.client.submission import submit as submission
from howdah.client.submission.functions import place
from howdah.client.submission.loading import load_again, load_object
from howdah.client.submission.submit import submit
from howdah.spec.load import LoadedJob
from howdah.spec.model import Job, Role
from howdah.spec.problems import JobFileError
from howdah.storage.jobdir import JobDirectory, base_folder, list_jobs


class Starter:
    """Stands in for a backend's submission."""

    def __init__(self, problem: BaseException | None = None) -> None:
        self.problem = problem
        self.gone: list[Path] = []
        self.closed = False

    def base(self, job: Job) -> Path:
        return base_folder(job.store)

    def check(self, job: Job, loaded: LoadedJob) -> None:
        assert "worker" in job.roles  # expanded

    def go(self, directory: JobDirectory, progress: Callable[[Step], None]) -> None:
        if self.problem is not None:
            raise self.problem
        self.gone.append(directory.path)

    def cancel(self) -> None: ...

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOWDAH_SITE", "")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def start(loaded: LoadedJob, starter: Starter, **options: Any) -> JobDirectory:
    return submit(loaded, submission=starter, **options)


def job(**fields: Any) -> LoadedJob:
    return load_object(Job(name="test", command="true ${job.id}", **fields))


def test_a_complete_private_directory_is_handed_over() -> None:
    starter = Starter()
    directory = start(job(roles={"worker": Role(instances=2)}), starter)
    assert starter.gone == [directory.path]
    assert directory.job().command == f"true {directory.job_id}"
    assert directory.meta().backend == "local"
    assert len(directory.token()) >= 32
    for path in [directory.path, *directory.path.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    secret = directory.token()
    for path in directory.path.rglob("*"):
        if path.is_file() and path.parent != directory.secrets:
            assert secret not in path.read_text()


def test_the_directory_goes_when_something_fails_before_the_start() -> None:
    starter = Starter()

    def populate(directory: JobDirectory) -> None:
        assert directory.path.exists()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(job(), starter, populate=populate)
    assert list_jobs(base_folder()) == []
    assert starter.closed


def test_a_submission_that_was_cancelled_leaves_nothing() -> None:
    with pytest.raises(SubmissionCancelled):
        start(job(), Starter(SubmissionCancelled("nothing was submitted")))
    assert list_jobs(base_folder()) == []


def test_the_site_file_and_the_environment_say_where_jobs_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert submission_start.default_backend() == "local"
    site = tmp_path / "site.toml"
    site.write_text('backend = "yarn"\nqueue = "research"\n')
    monkeypatch.setenv("HOWDAH_SITE", str(site))
    assert submission_start.default_backend() == "yarn"
    assert job().job.queue == "research"
    monkeypatch.setenv("HOWDAH_BACKEND", "local")
    assert submission_start.default_backend() == "local"


def test_a_misspelt_backend_of_the_site_file_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site.toml"
    site.write_text('queu = "research"\nbackend = "yarm"\n')
    monkeypatch.setenv("HOWDAH_SITE", str(site))
    with pytest.raises(JobFileError) as error:
        submission_start.default_backend()
    assert [str(each) for each in error.value.problems] == [
        f"{site}:1: queu: unknown key; did you mean queue?",
        f'{site}:2: backend: there is no backend "yarm"; did you mean "yarn"?',
    ]


def test_a_refusing_backend_leaves_a_failed_job_with_the_reason() -> None:
    with pytest.raises(BackendError, match="no sockets"):
        start(job(), Starter(BackendError("no sockets can be made here")))
    (directory,) = list_jobs(base_folder())
    view = directory.final()
    assert view is not None
    assert (view.outcome, view.exit_code, view.phase) == ("failed", 1, "finished")
    assert "no sockets can be made here" in view.reason


def test_an_unknown_backend_is_refused_before_anything_is_made(home: Path) -> None:
    with pytest.raises(BadInput, match="no backend 'yran'"):
        submission.begin("yran")
    assert not home.exists()


def test_a_daemon_that_is_not_wanted_after_all_ends() -> None:
    starter = submission.begin("local")
    assert isinstance(starter, LocalSubmission)
    process = starter._starter._spawned.process
    starter.close()
    assert process.poll() is not None


def test_a_job_again_is_the_same_but_for_its_id() -> None:
    first = start(
        load_object(
            Job(
                name="test",
                command="echo ${job.id} $${env:HOME} $HOME $${job.id}",
                env={"WORD": "${env:NOT_SET:-fallback}"},
            )
        ),
        Starter(),
    )
    again = start(load_again(first), Starter(), rerun_of=first.job_id)
    text = msgspec.json.encode(first.job()).decode().replace(first.job_id, again.job_id)
    expected = msgspec.json.decode(text, type=Job)
    expected = msgspec.structs.replace(expected, source=first.meta().source)
    assert again.job() == expected
    assert first.job().command == f"echo {first.job_id} ${{env:HOME}} $HOME ${{job.id}}"
    assert again.meta().rerun_of == first.job_id
    assert again.meta().source == first.meta().source


def test_a_job_again_is_held_against_the_limits_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site.toml"
    monkeypatch.setenv("HOWDAH_SITE", str(site))
    site.write_text("[limits]\nmax-instances = 4\n")
    first = start(job(roles={"worker": Role(instances=3)}), Starter())
    site.write_text("[limits]\nmax-instances = 6\n")
    assert load_again(first, ["roles.worker.instances=6"]).job.limits.max_instances == 6
    site.write_text("[limits]\nmax-instances = 2\n")
    with pytest.raises(JobFileError, match="may have 2"):
        load_again(first)


def test_the_script_of_function_jobs_needs_no_howdah(tmp_path: Path) -> None:
    from howdah.client.submission.functions import FunctionJob

    job = FunctionJob(lambda a, b: a + b, (1,), {"b": 2})
    directory = JobDirectory(tmp_path / "test-20270115-080000-aaaa")
    (directory.path / "results").mkdir(parents=True)
    job.populate(directory)
    script = directory.path / "function" / "call.py"
    assert not re.search(r"(from|import) howdah", script.read_text())
    env = {**os.environ, "HOWDAH_RANK": "3"}
    subprocess.run([sys.executable, str(script)], env=env, check=True, cwd=tmp_path)
    from howdah.client.submission import functions

    assert functions._result(directory, 3) == (True, 3)


def test_functions_are_refused_where_their_values_do_not_come_back() -> None:
    assert place("local") == "local"
    with pytest.raises(BadInput, match=r"backend 'yarn'.*howdah\.submit\(job, backend='yarn'\)"):
        place("yarn")
