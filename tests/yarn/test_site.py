"""What a client concludes from an application's report."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from howdah.backends.base import BackendError
from howdah.backends.yarn.client import site
from howdah.backends.yarn.client.aggregated import Aggregated
from howdah.backends.yarn.client.site import YarnSite
from howdah.core.state import JobPhase, Outcome
from howdah.hadoop.protos import yarn
from howdah.spec.model import Job, Master, Role
from howdah.storage import layout
from howdah.storage.hdfs.errors import HdfsSafeMode, NoDataNode, NoNameNode
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import JobMeta
from howdah.wire.status import JobView
from tests.unit.client.hdfs_folder import FS, FolderHdfs


@pytest.mark.parametrize(("waited_s", "ended"), [(0.0, False), (600.0, False), (7200.0, True)])
def test_a_master_is_late_by_what_was_seen_or_by_more_than_clocks_are_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited_s: float, ended: bool
) -> None:
    """Who looks may be ten minutes ahead of who submitted."""
    meta = JobMeta(job_id="j", user="ada", backend="yarn", submitted=time.time() - waited_s)
    job = Job(command="true", roles={"worker": Role()}, master=Master(startup="5m"))
    report = yarn.ApplicationReportProto(yarn_application_state="ACCEPTED")
    directory = JobDirectory(tmp_path / "jobs" / "j")
    directory.create(job, meta)
    looks = YarnSite(directory)
    told: list[str] = []
    monkeypatch.setattr(looks, "_look", lambda: report)
    monkeypatch.setattr(looks, "_nodes_and_queue", lambda name: (None, None))
    monkeypatch.setattr(looks, "end", told.append)
    looks.waiting()
    assert bool(told) is ended
    clock = time.monotonic
    monkeypatch.setattr(site.time, "monotonic", lambda: clock() + 301)
    looks.waiting()
    assert told


URL = f"{FS}/jobs/ada/j"


class Ended:
    """A job whose application is over, as a client finds it that looks for the first time."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hdfs = FolderHdfs(folder / "hdfs")
        self.there = self.hdfs.folder / "jobs" / "ada" / "j"
        self.there.mkdir(parents=True)
        self.directory = JobDirectory(folder / "jobs" / "j")
        meta = JobMeta(
            job_id="j",
            user="ada",
            backend="yarn",
            submitted=1.0,
            url=URL,
            application_id=APPLICATION,
        )
        self.directory.create(Job(command="true", roles={"worker": Role()}), meta)
        report = yarn.ApplicationReportProto(yarn_application_state="FINISHED")
        self.site = YarnSite(self.directory)
        monkeypatch.setattr(YarnSite, "_look", lambda site: report)
        monkeypatch.setattr(YarnSite, "_hdfs", self.hdfs)
        monkeypatch.setattr(YarnSite, "_access", None)
        monkeypatch.setattr(Aggregated, "__init__", lambda *args: None)
        monkeypatch.setattr(Aggregated, "tail_of_master", lambda *args: ())

    def end(self, reason: str) -> None:
        """What the job's master does last."""
        view = JobView(
            job_id="j",
            name="j",
            framework="script",
            user="ada",
            backend="yarn",
            phase=JobPhase.FINISHED.value,
            outcome=Outcome.SUCCEEDED.value,
            reason=reason,
        )
        (self.there / layout.FINAL).write_bytes(msgspec.json.encode(view))


APPLICATION = "application_1_0001"


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ended:
    return Ended(tmp_path, monkeypatch)


def fails(error: OSError) -> Callable[..., bytes]:
    def call(place: str) -> bytes:
        raise error

    return call


@pytest.mark.parametrize(
    ("call", "error"),
    [("read", NoDataNode("no DataNode has it")), ("exists", NoNameNode("it fails over"))],
)
def test_an_end_that_cannot_be_read_for_now_is_not_taken_for_a_missing_one(
    ended: Ended, monkeypatch: pytest.MonkeyPatch, call: str, error: OSError
) -> None:
    ended.end("all went well")
    with monkeypatch.context() as away:
        away.setattr(ended.hdfs, call, fails(error))
        with pytest.raises(BackendError, match=str(error)):
            ended.site.final()
    assert ended.directory.final() is None

    final = ended.site.final()

    assert final is not None and final.reason == "all went well"
    assert b"all went well" in (ended.there / layout.FINAL).read_bytes()


def test_an_end_that_comes_while_its_absence_is_concluded_is_left_as_it_is(
    ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Aggregated, "tail_of_master", lambda *args: ended.end("all went well") or ()
    )

    final = ended.site.final()

    assert final is not None and final.reason == "all went well"
    assert ended.directory.final() == final
    assert b"all went well" in (ended.there / layout.FINAL).read_bytes()


def test_an_end_that_nobody_wrote_is_written_here_and_on_hdfs(ended: Ended) -> None:
    final = ended.site.final()

    assert final is not None and final.outcome == Outcome.FAILED.value
    assert ended.directory.final() == final
    assert (ended.there / layout.FINAL).read_bytes() == (
        ended.directory.path / layout.FINAL
    ).read_bytes()


def test_an_end_is_told_while_hdfs_takes_no_change_and_with_it_that_the_keytab_is_still_there(
    ended: Ended, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ended.there / layout.KEYTAB).write_bytes(b"a key")

    def read_only(*args: object, **named: object) -> None:
        raise HdfsSafeMode("HDFS is read-only")

    monkeypatch.setattr(ended.hdfs, "remove", read_only)
    monkeypatch.setattr(ended.hdfs, "put", read_only)

    final = ended.site.final()

    assert final is not None and final.outcome == Outcome.FAILED.value
    assert ended.directory.final() == final
    assert final.reason is not None and final.reason.endswith(
        f"Its keytab is still on HDFS. HDFS is read-only. Then remove it: hdfs dfs -rm {URL}/{layout.KEYTAB}"
    )
