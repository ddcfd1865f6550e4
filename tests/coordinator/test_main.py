"""The coordinator's process: what its exit code says, and what it leaves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from howdah.spec.model import Job, Role
from howdah.storage import coordinator_ends
from howdah.storage.copies.mirror import Mirror, open_replica
from howdah.storage.hdfs.files import Hdfs
from howdah.storage.jobdir import JobDirectory, StorageError
from howdah.storage.journal import Journal
from howdah.storage.layout import CoordinatorAddress
from howdah.wire.status import JobView
from tests.coordinator.fakes import make_job
from tests.hdfs.conftest import url

__all__ = ["url"]


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


def test_a_damaged_journal_is_named_and_left_alone_and_word_left_why(tmp_path: Path) -> None:
    directory = make_job(tmp_path, backend="local")
    journal = directory.path / "events-0001.jsonl"
    journal.write_bytes(b"this is no journal\nnor is this\n")
    assert run(directory) == 1
    assert directory.final() is None
    assert f"{journal}, line 1" in log_of(directory)
    assert journal.read_bytes().startswith(b"this is no journal")
    (end,) = coordinator_ends.read(directory.path)
    assert "line 1" in end.reason


def test_a_job_has_one_coordinator_at_a_time(tmp_path: Path) -> None:
    directory = make_job(tmp_path, backend="local")
    journal = Journal.open(directory.path)
    try:
        assert run(directory) == 1
        assert "one coordinator at a time" in log_of(directory)
    finally:
        asyncio.run(journal.close())


def run_remote(url: str, here: Path) -> subprocess.CompletedProcess[str]:
    """Coordinate the job from a container whose folder is ``here``."""
    here.mkdir()
    return subprocess.run(
        [sys.executable, "-c", REMOTE, f"{url}/job", str(here)],
        check=False,
        timeout=60,
        capture_output=True,
        text=True,
    )


def remote_job(url: str, tmp_path: Path, backend: str) -> None:
    directory = make_job(tmp_path / "submitter", backend=backend)
    directory.write_meta(msgspec.structs.replace(directory.meta(), url=f"{url}/job"))
    Mirror(f"{url}/job", directory.path).create()


def test_a_coordinator_of_a_remote_job_leaves_word_there(url: str, tmp_path: Path) -> None:
    remote_job(url, tmp_path, "local")
    Hdfs(url).write_new(f"{url}/job/events-0001.jsonl", b"this is no journal\nnor is this\n")
    done = run_remote(url, tmp_path / "container_1_0001_01_000001")
    assert done.returncode == 1
    assert "line 1" in done.stderr, "for YARN's diagnostics"
    Mirror(f"{url}/job", tmp_path / "next").fetch()
    (end,) = coordinator_ends.read(tmp_path / "next")
    assert (end.who, "line 1" in end.reason) == ("container_1_0001_01_000001", True)


@pytest.mark.nightly
def test_a_coordinator_that_cannot_begin_on_a_cluster_tells_the_cluster_why(
    url: str, tmp_path: Path
) -> None:
    remote_job(url, tmp_path, "yarn")
    done = run_remote(url, tmp_path / "container_1_0001_01_000001")
    assert done.returncode == 1, "YARN would take an end without an error for a lost master"
    assert "This master cannot work" in done.stderr.splitlines()[-1]


REMOTE = """
import sys
from pathlib import Path
from howdah.coordinator import main
from howdah.storage import coordinator_ends
coordinator_ends.FIRST_PAUSE_S = 0.0
sys.exit(main.main_remote(sys.argv[1], Path(sys.argv[2])))
"""


FULL_DISK = """
import errno
import os
import sys
from howdah.coordinator import main
from howdah.storage.journal import Journal

def full(*arguments, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

Journal.open = full
sys.exit(main.main(sys.argv[1]))
"""


def test_a_full_disk_is_told_from_a_coordinator_that_fails(tmp_path: Path) -> None:
    directory = make_job(tmp_path, backend="local")
    line = [sys.executable, "-c", FULL_DISK, str(directory.path)]
    assert subprocess.run(line, check=False, timeout=60).returncode == coordinator_ends.NO_ROOM


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
