"""Whose a job is, where nodes run all containers as one account: the submitter's, on HDFS and YARN."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import AccessControl
from howdah.hadoop.ids import ApplicationId
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.storage import layout
from howdah.storage.hdfs.files import Hdfs
from howdah.storage.jobdir import name_of
from tests.cli.howdah import Run, start
from tests.hadoop.cluster import Cluster
from tests.yarn.runner import SMALL, until

pytestmark = pytest.mark.nightly

WAIT_S = 120.0
# Writes and reads as whoever the client libraries say it is.
PROGRAM = """
import os, time
from pathlib import Path
print("I am", os.environ["HADOOP_USER_NAME"], flush=True)
Path("made").mkdir(exist_ok=True)
Path("made/mine.txt").write_text("from alice")
while not os.path.exists(os.environ["STOP_FILE"]):
    time.sleep(0.1)
"""


class User:
    """Somebody with a machine of their own, as far as Howdah sees: a home, and a name."""

    def __init__(self, name: str, cluster: Cluster, folder: Path) -> None:
        self.name = name
        self._cluster = cluster
        self.folder = folder / name
        self.folder.mkdir()
        self._env = {
            **os.environ,
            **cluster.env(),
            "HADOOP_USER_NAME": name,
            "HOWDAH_HOME": str(self.folder / "home"),
        }
        cluster.hdfs(f"/user/{name}", "MKDIRS", permission="755")
        cluster.hdfs(f"/user/{name}", "SETOWNER", owner=name)

    def howdah(self, *arguments: str, code: int = 0) -> Run:
        """Run a command line, which must end with that code."""
        run = start(*arguments, cwd=self.folder, env=self._env)
        assert run.end(WAIT_S) == code, f"{run.text}\n{run.told}"
        return run

    def status(self, job: str) -> dict[str, Any]:
        return json.loads(self.howdah("status", job, "--json").text)

    @contextlib.contextmanager
    def portal(self, store: str) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
        """A portal for a team, run by this user: the jobs on the list of somebody."""
        trusted = ("--trusted-proxy", "127.0.0.1", "--listen", "127.0.0.1:0")
        run = start("portal", "--store", store, *trusted, "--json", env=self._env)
        address = json.loads(run.until_line('"address"'))["address"]

        def jobs(reader: str) -> list[dict[str, Any]]:
            asked = urllib.request.Request(f"{address}api/v1/jobs")
            asked.add_header("X-Forwarded-User", reader)
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return json.load(answer)["jobs"]

        try:
            yield jobs
        finally:
            run.signal(signal.SIGINT)
            assert run.end() == 130

    def files(self, path: str) -> list[dict[str, Any]]:
        """What WebHDFS tells this user of the folder."""
        told = self._cluster.hdfs(path, "LISTSTATUS", "GET", self.name)
        return told["FileStatuses"]["FileStatus"]


@pytest.fixture
def alice(hadoop: Cluster, tmp_path: Path) -> User:
    return User("alice", hadoop, tmp_path)


@pytest.fixture
def bob(hadoop: Cluster, tmp_path: Path) -> User:
    return User("bob", hadoop, tmp_path)


async def kill(cluster: Cluster, application: str, user: str) -> None:
    """Kill an application past Howdah."""
    async with ResourceManager(Configuration.load(cluster.conf_dir), user) as manager:
        await manager.kill_application(ApplicationId.parse(application))


@pytest.mark.timeout(400)
def test_a_job_is_its_submitters_and_nobody_elses(
    hadoop: Cluster, alice: User, bob: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last part makes this process Bob on HDFS, which later tests must not be.
    monkeypatch.setenv("HADOOP_USER_NAME", "bob")
    (alice.folder / "program.py").write_text(PROGRAM)
    (alice.folder / "job.toml").write_text(
        'command = "python3 program.py"\n'
        f'env = {{ STOP_FILE = "{alice.folder}/stop" }}\n'
        '[roles.worker]\nmemory = "256m"\n[outputs]\nfolders = ["made"]\n' + SMALL
    )
    alice.howdah("submit", "job.toml", "--backend", "yarn")
    [folder] = alice.files("/user/alice/.howdah/jobs/alice")
    job_id, place = folder["pathSuffix"], f"/user/alice/.howdah/jobs/alice/{folder['pathSuffix']}"
    assert (folder["owner"], folder["permission"]) == ("alice", "700")

    def running() -> dict[str, Any] | None:
        told = alice.status(job_id)
        assert not told["outcome"], told
        there = told["page"] and [t["state"] for t in told["tasks"]] == ["running"]
        return told if there else None

    try:
        told = until(running, "the job runs", WAIT_S)
        assert told["user"] == "alice"
        [application] = [
            each
            for each in hadoop.applications("RUNNING")
            if each["user"] == "alice" and job_id in each["applicationTags"]
        ]

        with pytest.raises(urllib.error.HTTPError, match="Permission denied: user=bob"):
            bob.files(place)
        for command in ("status", "logs", "stop"):
            refused = bob.howdah(command, application["id"], code=3).told
            assert "can only be read by its owner, which bob is not" in refused
        assert not list((bob.folder / "home").rglob("*.key"))
        with pytest.raises(AccessControl, match="bob"):
            asyncio.run(kill(hadoop, application["id"], "bob"))
        for path in ("", "api/job", "api/logs/worker:0"):
            with pytest.raises(urllib.error.HTTPError) as denied:
                urllib.request.urlopen(f"{told['page'].split('?')[0]}{path}", timeout=20)
            assert denied.value.code in (401, 403)
    finally:
        (alice.folder / "stop").touch()
    until(lambda: alice.status(job_id)["outcome"] == "succeeded", "the job ends", WAIT_S)
    assert "I am alice" in alice.howdah("logs", job_id).text
    # HDFS's superuser may read the job directory; nothing that is in it is run as that user.
    superuser = User(hadoop.site.user, hadoop, tmp_path)
    assert superuser.status(application["id"])["user"] == "alice"
    refused = superuser.howdah("rerun", job_id, "--detach", code=2).told
    assert f"{job_id} is alice's: what it runs is not run as you" in refused
    [output] = [each["pathSuffix"] for each in alice.files(f"{place}/outputs")]
    assert output

    def end() -> list[dict[str, Any]]:
        """The final document; a coordinator tells of the end before it has written that."""
        return [each for each in alice.files(place) if each["pathSuffix"] == "final.json"]

    assert until(end, "final.json is written", WAIT_S)[0]["owner"] == "alice"

    # Nor is anything of her application shown through a directory of bob's that names it.
    copy = next((superuser.folder / "home").rglob(f"{job_id}/{layout.META}"))
    forged = "forged-20261121-143502-k3f9"
    names_hers = json.loads(copy.read_bytes()) | {"job_id": forged, "user": "bob", "owner": None}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HADOOP_USER_NAME", raising=False)  # other tests were somebody else here
        there = Hdfs(hadoop.default_fs, conf_dir=str(hadoop.conf_dir), user="bob")
        for name, data in (
            (layout.JOB, (copy.parent / layout.JOB).read_bytes()),
            (layout.META, json.dumps(names_hers).encode()),
        ):
            there.write_new(f"/user/bob/.howdah/jobs/bob/{forged}/{name}", data)
    with superuser.portal(f"{hadoop.default_fs}/user/bob/.howdah/jobs") as jobs:
        (row,) = until(
            lambda: [job for job in jobs("bob") if job["state"] != "waiting"],
            "it is listed",
            WAIT_S,
        )
        assert (row["job_id"], row["user"], row["state"]) == (forged, "bob", "lost")
        assert jobs("alice") == []

    # From another machine she finds, counts and removes it by its place on the real HDFS; bob does not.
    (tmp_path / "other").mkdir()
    elsewhere = User("alice", hadoop, tmp_path / "other")
    store = f"{hadoop.default_fs}/user/alice/.howdah/jobs"
    for called in ("@last", name_of(job_id), job_id[:-2]):
        assert job_id in elsewhere.howdah("status", called, "--store", store).text
    (row,) = json.loads(elsewhere.howdah("list", "--store", store, "--json").text)
    assert (row["job_id"], row["user"]) == (job_id, "alice")
    (counted,) = json.loads(elsewhere.howdah("history", "--store", store, "--json").text)
    assert counted["jobs"] == 1 and counted["held_hours"] > 0
    everything = ("prune", "--store", store, "--older-than", "0s", "--yes", "--json")
    assert "does not let this user list" in bob.howdah(*everything, code=3).told
    (removed,) = json.loads(elsewhere.howdah(*everything).text)["removed"]
    assert removed["job_id"] == job_id
    assert alice.files("/user/alice/.howdah/jobs/alice") == []
