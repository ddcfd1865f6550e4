"""The coordinator's process: what its exit code says, and what it leaves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from howdah.spec.model import Job, Role
from howdah.storage.jobdir import JobDirectory, StorageError
from howdah.storage.journal import Journal
from howdah.storage.layout import CoordinatorAddress
from howdah.storage.mirror import open_replica
from howdah.wire.status import JobView
from tests.coordinator.fakes import make_job


def run(directory: JobDirectory) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "howdah.coordinator", str(directory.path)],
        check=False,
        timeout=30,
        capture_output=True,
        text=True,
    )
    assert not done.stdout and not done.stderr, "everything it says is in its log"
    return done.returncode


def log_of(directory: JobDirectory) -> str:
    return (directory.logs / "coordinator.log").read_text()


def test_a_job_that_is_over_needs_no_coordinator(tmp_path: Path) -> None:
    directory = make_job(tmp_path, backend="local")
    directory.write_final(
        JobView(job_id="j", name="j", framework="f", user="u", backend="b", phase="finished")
    )
    address = CoordinatorAddress(incarnation=1, host="h", port=1, http_port=1, pid=1)
    directory.write_coordinator(address)
    assert run(directory) == 0
    assert directory.coordinator() is None, "what a dead one left is tidied up"
    assert not directory.containers.exists()


def test_a_job_that_cannot_begin_ends_in_words(tmp_path: Path) -> None:
    job = Job(name="fake", framework="no-such", command="true", roles={"worker": Role()})
    directory = make_job(tmp_path, job, backend="local")
    assert run(directory) == 0
    final = directory.final()
    assert final is not None
    assert (final.phase, final.outcome, final.exit_code) == ("finished", "failed", 1)
    assert "no-such" in final.reason


def test_a_damaged_journal_is_named_and_left_alone(tmp_path: Path) -> None:
    directory = make_job(tmp_path, backend="local")
    journal = directory.path / "events-0001.jsonl"
    journal.write_bytes(b"this is no journal\nnor is this\n")
    assert run(directory) == 1
    assert directory.final() is None
    assert f"{journal}, line 1" in log_of(directory)
    assert journal.read_bytes().startswith(b"this is no journal")


def test_a_job_has_one_coordinator_at_a_time(tmp_path: Path) -> None:
    directory = make_job(tmp_path, backend="local")
    journal = Journal.open(directory.path)
    try:
        assert run(directory) == 1
        assert "one coordinator at a time" in log_of(directory)
    finally:
        asyncio.run(journal.close())


def test_without_a_job_directory_it_says_how_to_be_called() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "howdah.coordinator"],
        check=False,
        timeout=30,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "usage" in done.stderr


def test_a_job_directory_on_a_store_without_a_journal_is_refused_in_words() -> None:
    with pytest.raises(StorageError, match="can't be at s3://bucket/job: .* use a folder, or HDFS"):
        open_replica("s3://bucket/job")
