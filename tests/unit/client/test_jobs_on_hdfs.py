"""Jobs whose directories are on HDFS are counted and removed like those in a folder."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import threading
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from click.shell_completion import ShellComplete

import howdah.aio
from howdah.backends import registry
from howdah.backends.yarn.client import application
from howdah.cli import leaving
from howdah.cli.main import cli, main
from howdah.client.errors import ExitCode
from howdah.client.handle import AsyncJobHandle
from howdah.client.lookup import find, listing
from howdah.hadoop.errors import ConnectFailed
from howdah.hadoop.protos import yarn
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.spec.model import Role
from howdah.storage.hdfs.errors import NoNameNode
from howdah.storage.hdfs.files import HdfsStat
from howdah.storage.jobdir import JobDirectory, base_folder, list_jobs
from howdah.wire.status import JobView
from tests.unit.client.hdfs_folder import FS, FolderHdfs
from tests.unit.client.test_accounting import (
    began,
    granted,
    make,
    make_alone,
    make_failed,
    make_trained,
    registered,
    rows,
)

STORE = f"{FS}/howdah"


def move(hdfs: FolderHdfs, user: str = "ada", store: str = STORE) -> None:
    """Put the jobs that are in the folder on HDFS."""
    there = hdfs.folder / hdfs.path(store).lstrip("/") / user
    for directory in list_jobs(base_folder()):
        url = f"{store}/{user}/{directory.job_id}"
        meta = msgspec.structs.replace(directory.meta(), backend="yarn", user=user, url=url)
        directory.write_meta(meta)
        there.mkdir(parents=True, exist_ok=True)
        shutil.move(directory.path, there)


def forget(home: Path) -> None:
    """Be another machine."""
    shutil.rmtree(home / "portal", ignore_errors=True)
    shutil.rmtree(base_folder())


def test_a_job_on_hdfs_holds_the_same_as_one_in_a_folder(
    home: Path, hdfs: FolderHdfs, capsys: pytest.CaptureFixture[str]
) -> None:
    make_trained()
    make_alone(worker=Role(gpus=1, cores=3, memory="2g"))
    here = rows(capsys, "--by", "name")
    assert {row["group"] for row in here} == {"alone", "trained"}
    assert all(row["gpu_hours"] and row["memory_gib_hours"] and row["goodput"] for row in here)
    nodes = rows(capsys, "--by", "node")
    move(hdfs)
    forget(home)
    assert rows(capsys, "--by", "name", "--store", STORE) == here
    assert rows(capsys, "--by", "node", "--store", STORE) == nodes
    # So it is for who looks at all users' jobs.
    forget(home)
    assert rows(capsys, "--by", "name", "--all-users", "--store", STORE) == here
    # Jobs of this machine that are not there do not count.
    make_failed()
    assert rows(capsys, "--by", "name", "--store", STORE) == here


def test_hours_that_hdfs_does_not_show_are_named_until_it_does(
    home: Path, hdfs: FolderHdfs, capsys: pytest.CaptureFixture[str]
) -> None:
    story = granted(0, "n1") + registered(50, 1) + began(100, 100, 1, 0)
    job_id = make("runs", [*story], user="bo")
    move(hdfs, "bo")
    journal = f"/howdah/bo/{job_id}/events-0001.jsonl"
    hdfs.open.add(journal)
    everybodys = ("history", "--all-users", "--store", STORE, "--json")
    for _ in range(2):
        assert main([*everybodys]) == 0
        told = capsys.readouterr()
        (row,) = json.loads(told.out)
        assert (row["jobs"], row["unended"], row["held_hours"]) == (1, 1, 0)
        assert f"left out: hours of {job_id}: its journal on HDFS is still open" in told.err
    hdfs.open.discard(journal)
    assert main([*everybodys]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)[0]["held_hours"] > 0
    assert f"left out: hours of {job_id} after 20" in told.err


def test_jobs_below_an_url_are_listed_and_removed_and_no_others(
    home: Path, hdfs: FolderHdfs, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = make_trained(), make_alone()
    move(hdfs)
    there = hdfs.folder / "howdah" / "ada"
    for job_id in (first, second):
        (there / job_id / "shared").mkdir(exist_ok=True)
        (there / job_id / "shared" / "big").write_bytes(bytes(3_000_000))
    here = JobDirectory(base_folder() / make_failed())
    assert main(["list", "--store", STORE, "--json"]) == 0
    assert {each["job_id"] for each in json.loads(capsys.readouterr().out)} == {first, second}
    prune = ("prune", "--store", STORE)
    assert main([*prune, "--keep-size", "4m", "--json"]) == 0
    (would,) = json.loads(capsys.readouterr().out)["would_remove"]
    assert would["job_id"] == second and would["bytes"] > 3_000_000  # it ended before the first
    assert main([*prune, "--keep-size", "4m", "--yes"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 job removed, 3.")
    assert [path.name for path in there.iterdir()] == [first]
    assert {each.job_id for each in list_jobs(base_folder())} == {first, here.job_id}
    assert main([*prune, "--older-than", "0s", "--yes"]) == 0
    assert list(there.iterdir()) == []
    assert [each.job_id for each in list_jobs(base_folder())] == [here.job_id]


def test_a_name_means_a_job_below_the_url_and_none_of_this_machine(
    home: Path, hdfs: FolderHdfs, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = make_trained(), make_trained()
    move(hdfs)
    forget(home)
    here = JobDirectory(base_folder() / make_alone())
    twin = JobDirectory(base_folder() / make_trained())
    twin.path.rename(twin.path.with_name("trained-20261126-000000-k3f9"))

    def told(*arguments: str, code: int = 0) -> str:
        assert main([*arguments, "--store", STORE]) == code
        said = capsys.readouterr()
        return said.out + said.err

    for called in ("trained", "Trained", "@last", new, "trained-20261125-000001"):
        assert new in told("status", called)
    assert new in told("status")
    assert old in told("status", old)
    for called in ("alone", "alone-2026"):
        assert f"There is no job {called!r} in {STORE}" in told("rm", called, code=2)
    assert f"{new} removed" in told("rm", "trained")
    assert f"{old} removed" in told("rm", "trained")
    assert f"{STORE} has no jobs yet" in told("status", code=2)
    assert "There is no job 'trained'" in told("rm", "trained", code=2)
    assert {each.job_id for each in list_jobs(base_folder())} == {
        here.job_id,
        "trained-20261126-000000-k3f9",
    }


def test_a_shell_is_offered_the_jobs_below_the_url(home: Path, hdfs: FolderHdfs) -> None:
    there = make_trained()
    move(hdfs)
    forget(home)
    here = make_trained()
    shell = ShellComplete(cli, {}, "howdah", "_HOWDAH_COMPLETE")

    def offered(*words: str) -> set[str]:
        return {each.value for each in shell.get_completions(["status", *words], "trained")}

    assert offered("--store", STORE) == {"trained", there}
    assert offered() == {"trained", here}
    assert [each.job_id for each in list_jobs(base_folder())] == [here], "nothing was copied"


def test_several_jobs_below_an_url_are_named_where_one_is_wanted(
    home: Path, hdfs: FolderHdfs, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [make_trained(), make_trained()]
    move(hdfs)
    forget(home)
    assert main(["rm", "train", "--store", STORE]) == 2
    told = capsys.readouterr().err
    assert "'train' is the name or the beginning of 2 job ids" in told
    assert all(job_id in told for job_id in made)
    assert len(list((hdfs.folder / "howdah" / "ada").iterdir())) == 2


@pytest.mark.parametrize("called", ["train", "trained", "@last"])
def test_no_other_job_is_taken_for_one_that_cannot_be_read(
    home: Path,
    hdfs: FolderHdfs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    called: str,
) -> None:
    made = [make_trained(), make_trained()]
    move(hdfs)
    forget(home)
    stat = hdfs.stat

    def refuse(place: str) -> HdfsStat:
        if made[1] in place:
            raise NoNameNode("the NameNode restarts")
        return stat(place)

    monkeypatch.setattr(hdfs, "stat", refuse)
    assert main(["rm", called, "--store", STORE]) == ExitCode.BACKEND
    assert f"{made[1]} cannot be read: the NameNode restarts" in capsys.readouterr().err
    assert len(list((hdfs.folder / "howdah" / "ada").iterdir())) == 2


def test_a_job_that_is_being_submitted_is_passed_over(
    home: Path, hdfs: FolderHdfs, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = make_trained(), make_trained()
    move(hdfs)
    forget(home)
    for path in (hdfs.folder / "howdah" / "ada" / new).iterdir():
        if path.is_file():
            path.unlink()
    for called in ("@last", "trained", "train"):
        assert main(["status", called, "--store", STORE]) == 0
        assert old in capsys.readouterr().out
    assert [view.job_id for view in howdah.jobs(store=STORE)] == [old]
    assert howdah.connect("@last", store=STORE).job_id == old
    assert main(["status", new, "--store", STORE]) == ExitCode.BAD_INPUT
    assert f"{STORE}/ada/{new} has no meta.json: " in capsys.readouterr().err
    assert [path.name for path in base_folder().iterdir()] == [old]


@pytest.mark.parametrize("cut_at", ["job.json", "meta.json", "token"])
def test_a_copy_that_was_cut_is_made_whole_by_who_looks_next(
    home: Path,
    hdfs: FolderHdfs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cut_at: str,
) -> None:
    job_id = make_trained()
    token = JobDirectory(base_folder() / job_id).secrets / "token"
    token.parent.mkdir(exist_ok=True)
    token.write_text("secret")
    move(hdfs)
    forget(home)
    read = hdfs.read

    def cut(place: str) -> bytes:
        if place.endswith(f"/{cut_at}"):
            raise KeyboardInterrupt
        return read(place)

    everybodys = ("history", "--all-users", "--store", STORE, "--json")
    monkeypatch.setattr(hdfs, "read", cut)
    for command in (("status", job_id, "--store", STORE), everybodys):
        with contextlib.suppress(KeyboardInterrupt):
            assert main([*command]) == ExitCode.STOPPED
    assert list_jobs(base_folder()) == [], "half a copy is no job"
    monkeypatch.setattr(hdfs, "read", read)
    capsys.readouterr()
    assert main([*everybodys]) == 0
    assert json.loads(capsys.readouterr().out)[0]["jobs"] == 1
    (copy,) = (home / "portal").rglob(job_id)
    assert (copy / "secrets" / "token").read_text() == "secret"
    assert howdah.connect(job_id, store=STORE).job_id == job_id
    assert JobDirectory(base_folder() / job_id).token() == "secret"


@pytest.mark.parametrize("content", ["", "{"])
def test_a_job_whose_meta_data_cannot_be_read_hides_no_other(
    home: Path, hdfs: FolderHdfs, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    old, new = make_trained(), make_trained()
    move(hdfs)
    forget(home)
    (hdfs.folder / "howdah" / "ada" / new / "meta.json").write_text(content)
    assert main(["list", "--store", STORE, "--json"]) == 0
    told = capsys.readouterr()
    assert [each["job_id"] for each in json.loads(told.out)] == [old]
    assert f"left out: {STORE}/ada/{new} cannot be read: " in told.err
    assert main(["status", new, "--store", STORE]) == ExitCode.BACKEND
    assert f"{STORE}/ada/{new} cannot be read: " in capsys.readouterr().err


@pytest.fixture
def applications(monkeypatch: pytest.MonkeyPatch) -> list[yarn.ApplicationReportProto]:
    """What YARN tells of the user's applications."""
    told: list[yarn.ApplicationReportProto] = []

    async def tell(
        self: ResourceManager, request: yarn.GetApplicationsRequestProto
    ) -> list[yarn.ApplicationReportProto]:
        assert (list(request.users), list(request.application_types)) == (["ada"], ["HOWDAH"])
        return told

    monkeypatch.setattr(ResourceManager, "applications", tell)
    return told


def test_all_jobs_on_the_cluster_are_listed_wherever_they_were_put(
    home: Path,
    hdfs: FolderHdfs,
    applications: list[yarn.ApplicationReportProto],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    at_home = make_alone()
    move(hdfs, store=f"{FS}/user/ada/.howdah/jobs")
    of_site = make_failed()
    move(hdfs)
    own_store = make_trained()
    move(hdfs, store=f"{FS}/data")
    removed = f"{FS}/data/ada/gone-20261125-000001-k3f9"
    for url in (f"{FS}/data/ada/{own_store}", removed):
        tags = application.tags((), url.rpartition("/")[2], url)
        applications.append(yarn.ApplicationReportProto(applicationTags=tags))
    site = home / "site.toml"
    site.write_text('store = "${env:STORE}"\n')
    monkeypatch.setenv("STORE", STORE)
    monkeypatch.setenv("HOWDAH_SITE", str(site))

    def listed(*options: str) -> set[str]:
        forget(home)
        assert main(["list", "--backend", "yarn", "--json", *options]) == 0
        return {each["job_id"] for each in json.loads(capsys.readouterr().out)}

    assert listed() == {at_home, of_site, own_store}
    assert listed("--limit", "1") == {own_store}
    assert listed("--limit", "1", "--name", "alone") == {at_home}
    assert listed("--limit", "1", "--state", "succeeded") == {own_store}
    for job_id in (at_home, of_site, own_store):
        forget(home)
        assert howdah.connect(job_id).job_id == job_id


def test_jobs_that_cannot_be_listed_are_said_to_be_left_out(
    home: Path,
    hdfs: FolderHdfs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def refuse(*_: object) -> None:
        raise ConnectFailed("connection refused")

    monkeypatch.setattr(ResourceManager, "applications", refuse)
    job_id = make_alone()
    move(hdfs, store=f"{FS}/user/ada/.howdah/jobs")
    forget(home)
    assert main(["list", "--backend", "yarn", "--json"]) == 0
    told = capsys.readouterr()
    assert [each["job_id"] for each in json.loads(told.out)] == [job_id]
    assert "left out: jobs in other stores than the usual ones" in told.err
    assert "connection refused" in told.err


def test_of_many_jobs_of_a_name_those_that_have_ended_are_not_copied(
    home: Path,
    hdfs: FolderHdfs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    unended = make("trained", granted(0, "n1"))
    *_, new = [make_trained() for _ in range(5)]
    move(hdfs)
    forget(home)

    def copied() -> set[str]:
        return {path.name for path in base_folder().iterdir()}

    assert main(["status", "trai", "--store", STORE]) == ExitCode.BAD_INPUT
    assert "'trai' is the name or the beginning of 6 job ids" in capsys.readouterr().err
    assert copied() == {new, unended}
    assert main(["status", "trained", "--store", STORE]) == 0
    assert new in capsys.readouterr().out
    assert main(["status", "@last", "--store", STORE]) == 0
    assert new in capsys.readouterr().out
    assert copied() == {new, unended}
    monkeypatch.setattr(find, "_goes_on", lambda directory: directory.job_id == unended)
    for called in ("trained", "trai"):
        assert main(["status", called, "--store", STORE]) == 0
        assert unended in capsys.readouterr().out


def test_programs_are_given_the_jobs_below_an_url_alone(home: Path, hdfs: FolderHdfs) -> None:
    old, new = make_trained(), make_trained()
    move(hdfs)
    forget(home)
    make_alone()
    assert [view.job_id for view in howdah.jobs(store=STORE)] == [new, old]
    assert [view.job_id for view in howdah.jobs(store=STORE, limit=1)] == [new]
    assert [view.job_id for view in asyncio.run(howdah.aio.jobs(store=STORE))] == [new, old]
    assert howdah.connect("@last", store=STORE).job_id == new


def test_so_many_jobs_are_looked_at_at_once_that_the_last_has_as_long_as_the_first(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, most = 0, 0

    class Counted(AsyncJobHandle):
        async def status(self) -> JobView:
            nonlocal now, most
            now += 1
            most = max(now, most)
            try:
                await asyncio.sleep(0)  # all the others begin that may
                return await super().status()
            finally:
                now -= 1

    for index in range(2 * listing.AT_ONCE):
        make(f"nightly-{index}", granted(0, "n1"))
    monkeypatch.setattr(listing, "AsyncJobHandle", Counted)
    assert len(asyncio.run(listing.views(base_folder()))) == 2 * listing.AT_ONCE
    assert 0 < most <= listing.AT_ONCE


def limit_only(slow: Collection[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those jobs' time is up at once, and the others' never: no test goes by how fast a machine is."""
    looked_at, timeout = [""], asyncio.timeout

    class Named(AsyncJobHandle):
        def __init__(self, directory: JobDirectory) -> None:
            super().__init__(directory)
            looked_at.append(self.job_id)

    def limit(delay: float | None) -> asyncio.Timeout:
        return timeout(0.0 if looked_at[-1] in slow else None)

    monkeypatch.setattr(listing, "AsyncJobHandle", Named)
    monkeypatch.setattr(asyncio, "timeout", limit)


def test_jobs_that_hdfs_does_not_tell_of_take_no_thread_from_the_others(
    home: Path, hdfs: FolderHdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy = {make_trained() for _ in range(3)}
    slow = {make_alone() for _ in range(3)}
    move(hdfs)
    registry.own_jobs_at(STORE, print)
    answers, exists = threading.Event(), hdfs.exists

    def late(place: str) -> bool:
        if any(job_id in place for job_id in slow):
            answers.wait(60)
        return exists(place)

    monkeypatch.setattr(hdfs, "exists", late)
    limit_only(slow, monkeypatch)

    async def views(unknown: list[JobView]) -> list[JobView]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        try:
            return await listing.views(base_folder(), unknown=unknown.append)
        finally:
            answers.set()

    unknown: list[JobView] = []
    found = leaving.run(views(unknown))
    assert {view.job_id for view in unknown} == slow
    assert {view.job_id for view in found if view.over} == healthy


def test_a_job_of_which_hdfs_does_not_tell_at_all_is_named_and_prune_fails(
    home: Path,
    hdfs: FolderHdfs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job_id = make_trained()
    move(hdfs)
    registry.own_jobs_at(STORE, print)

    def refuse(place: str, **_: object) -> bool:
        raise NoNameNode("no active NameNode answers (Connection refused)")

    for name in ("exists", "stat", "list", "read"):
        monkeypatch.setattr(hdfs, name, refuse)
    assert main(["list"]) == 0
    told = capsys.readouterr()
    assert "unreadable" in told.out and "Connection refused" in told.out
    assert main(["prune", "--older-than", "0s"]) == ExitCode.BACKEND
    told = capsys.readouterr()
    assert f"whether {job_id} has ended is not known" in told.err
    assert "Connection refused" in told.err
    assert main(["prune", "--older-than", "3000d"]) == 0, "it was submitted later than that"


def test_a_job_of_which_neither_service_tells_may_have_ended(
    home: Path,
    hdfs: FolderHdfs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def silent(*_: object) -> None:
        raise ConnectFailed("the ResourceManager's port is closed")

    def refuse(place: str, **_: object) -> bool:
        raise NoNameNode("no active NameNode answers")

    job_id = make_trained()
    move(hdfs)
    (directory,) = registry.own_jobs_at(STORE, print)
    meta = msgspec.structs.replace(
        directory.meta(), application_id="application_1795278334659_0016"
    )
    directory.write_meta(meta)
    monkeypatch.setattr(ResourceManager, "application_report", silent)
    for name in ("exists", "stat", "list", "read"):
        monkeypatch.setattr(hdfs, name, refuse)
    assert main(["status", job_id]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "it may have ended: the ResourceManager does not answer" in told
    assert f"{STORE}/ada/{job_id} cannot be read: no active NameNode answers" in told


def test_a_job_of_which_hdfs_does_not_tell_in_time_is_named_and_the_others_are_removed(
    home: Path,
    hdfs: FolderHdfs,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    slow, other = make_trained(), make_alone()
    move(hdfs)
    there = hdfs.folder / "howdah" / "ada"
    answers, exists = threading.Event(), hdfs.exists

    def late(place: str) -> bool:
        if place.endswith(f"{slow}/final.json"):
            answers.wait(60)
        return exists(place)

    monkeypatch.setattr(hdfs, "exists", late)
    hang = {slow}
    limit_only(hang, monkeypatch)
    prune = ("prune", "--store", STORE, "--older-than")
    reason = (
        f"whether {slow} has ended is not known: the place where it is kept did not answer within "
        "2s. It stays; try again"
    )
    try:
        assert main([*prune, "0s"]) == ExitCode.BACKEND
        told = capsys.readouterr()
        assert other in told.out and slow not in told.out and reason in told.err
        assert main([*prune, "3000d"]) == 0, "it was submitted later than that"
        capsys.readouterr()
        assert main([*prune, "0s", "--yes", "--json"]) == ExitCode.BACKEND
        told = capsys.readouterr()
        answer = json.loads(told.out)
        assert [each["job_id"] for each in answer["removed"]] == [other]
        assert answer["failed"] == [{"job_id": slow, "reason": reason}] and reason in told.err
        assert [path.name for path in there.iterdir()] == [slow]
    finally:
        answers.set()
    hang.clear()
    assert main([*prune, "0s", "--yes"]) == 0
    assert not list(there.iterdir())
