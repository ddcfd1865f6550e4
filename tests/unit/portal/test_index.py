"""The list of jobs: read once, found by all that stands in it, made again when it is lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from howdah.portal.index import JobIndex, JobQuery
from howdah.spec.model import Job, Role
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import JobMeta
from howdah.wire.status import JobView

BEGIN = 1_790_000_000.0


def make(base: Path, number: int, **fields: Any) -> JobDirectory:
    """A job that has succeeded."""
    directory = JobDirectory(base / f"job{number}-20261121-{number:06}-k3f9")
    tags = fields.pop("tags", ())
    job = Job(name="digits", framework="command", roles={"worker": Role()}, tags=tags, queue="gpu")
    submitted = BEGIN + number
    meta = JobMeta(job_id=directory.job_id, user="ada", backend="local", submitted=submitted)
    directory.create(job, meta)
    view = JobView(
        job_id=directory.job_id,
        name="digits",
        framework="command",
        user="ada",
        backend="local",
        phase="finished",
        outcome="succeeded",
        submitted=submitted,
        finished=submitted + number,
    )
    directory.write_final(replace(view, **fields))
    return directory


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


@pytest.fixture
def index(base: Path, tmp_path: Path) -> Iterator[JobIndex]:
    made = JobIndex(base, tmp_path / "portal")
    yield made
    made.close()


def names(index: JobIndex, **query: Any) -> list[str]:
    return [row.job_id.partition("-")[0] for row in index.find(JobQuery(**query)).rows]


def test_a_job_is_in_the_queue_that_the_cluster_has_put_it_into(
    index: JobIndex, base: Path
) -> None:
    make(base, 1, queue="root.users.ada")
    make(base, 2)
    index.refresh()
    assert names(index, queue="root.users.ada") == ["job1"]
    assert names(index, queue="gpu") == ["job2"]


def test_a_job_that_has_ended_is_read_once(index: JobIndex, base: Path) -> None:
    first = make(base, 1)
    index.refresh()
    for path in first.path.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    make(base, 2)
    index.refresh()
    assert names(index) == ["job2", "job1"]
    shutil.rmtree(first.path)
    index.refresh()
    assert names(index) == ["job2"]


def test_jobs_are_found_by_what_stands_in_the_list(index: JobIndex, base: Path) -> None:
    make(base, 1, name="Zahlen", reason="worker:0 exited with code 3", outcome="failed")
    make(base, 2, tags=("nacht", "gpu"))
    make(base, 3, name='100%_\'"digits"', user="lovelace")
    index.refresh()
    assert names(index, text="CODE 3") == names(index, text="zahlen") == ["job1"]
    assert names(index, text="acht") == names(index, tag="nacht") == ["job2"]
    assert names(index, text="%_'\"d") == names(index, text="%_") == ["job3"]
    assert names(index, user="lovelace") == names(index, name="100*") == ["job3"]
    assert names(index, states=("failed",)) == ["job1"]
    assert names(index, since=BEGIN + 2) == ["job3", "job2"]
    assert names(index, sort="took") == names(index, sort="submitted") == ["job1", "job2", "job3"]
    assert names(index, queue="gpu", backend="local", framework="command", text="no such") == []
    page = index.find(JobQuery(limit=2))
    assert (len(page.rows), page.more, page.total) == (2, True, 3)
    assert names(index, limit=2, skip=2) == ["job1"]
    assert index.choices().tags == ("gpu", "nacht")
    assert dict(index.choices().states) == {"succeeded": 2, "failed": 1}


def test_common_texts_and_tags_are_found_like_rare_ones(
    index: JobIndex, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("howdah.portal.index.RARE", 20)
    monkeypatch.setattr("howdah.portal.index.COUNTED", 20)
    make(base, 1, tags=("all",))
    index.refresh()
    (row,) = index.find(JobQuery()).rows
    many = [replace(row, job_id=f"many{n}-x", submitted=BEGIN + 10 + n) for n in range(25)]
    index.put(many)
    newest = "many24"
    assert names(index, text="MANY", limit=1) == names(index, tag="all", limit=1) == [newest]
    assert names(index, text="many17-") == ["many17"]
    assert names(index, text="IG", limit=1) == [newest]
    assert names(index, text="24") == []
    assert index.find(JobQuery(text="many")).total is None
    assert index.find(JobQuery(tag="all", since=BEGIN + 30)).total == 5
    assert index.find(JobQuery()).total == 26


def test_a_lost_or_damaged_file_is_made_again(base: Path, tmp_path: Path) -> None:
    make(base, 1)
    folder = tmp_path / "portal"
    for content in (None, b"this is no database, but long enough to look at" * 100):
        index = JobIndex(base, folder)
        index.refresh()
        assert names(index) == ["job1"]
        # While somebody has the file, another list is made in memory.
        other = JobIndex(base, folder)
        other.refresh()
        assert names(other) == ["job1"]
        other.close()
        index.close()
        (file,) = folder.glob("*.sqlite")
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
    index = JobIndex(base, folder)
    assert names(index) == []
    index.refresh()
    assert names(index) == ["job1"]
    index.close()


def test_what_was_read_is_still_known_the_next_time(base: Path, tmp_path: Path) -> None:
    make(base, 1)
    for _ in range(2):
        index = JobIndex(base, tmp_path / "portal")
        before = len(index)
        index.refresh()
        index.close()
    assert before == 1
