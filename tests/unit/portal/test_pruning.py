"""Old jobs of other users: in whose name the portal has them removed."""

from __future__ import annotations

import asyncio
import os
import pwd
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from howdah.portal.pruning import CannotPrune, LocalOwners, PrunedJob, PruneSchedule, RemoteOwners

NUMBER = 54321
"""Of an account that has no name."""
SECRET = "of-the-portal-alone"
PYTHON = """#!/bin/sh
me=$(id -u)
{ echo $me; id -g; id -G; pwd; echo "$@"; env; } > FOLDER/told/$me
for each in FOLDER/store/*; do touch $each/by-$me; done
echo '{"removed": [{"job_id": "'a-$me'", "bytes": 5}], "failed": []}'
"""
"""In the place of Python, which may be where nobody but root can reach it: says who it is, and writes
wherever it may."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that all users reach."""
    with tempfile.TemporaryDirectory(prefix="howdah-prunes-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        (folder / "told").mkdir()
        (folder / "told").chmod(0o777)
        (folder / "python").write_text(PYTHON.replace("FOLDER", name))
        (folder / "python").chmod(0o755)
        yield folder


def test_each_folders_owner_removes_there_and_can_do_no_more(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert os.geteuid() == 0, "only root can act for others: run this test as root"
    nobody = pwd.getpwnam("nobody")
    accounts = {f"uid-{NUMBER}": (NUMBER, NUMBER), "nobody": (nobody.pw_uid, nobody.pw_gid)}
    for name, (uid, gid) in accounts.items():
        (folder / "store" / name).mkdir(parents=True)
        os.chown(folder / "store" / name, uid, gid)
    # A folder of root's under somebody's name is nobody's to prune.
    (folder / "store" / "daemon").mkdir()
    monkeypatch.setenv("PORTAL_SECRET", SECRET)
    monkeypatch.setenv("HOWDAH_HOME", str(folder))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    schedule = PruneSchedule(LocalOwners(folder / "store"), "90d", "200g")
    asyncio.run(schedule.prune())
    for name, (uid, gid) in accounts.items():
        told = (folder / "told" / str(uid)).read_text()
        assert told.splitlines()[:3] == [str(uid), str(gid), str(gid)], "no group of root's is left"
        command = f"-I -m howdah prune --yes --json --older-than 90d --keep-size 200g --store {folder}/store"
        assert told.splitlines()[3:5] == ["/", command]
        home = nobody.pw_dir if name == "nobody" else "/nonexistent"
        assert f"USER={name}\n" in told and f"HOME={home}\n" in told
        assert SECRET not in told and "HOWDAH_HOME" not in told
    written = {str(each.relative_to(folder / "store")) for each in folder.glob("store/*/*")}
    assert written == {f"{name}/by-{uid}" for name, (uid, _) in accounts.items()}
    assert {int(path.name) for path in (folder / "told").iterdir()} == {NUMBER, nobody.pw_uid}
    (last,) = schedule.rounds
    assert set(last.removed) == {PrunedJob(f"a-{uid}", 5) for uid, _ in accounts.values()}
    (failed,) = last.failed
    assert (
        failed.job_id.endswith("/store/daemon") and failed.reason == "it is not daemon's but root's"
    )


class OnHdfs:
    """A store on a cluster, with the folders of two users."""

    place = "hdfs://nn/jobs"
    wants_proof = False

    def users(self) -> list[str]:
        return ["daemon", "no-such-account", "nobody", "root"]

    def owner_of(self, user: str) -> str:
        return "root" if user == "daemon" else user

    def acting_as(self, user: str) -> dict[str, str]:
        return {"HADOOP_USER_NAME": user, "HADOOP_CONF_DIR": "/conf"}


def test_on_a_cluster_the_owners_are_themselves_there_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = pwd.getpwnam("nobody").pw_uid
    (folder / "store").mkdir()
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    schedule = PruneSchedule(RemoteOwners(OnHdfs()), "90d")
    asyncio.run(schedule.prune())
    told = (folder / "told" / str(nobody)).read_text()
    assert "-I -m howdah prune --yes --json --older-than 90d --store hdfs://nn/jobs\n" in told
    for line in ("HADOOP_USER_NAME=nobody", "HADOOP_CONF_DIR=/conf", f"HOWDAH_HOME={folder}/tmp/"):
        assert f"\n{line}" in told
    assert not list((folder / "tmp").iterdir()), "what it copied is gone"
    (last,) = schedule.rounds
    assert last.removed == (PrunedJob(f"a-{nobody}", 5),)
    assert "but no-such-account has no account" in last.failed[1].reason
    assert "but root of the cluster is not trusted to be root" in last.failed[2].reason
    assert [(each.job_id, each.reason.partition(",")[0]) for each in last.failed] == [
        ("hdfs://nn/jobs/daemon", "it is not daemon's but root's"),
        (
            "hdfs://nn/jobs/no-such-account",
            "they are removed in no-such-account's name",
        ),
        ("hdfs://nn/jobs/root", "they are removed in root's name"),
    ]


def test_where_a_cluster_wants_tickets_users_are_told_to_do_it_themselves() -> None:
    store = OnHdfs()
    store.wants_proof = True
    with pytest.raises(CannotPrune, match="let each user run 'howdah prune --store hdfs://nn/jobs"):
        RemoteOwners(store)
