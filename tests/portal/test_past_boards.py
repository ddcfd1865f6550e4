"""TensorBoard of ended jobs: how one begins and ends."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from howdah.backends.base import BackendError
from howdah.coordinator.web.security import Refusal
from howdah.portal.as_owner import ids_of
from howdah.portal.task_pages import past_boards
from howdah.portal.task_pages.past_boards import PastBoards
from howdah.storage.copies import local_copy
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import JobMeta
from tests.cli.howdah import start, until
from tests.portal.conftest import Past
from tests.portal.test_team import OTHER_UID


@pytest.fixture
def copy(tmp_path: Path) -> JobDirectory:
    """What a portal has of a job with summaries."""
    job = tmp_path / "digits-20261121-143502-k3f9"
    (job / "tensorboard").mkdir(parents=True)
    (job / "tensorboard" / "events").touch()
    local = tmp_path / "copies" / job.name
    local.mkdir(parents=True, mode=0o700)
    origin = local_copy.CopyOrigin(
        folder=os.fspath(job), owner=local_copy.account(os.getuid()), uid=os.getuid()
    )
    local_copy.begin(local, origin)
    return JobDirectory(local)


def is_free(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.nightly
def test_one_that_nobody_asks_is_stopped_and_begins_anew_for_the_next(copy: JobDirectory) -> None:
    async def look() -> None:
        boards = PastBoards(idle_s=0.0)
        first = await boards.address(copy)
        await asyncio.to_thread(until, lambda: is_free(first.port), "it is stopped")
        again = await boards.address(copy)
        assert again.secret != first.secret
        await asyncio.to_thread(until, lambda: is_free(again.port), "it is stopped once more")
        kept = PastBoards()
        second, same = await asyncio.gather(kept.address(copy), kept.address(copy))
        assert second == same and not is_free(second.port)
        kept.close()
        await asyncio.to_thread(until, lambda: is_free(second.port), "it ends with the portal")

    asyncio.run(look())


def test_the_one_asked_longest_ago_makes_room(
    copy: JobDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past_boards, "MOST", 1)
    other = JobDirectory(tmp_path / "copies" / "letters-20261121-143502-k3f9")
    shutil.copytree(copy.path, other.path)

    async def look() -> None:
        boards = PastBoards()
        first = await boards.address(copy)
        second = await boards.address(other)
        await asyncio.to_thread(until, lambda: is_free(first.port), "it has made room")
        assert not is_free(second.port)
        boards.close()
        await asyncio.to_thread(until, lambda: is_free(second.port), "it ends with the portal")

    asyncio.run(look())


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (None, "cannot run"),
        ("#!/bin/sh\necho tensorboard is not installed >&2\nexit 1\n", "is not installed"),
        ("#!/bin/sh\n", "it said nothing"),
    ],
)
def test_why_it_does_not_begin_is_said(
    copy: JobDirectory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str | None,
    words: str,
) -> None:
    python = tmp_path / "python"
    if program is not None:
        python.write_text(program)
        python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", os.fspath(python))
    with pytest.raises(Refusal, match=words):
        asyncio.run(PastBoards().address(copy))


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts programs of other users")
def test_it_runs_as_the_owner_with_nothing_of_the_portals(
    copy: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(local_copy.origin_of(copy.path).folder)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, OTHER_UID, OTHER_UID)
    local_copy.begin(
        copy.path, local_copy.CopyOrigin(folder=os.fspath(folder), owner="mallory", uid=OTHER_UID)
    )
    monkeypatch.setenv("SECRET", "of the portal")
    with tempfile.TemporaryDirectory() as place:  # that other users can look into
        python = Path(place, "python")
        python.write_text('#!/bin/sh\necho $(id -u) $(id -G) "${SECRET-none}" $(pwd) >&2\n')
        for each in (python, python.parent):
            each.chmod(0o755)
        monkeypatch.setattr(sys, "executable", os.fspath(python))
        with pytest.raises(Refusal, match=f": {OTHER_UID} {OTHER_UID} none /$"):
            asyncio.run(PastBoards().address(copy))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "events").unlink(),
        lambda folder: folder.rename(folder.with_name("away")),
        lambda folder: (folder.rename(folder.with_name("b")), folder.symlink_to("b")),
    ],
    ids=["empty", "none", "a link"],
)
def test_there_are_none_where_no_folder_of_the_owners_has_any(
    copy: JobDirectory, change: Callable[[Path], Any]
) -> None:
    boards = PastBoards()
    assert boards.has(copy)
    change(Path(local_copy.origin_of(copy.path).folder) / "tensorboard")
    assert not boards.has(copy)


class OnHdfs:
    """A job whose summaries are on HDFS, as its site has it."""

    def __init__(self, size: int) -> None:
        self.size = size

    def has_remote_summaries(self) -> bool:
        return self.size > 0

    def bring_summaries(self, folder: Path, most: int) -> int:
        if self.size <= most:
            (folder / "worker-0").mkdir()
            (folder / "worker-0" / "events.out.tfevents.1").touch()
        return self.size


@pytest.fixture
def far(copy: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> JobDirectory:
    """The same of a job whose summaries are on HDFS; copies are made in a folder of their own."""
    origin = local_copy.origin_of(copy.path)
    url = "hdfs://nn/jobs/ada/digits-20261121-143502-k3f9"
    local_copy.begin(copy.path, local_copy.CopyOrigin(folder=url, owner=origin.owner))
    copy.write_meta(
        JobMeta(job_id=copy.job_id, user="ada", backend="yarn", submitted=1.0, howdah="1", url=url)
    )
    place = copy.path.parent.parent / "tmp"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setattr(past_boards, "site_of", lambda directory: OnHdfs(1024))
    # These tests may run as root, whom the portal takes for nobody of a cluster.
    monkeypatch.setattr(past_boards, "ids_of", lambda name: (os.getuid(), os.getgid()))
    return copy


def test_summaries_on_hdfs_are_copied_for_as_long_as_it_runs(far: JobDirectory) -> None:
    async def look() -> None:
        boards = PastBoards()
        assert boards.has(far)
        board = await boards.address(far)
        (copies,) = Path(tempfile.gettempdir()).iterdir()
        (copy,) = copies.iterdir()
        assert (copy / "worker-0" / "events.out.tfevents.1").exists()
        assert copy.stat().st_mode & 0o777 == 0o700
        boards.close()
        await asyncio.to_thread(until, lambda: is_free(board.port), "it is stopped")
        await asyncio.to_thread(until, lambda: not copies.exists(), "its copy is removed")

    asyncio.run(look())


def test_an_owner_gets_into_the_copy_when_all_of_it_is_theirs(
    far: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They could put a link in the place of what root gives them next."""
    given: list[str] = []
    monkeypatch.setattr(os, "chown", lambda path, *_, **__: given.append(os.fspath(path)))
    monkeypatch.setattr(past_boards, "_begin", lambda found: 1 / 0)
    boards = PastBoards()
    with pytest.raises(ZeroDivisionError):
        asyncio.run(boards.address(far))
    boards.close()
    assert [len(Path(path).relative_to(given[-1]).parts) for path in given] == [2, 1, 0]


def test_hdfs_that_does_not_answer_is_asked_again(
    far: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(OnHdfs):
        def has_remote_summaries(self) -> bool:
            raise BackendError("it does not answer")

    monkeypatch.setattr(past_boards, "site_of", lambda directory: Silent(1))
    assert PastBoards().has(far) is None


def test_what_cannot_be_copied_from_hdfs_is_said_with_what_to_do(
    far: JobDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(words: str) -> None:
        boards = PastBoards()
        with pytest.raises(Refusal, match=words):
            asyncio.run(boards.address(far))
        assert not list(Path(tempfile.gettempdir()).glob("*/*"))
        boards.close()
        assert not list(Path(tempfile.gettempdir()).iterdir())

    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho tensorboard is not installed >&2\n")
    python.chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", os.fspath(python))
        refused("is not installed")
    monkeypatch.setattr(past_boards, "site_of", lambda directory: OnHdfs(3 << 30))
    refused(
        "take 3.* GB, and the portal copies .* at most: copy them with `hdfs dfs -get hdfs://nn/"
    )
    if os.getuid() == 0:
        monkeypatch.setattr(past_boards, "site_of", lambda directory: OnHdfs(1))
        monkeypatch.setattr(past_boards, "ids_of", ids_of)
        url = local_copy.origin_of(far.path).folder
        local_copy.begin(far.path, local_copy.CopyOrigin(folder=url, owner="no-such-account"))
        refused("but no-such-account has no account on the portal's machine; copy them with")
        local_copy.begin(far.path, local_copy.CopyOrigin(folder=url, owner="root"))
        refused("root of the cluster is not trusted to be root of the portal's machine")


def asked(url: str, cookie: str = "") -> tuple[int, Message, str]:
    """The answer of a server of this machine, whatever it is called in the address."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=90)
    with contextlib.closing(connection):
        headers = {"Host": parts.netloc, "Cookie": cookie}
        connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.msg, answer.read().decode()


def let_in(link: str) -> str:
    """The cookie that a one-time link gives."""
    status, headers, text = asked(link)
    assert status == 200, text
    return headers["Set-Cookie"].partition(";")[0]


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_a_portal_of_ones_own_shows_those_of_ended_jobs(past: Past) -> None:
    (past.good.path / "tensorboard" / "events").touch()
    portal = start("ui", "--json")
    try:
        address = json.loads(portal.until_line('"address"'))["address"]
        home, cookie = address.partition("/login")[0], let_in(address)
        jobs = {directory: f"{home}/jobs/{directory.job_id}/" for directory in past[1:3]}
        page = jobs[past.good]
        links = {
            job: json.loads(asked(f"{url}api/v1/job", cookie)[2])["links"]
            for job, url in jobs.items()
        }
        assert links == {
            past.good: [{"name": "TensorBoard", "href": "proxy/tensorboard:0/"}],
            past.failed: [],
        }
        assert asked(f"{page}proxy/tensorboard:0/")[0] == 401
        assert asked(f"{page}proxy/worker:0/", cookie)[0] == 404
        status, headers, _ = asked(f"{page}proxy/tensorboard:0/", cookie)
        assert status == 303
        link = headers["Location"]
        board = link.partition("/login")[0] + "/proxy/tensorboard:0/"
        assert urlsplit(link).hostname == f"{past.good.job_id}.localhost"
        assert asked(board, cookie)[0] == 401, "the portal's own cookie lets nobody in there"
        status, _, text = asked(board, let_in(link))
        assert status == 200 and "<title>TensorBoard</title>" in text
    finally:
        portal.process.terminate()
        portal.end()
