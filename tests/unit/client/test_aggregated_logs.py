"""Logs of a job that has ended, which only YARN has, where it does not give all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from howdah.backends.yarn.client import aggregated
from howdah.cli.main import main
from howdah.client.errors import ExitCode
from howdah.core.messages import Task
from howdah.hadoop.aggregated import Log
from howdah.hadoop.aggregated.source import Place
from howdah.hadoop.errors import ConnectionLost
from howdah.storage.jobdir import JobDirectory, base_folder
from tests.unit.client.hdfs_folder import FolderHdfs
from tests.unit.client.test_accounting import make_trained
from tests.unit.client.test_jobs_on_hdfs import STORE

NAMES = [f"worker-{index}.{attempt}.log" for index in (0, 1) for attempt in (1, 2)]


class YarnsLogs:
    """Aggregated logs, some of which cannot be read."""

    def __init__(self) -> None:
        self.names = NAMES
        self.silent = False
        self.unreadable: set[str] = set()

    def of(self, app: object, user: str) -> list[Log]:
        if self.silent:
            raise OSError("nn.example does not answer")
        place = Place(0, 1, "none")
        return [
            Log("container_1_0001_01_000002", name, 9, "n1:1", "/f", place) for name in self.names
        ]

    def read(self, log: Log, start: int = 0) -> Iterator[bytes]:
        yield f"{log.name} ".encode()
        if log.name in self.unreadable:
            raise ConnectionLost("a DataNode is away")
        yield b"is here\n"


@pytest.fixture
def yarns(monkeypatch: pytest.MonkeyPatch) -> YarnsLogs:
    found = YarnsLogs()
    monkeypatch.setattr(aggregated, "AggregatedLogs", lambda configuration, files: found)
    return found


@pytest.fixture
def job(home: Path, hdfs: FolderHdfs) -> JobDirectory:
    """One that has ended on YARN and whose agents have copied no logs."""
    directory = JobDirectory(base_folder() / make_trained())
    meta = msgspec.structs.replace(
        directory.meta(),
        backend="yarn",
        url=f"{STORE}/ada/{directory.job_id}",
        application_id="application_1_0001",
    )
    directory.write_meta(meta)
    return directory


def test_a_log_that_cannot_be_read_now_is_named_and_asked_for_again(
    job: JobDirectory, yarns: YarnsLogs, capsys: pytest.CaptureFixture[str]
) -> None:
    yarns.unreadable = {"worker-1.2.log"}
    assert main(["logs", job.job_id, "--no-prefix"]) == 0
    told = capsys.readouterr()
    assert sorted(told.out.splitlines()) == [f"{name} is here" for name in NAMES[:3]]
    assert "a DataNode is away. Left out: worker:1 attempt 2\n" in told.err
    assert not job.log_path(Task("worker", 1), 2).exists()
    yarns.unreadable = set()
    assert main(["logs", job.job_id, "--no-prefix"]) == 0
    told = capsys.readouterr()
    assert sorted(told.out.splitlines()) == [f"{name} is here" for name in NAMES]
    assert told.err == ""


def test_logs_of_which_yarn_does_not_tell_are_not_called_empty(
    job: JobDirectory, yarns: YarnsLogs, capsys: pytest.CaptureFixture[str]
) -> None:
    yarns.silent = True
    assert main(["logs", job.job_id]) == ExitCode.BACKEND
    told = capsys.readouterr()
    assert "nn.example does not answer" in told.err and "written nothing" not in told.err
    job.log_path(Task("worker", 0), 1).parent.mkdir(parents=True)
    job.log_path(Task("worker", 0), 1).write_bytes(b"of its agent\n")
    assert main(["logs", job.job_id, "--no-prefix"]) == 0
    told = capsys.readouterr()
    assert told.out == "of its agent\n"
    left_out = "Left out: worker:0 attempt 2, worker:1 attempt 1, worker:1 attempt 2"
    assert left_out in told.err


def test_a_log_of_several_segments_is_brought_to_its_end(
    job: JobDirectory, yarns: YarnsLogs, capsys: pytest.CaptureFixture[str]
) -> None:
    """Agents begin another file each quarter of a log's largest size."""
    head = "worker-0.1.log"
    second = f"{head}.{len(f'{head} is here') + 1:018}"
    yarns.names = [second, head]
    yarns.unreadable = {head}
    assert main(["logs", job.job_id, "worker:0", "--attempt", "1"]) == ExitCode.BACKEND
    yarns.unreadable = set()
    capsys.readouterr()
    assert main(["logs", job.job_id, "worker:0", "--attempt", "1", "--no-prefix"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{head} is here", f"{second} is here"]
