from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from howdah.core.messages import Task
from howdah.spec.model import Checkpoint, Job, Role, Timeouts
from howdah.storage.files import write_atomically
from howdah.storage.jobdir import (
    JobDirectory,
    NoSuchJob,
    StorageError,
    base_folder,
    find,
    list_jobs,
    new_job_id,
    user_name,
)
from howdah.storage.layout import CoordinatorAddress, JobMeta
from howdah.wire.status import JobView, TaskView

JOB = Job(
    name="digits",
    framework="pytorch",
    command=["python", "train.py", "--lr", "0.1"],
    env={"TRICKY": 'a "b" $c `d` \\ é\n'},
    roles={"worker": Role(instances="2..8", memory="2g"), "ps": Role(instances=1)},
    timeouts=Timeouts(stop_grace="3s"),
)
META = JobMeta(job_id="digits-1", user="ann", backend="local", submitted=1.5, source="/code")
VIEW = JobView(
    job_id="digits-1",
    name="digits",
    framework="pytorch",
    user="ann",
    backend="local",
    phase="finished",
    outcome="failed",
    tasks=(
        TaskView(task="worker:0", role="worker", index=0, state="ended", attempt=1, generation=1),
    ),
)


def created(base: Path, job_id: str) -> JobDirectory:
    directory = JobDirectory(base / job_id)
    directory.create(JOB, META)
    return directory


def test_documents_come_back_as_they_were(tmp_path: Path) -> None:
    directory = created(tmp_path, "digits-1")
    assert directory.job() == JOB
    assert directory.meta() == META
    assert directory.job_id == "digits-1"


@pytest.mark.nightly
def test_threads_may_be_the_first_to_read_at_once(tmp_path: Path) -> None:
    """msgspec ended the process: nine times of ten, where threads take turns as often as here."""
    directory = JobDirectory(tmp_path / "digits")
    directory.create(JOB, META)
    directory.write_final(VIEW)
    program = (
        "import sys, threading\n"
        "from howdah.storage.jobdir import JobDirectory\n"
        "directory, barrier = JobDirectory(sys.argv[1]), threading.Barrier(4)\n"
        "def read():\n"
        "    barrier.wait()\n"
        "    directory.final(), directory.meta(), directory.job()\n"
        "threads = [threading.Thread(target=read) for _ in range(4)]\n"
        "sys.setswitchinterval(1e-6)\n"
        "[thread.start() for thread in threads], [thread.join() for thread in threads]\n"
    )
    done = subprocess.run([sys.executable, "-c", program, directory.path], timeout=50)
    assert done.returncode == 0


def test_the_coordinators_address_comes_and_goes(tmp_path: Path) -> None:
    directory = created(tmp_path, "digits-1")
    assert directory.coordinator() is None
    address = CoordinatorAddress(incarnation=2, host="h", port=1, http_port=2, pid=3)
    directory.write_coordinator(address)
    assert directory.coordinator() == address
    directory.remove_coordinator()
    directory.remove_coordinator()
    assert directory.coordinator() is None


def test_the_end_is_there_once_it_is_written(tmp_path: Path) -> None:
    directory = created(tmp_path, "digits-1")
    assert directory.final() is None
    directory.write_final(VIEW)
    assert directory.final() == VIEW


def test_everything_is_the_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        directory = created(tmp_path / "ann", "digits-1")
        directory.write_coordinator(
            CoordinatorAddress(incarnation=1, host="h", port=1, http_port=2, pid=3)
        )
        directory.write_final(VIEW)
    finally:
        os.umask(before)
    for path in [tmp_path / "ann", directory.path, *directory.path.rglob("*")]:
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_a_job_is_created_once(tmp_path: Path) -> None:
    created(tmp_path, "digits-1")
    with pytest.raises(FileExistsError):
        created(tmp_path, "digits-1")


def test_what_is_no_job_directory_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="has no job.json: it is no job directory"):
        JobDirectory(tmp_path).job()
    with pytest.raises(StorageError, match="has no meta.json: it is no job directory"):
        JobDirectory(tmp_path).token()
    with pytest.raises(StorageError, match="token of job .* can't be read"):
        created(tmp_path, "digits-1").token()


def test_a_damaged_document_is_named(tmp_path: Path) -> None:
    directory = created(tmp_path, "digits-1")
    (directory.path / "final.json").write_text('{"job_id": 3')
    with pytest.raises(StorageError, match=r"final\.json can't be read"):
        directory.final()


def test_a_newer_versions_document_can_be_read(tmp_path: Path) -> None:
    directory = created(tmp_path, "digits-1")
    (directory.path / "coordinator.json").write_text(
        '{"incarnation":1,"host":"h","port":1,"http_port":2,"pid":3,"planet":"earth"}'
    )
    assert directory.coordinator() is not None


def test_logs_are_found_by_attempt(tmp_path: Path) -> None:
    directory = created(tmp_path, "digits-1")
    task = Task("worker", 1)
    assert directory.log_attempts(task) == []
    for name in ("10.log", "2.log", "2.idx", "2.log.000000000000001000", "notes.log"):
        path = directory.log_path(task, 1).with_name(name)
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert directory.log_attempts(task) == [2, 10]
    assert directory.log_path(task, 2) == directory.path / "logs" / "worker-1" / "2.log"
    assert directory.log_attempts(Task("worker", 11)) == []


# -- ids and bases -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "beginning"),
    [
        ("digits", "digits-19700101-000000-"),
        ("My Great_Job.v2!", "my-great-job-v2-19700101-"),
        ("--", "job-19700101-"),
        ("Zoë", "zo-19700101-"),
        ("x" * 100, "x" * 30 + "-19700101-"),
        ("x" * 29 + "-y", "x" * 29 + "-19700101-"),
    ],
)
def test_ids_are_dns_labels_that_begin_with_the_name(name: str, beginning: str) -> None:
    job_id = new_job_id(name, now=0.0)
    assert job_id.startswith(beginning)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", job_id)


def test_ids_are_unique_and_sort_by_time() -> None:
    ids = [new_job_id("digits", now=float(second)) for second in range(50)]
    assert ids == sorted(ids)
    assert len({new_job_id("digits", now=0.0) for _ in range(100)}) > 95


def test_the_base_is_the_stores_else_the_homes_folder_of_the_user(tmp_path: Path) -> None:
    user = user_name()
    assert base_folder(str(tmp_path)) == tmp_path / user
    assert base_folder(f"file://{tmp_path}") == tmp_path / user
    assert base_folder(None, {"HOWDAH_HOME": str(tmp_path)}) == tmp_path / "jobs" / user
    assert base_folder(None, {}) == Path.home() / ".howdah" / "jobs" / user


def test_a_store_that_is_no_folder_is_refused_in_words() -> None:
    with pytest.raises(StorageError, match="'s3://bucket/jobs' is no local folder"):
        base_folder("s3://bucket/jobs")


# -- finding -------------------------------------------------------------------------------------

IDS = (
    "zebra-20261121-143502-aaaa",
    "digits-20261121-143503-bbbb",
    "digits-20261122-090000-cccc",
)


def test_jobs_are_listed_newest_first(tmp_path: Path) -> None:
    for job_id in IDS:
        created(tmp_path, job_id)
    (tmp_path / "not-a-job").mkdir()
    (tmp_path / "file").touch()
    assert [job.job_id for job in list_jobs(tmp_path)] == [IDS[2], IDS[1], IDS[0]]
    assert list_jobs(tmp_path / "nowhere") == []


def test_a_job_is_found_by_its_id_or_a_beginning_only_it_has(tmp_path: Path) -> None:
    for job_id in IDS:
        created(tmp_path, job_id)
    assert find(tmp_path, IDS[0]).job_id == IDS[0]
    assert find(tmp_path, "ze").job_id == IDS[0]
    assert find(tmp_path, "digits-20261122").job_id == IDS[2]


def test_an_id_that_is_the_beginning_of_another_is_itself(tmp_path: Path) -> None:
    created(tmp_path, "job-1")
    created(tmp_path, "job-10")
    assert find(tmp_path, "job-1").job_id == "job-1"


def test_what_is_not_found_is_answered_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(NoSuchJob, match="has no jobs yet"):
        find(tmp_path, "digits")
    for job_id in IDS:
        created(tmp_path, job_id)
    with pytest.raises(NoSuchJob, match=r"beginning of 2 job ids.*cccc.*bbbb"):
        find(tmp_path, "digits")
    with pytest.raises(NoSuchJob, match=r"no job 'mnist'.*cccc.*howdah list"):
        find(tmp_path, "mnist")
    with pytest.raises(NoSuchJob, match=r"no job 'digist'.*did you mean digits-.*cccc, .*bbbb\?"):
        find(tmp_path, "digist")
    assert find(tmp_path, "Zeb").job_id == IDS[0], "a name as its job file has it"
    for wanted in ("", "../x", "/etc"):
        with pytest.raises(NoSuchJob):
            find(tmp_path, wanted)


# -- files ---------------------------------------------------------------------------------------


def test_an_atomic_write_leaves_the_old_file_if_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, b"old")

    def broken(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_each_job_has_a_folder_of_its_own_in_a_checkpoint_store_jobs_share(tmp_path: Path) -> None:
    first, second = JobDirectory(tmp_path / "one"), JobDirectory(tmp_path / "two")
    shared = Checkpoint(store="s3://bucket/saved/")
    assert first.checkpoint_store(shared) == "s3://bucket/saved/one"
    assert second.checkpoint_store(shared) == "s3://bucket/saved/two"
    assert first.checkpoint_store(Checkpoint()) == str(tmp_path / "one" / "checkpoints")
