"""`howdah portal` for a team: a real process, asked over HTTP as its reverse proxy asks, by all kinds of
people, at every door."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
import pytest

from howdah.storage.copies import local_copy
from howdah.storage.jobdir import JobDirectory, base_folder
from tests.cli.howdah import Run, gone, job_file, newest, start, until
from tests.cli.inside import howdah
from tests.portal.conftest import HOLDS
from tests.unit.web.serving import Answer

pytestmark = pytest.mark.timeout(180)

SECRET = "hf_secret_of_ada_123"
TELLS = """
from howdah import task

task.report(step=1, loss=0.5)
print("step 1", flush=True)
raise SystemExit("ValueError: that is no token")
"""
ACL = {"view": ["vera", "mo"], "view-groups": ["research"], "modify": ["mo", "blind"]}
OTHER_UID = 54321
PROXY = {"Host": "jobs.example"}
GROUPS = "X-Forwarded-Groups"
NOBODY = "open-20261121-143502-zzzz"
"""The id of no job, as long as one."""


class Team(NamedTuple):
    """A portal, and the jobs it shows."""

    run: Run
    port: int
    prefix: str
    open: JobDirectory
    closed: JobDirectory

    def ask(
        self,
        user: str | None,
        path: str,
        *,
        groups: str = "",
        method: str = "GET",
        client: str = "127.0.0.1",
        body: bytes | None = None,
        **headers: str,
    ) -> Answer:
        """As the proxy passes a request on; ``client`` is the address it comes from."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=30, source_address=(client, 0)
        )
        given = {**PROXY, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if user is not None:
            given["X-Forwarded-User"] = user
        if groups:
            given[GROUPS] = groups
        if method == "POST":
            given.setdefault("Origin", "http://jobs.example")
        try:
            connection.request(method, self.prefix + path, body=body, headers=given)
            response = connection.getresponse()
            # A stream does not end.
            read = response.readline if path.endswith("/stream") else response.read
            return Answer(response.status, response.msg, read())
        finally:
            connection.close()

    def follow(self, user: str, path: str) -> Iterator[str]:
        """Lines of an open stream, as they come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            headers = {**PROXY, "X-Forwarded-User": user}
            connection.request("GET", self.prefix + path, headers=headers)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            while line := response.readline():
                yield line.decode()
        finally:
            connection.close()

    def ids(self, user: str, query: str = "", **options: str) -> set[str]:
        """Jobs that the list shows."""
        found = self.ask(user, f"/api/v1/jobs{query}", **options).json()
        assert found["total"] == len(found["jobs"])
        return {job["job_id"] for job in found["jobs"]}


def owner(directory: JobDirectory) -> str:
    return local_copy.account(directory.path.stat().st_uid)


@pytest.fixture(scope="module")
def team(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    files = tmp_path_factory.mktemp("files")
    fields: dict[str, Any] = {"env": {"HF_TOKEN": SECRET}, "restart": "never"}
    howdah("run", str(job_file(files / "a", TELLS, name="open", acl=ACL, **fields)), code=1)
    open_ = newest()
    howdah("run", str(job_file(files / "b", TELLS, name="closed", tags=["own"], **fields)), code=1)
    closed = newest()
    for each in (open_, closed):
        gone(each)  # its node daemon still removed files of it
    if os.getuid() == 0:
        other = base_folder().parent / "other"
        other.mkdir()
        closed.path.rename(other / closed.job_id)
        closed = JobDirectory(other / closed.job_id)
        for path in (other, closed.path, *closed.path.rglob("*")):
            os.chown(path, OTHER_UID, OTHER_UID, follow_symlinks=False)
    run = start(
        "portal", "--store", str(base_folder().parent), "--listen", "127.0.0.1:0", "--json",
        "--trusted-proxy", "127.0.0.1", "--group-header", GROUPS, "--admin", "ada",
        "--prefix", "/howdah/",
    )  # fmt: skip
    address = urlsplit(json.loads(run.until_line('"address"'))["address"])
    assert address.port is not None and address.path == "/howdah/"
    team = Team(run, address.port, "/howdah", open_, closed)
    until(lambda: len(team.ids("ada")) == 2, "both jobs are listed")
    yield team
    run.signal(signal.SIGINT)
    assert run.end() == 130
    assert "Traceback" not in run.told, run.told


DOORS = (
 "/", "/metrics", "/api/v1/job", "/api/v1/tasks", "/api/v1/tasks/worker:0", "/api/v1/records",
    "/api/v1/logs/worker:0", "/api/v1/logs/worker:0?grep=step", "/api/v1/logs/worker:0/raw",
    "/api/v1/logs/worker:0/attempts", "/api/v1/metrics/worker:0", "/api/v1/series?task=worker:0",
    "/api/v1/config", "/api/v1/plan", "/api/v1/changes", "/api/v1/stream", "/api/v1/advice",
    "/api/v1/before",
)  # fmt: skip
READERS = {
    "owner": (None, "", True, False),
    "viewer": ("vera", "", True, False),
    "member": ("grace", "sales, research", True, False),
    "stranger": ("sam", "sales", False, False),
    "one who may stop and not look": ("blind", "", False, False),
    "admin": ("ada", "", True, True),
}
"""Name (None is the owner's of the open job), groups, and whether they see either job."""


@pytest.mark.parametrize("kind", READERS)
def test_each_sees_at_every_door_what_they_may_and_nothing_that_there_is_more(
    team: Team, kind: str
) -> None:
    name, groups, sees_open, sees_closed = READERS[kind]
    user = name or owner(team.open)
    sees_closed = sees_closed or user == owner(team.closed)
    for directory, sees in ((team.open, sees_open), (team.closed, sees_closed)):
        job_id = directory.job_id
        for door in (*DOORS, "/login", "/proxy/worker:0/"):
            answer = team.ask(user, f"/jobs/{job_id}{door}", groups=groups)
            if sees and door in DOORS:
                assert answer.status == 200, (door, answer)
            elif not sees:
                nobody = team.ask(user, f"/jobs/{NOBODY}{door}", groups=groups)
                said = answer.body.replace(job_id.encode(), b"ID")
                assert (answer.status, said) == (404, nobody.body.replace(NOBODY.encode(), b"ID"))
            assert SECRET.encode() not in answer.body, door
        for path in ("/stop", "/api/v1/stop", "/api/v1/stacks/worker:0"):
            answer = team.ask(user, f"/jobs/{job_id}{path}", groups=groups, method="POST")
            assert answer.status in ((303, 403, 409) if sees else (404,)), path
    seen = {team.open.job_id} if sees_open else set()
    seen |= {team.closed.job_id} if sees_closed else set()
    assert team.ids(user, groups=groups) == seen
    for query, found in (
        (f"?text={team.closed.job_id}", {team.closed.job_id}),
        ("?text=code%201", {team.open.job_id, team.closed.job_id}),
        (f"?user={owner(team.closed)}&name=clo*", {team.closed.job_id}),
        ("?tag=own", {team.closed.job_id}),
        ("?state=failed", {team.open.job_id, team.closed.job_id}),
    ):
        assert team.ids(user, query, groups=groups) == found & seen, query
    page = team.ask(user, "/", groups=groups).body.decode()
    assert (team.open.job_id in page, team.closed.job_id in page) == (sees_open, sees_closed)
    scraped = team.ask(user, "/metrics", groups=groups).body.decode()
    assert f'howdah_portal_jobs{{state="failed"}} {len(seen)}.0' in scraped
    # Nor is it among what can be chosen, or counted.
    assert (">own<" in page) == sees_closed
    assert f"All <b>{len(seen)}</b>" in page and SECRET not in page
    both = team.ask(
        user, f"/compare?job={team.open.job_id}&job={team.closed.job_id}", groups=groups
    )
    assert both.status == (200 if len(seen) == 2 else 404)
    assert SECRET.encode() not in both.body


def test_a_job_is_its_directorys_owners_and_keeps_its_secrets_from_them_too(team: Team) -> None:
    for directory in (team.open, team.closed):
        found = team.ask("ada", f"/api/v1/jobs?text={directory.job_id}").json()
        assert [job["user"] for job in found["jobs"]] == [owner(directory)]
    assert team.ids(owner(team.closed), "?name=closed") == {team.closed.job_id}
    root = f"/jobs/{team.open.job_id}/api/v1"
    assert team.ask(owner(team.open), f"{root}/config").json()["env"] == {"HF_TOKEN": "(not shown)"}
    log = team.ask(owner(team.open), f"{root}/logs/worker:0/raw").body
    assert log.startswith(b"step 1\n")
    series = team.ask("vera", f"{root}/series?task=worker:0").json()["series"]
    assert "value:loss" in {each["name"] for each in series}


@pytest.mark.parametrize(
    ("status", "user", "options"),
    [
        (403, "ada", {"client": "127.0.0.2"}),
        (403, None, {"client": "127.0.0.2", "Authorization": "Bearer x"}),
        (401, None, {}),
        (401, "", {}),
        (401, None, {"X_Remote_User": "ada", "Cookie": "proxy-user=ada"}),
        (400, "ada, sam", {}),
        (400, "*", {}),
        (403, "ada", {"method": "POST", "Origin": "http://evil.example"}),
        (403, "ada", {"method": "POST", "Origin": "null"}),
        (403, "ada", {"Connection": "Upgrade", "Upgrade": "websocket"}),
    ],
)
def test_only_the_proxy_says_who_reads(
    team: Team, status: int, user: str | None, options: dict[str, str]
) -> None:
    for path in ("/", "/api/v1/jobs", f"/jobs/{team.open.job_id}/api/v1/stop", "/compare"):
        assert team.ask(user, path, **options).status == status, path
    assert team.ask("ada", f"/jobs/{team.open.job_id}/").status == 200


def test_nothing_is_served_beside_the_prefix_and_its_name_leads_to_the_list(team: Team) -> None:
    assert team._replace(prefix="").ask("ada", "/api/v1/jobs").status == 404
    assert team._replace(prefix="").ask("ada", "/howdahs/").status == 404
    assert b"./howdah/" in team.ask("ada", "").body


@pytest.fixture
def running(team: Team, tmp_path: Path) -> Iterator[tuple[Run, JobDirectory]]:
    """A job that runs."""
    goal = tmp_path / "goal"
    env = {"GOAL": str(goal), "HF_TOKEN": SECRET}
    run = start("run", str(job_file(tmp_path, HOLDS, name="holds", acl=ACL, env=env)))
    run.until_line("holding")
    directory = newest()
    yield run, directory
    goal.touch()
    run.end()
    gone(directory)
    shutil.rmtree(directory.path)
    until(lambda: directory.job_id not in team.ids("ada"), "it leaves the list")


def test_a_running_job_is_shown_to_who_may_look_and_stopped_by_who_may_stop(
    team: Team, running: tuple[Run, JobDirectory]
) -> None:
    run, directory = running
    root = f"/jobs/{directory.job_id}"
    until(
        lambda: (
            team.ask("vera", f"{root}/api/v1/job").status == 200
            and team.ask("vera", f"{root}/api/v1/job").json()["phase"] == "running"
        ),
        "it is shown as running",
    )
    until(
        lambda: b"holding on" in team.ask("vera", f"{root}/api/v1/logs/worker:0/raw").body,
        "its log is shown",
    )
    for door in DOORS:
        if door != "/api/v1/stream":
            assert SECRET.encode() not in team.ask("vera", root + door).body, door
        assert team.ask("sam", root + door).status == 404, door
    until(lambda: f"{root[1:]}/stop" in team.ask("mo", "/").body.decode(), "a button to stop it")
    scraped = team.ask("vera", "/metrics").body.decode()
    assert f'howdah_portal_job_running{{job_id="{directory.job_id}"}} 1.0' in scraped
    assert f'howdah_portal_job_tasks{{job_id="{directory.job_id}"}} 1.0' in scraped
    assert team.open.job_id not in scraped and SECRET not in scraped
    assert directory.job_id not in team.ask("sam", "/metrics").body.decode()
    for user, may in (("vera", False), ("mo", True), ("ada", True)):
        page = team.ask(user, "/").body.decode()
        assert (f"{root[1:]}/stop" in page) == may
        assert "/rerun" not in page
        assert ("data-reads-only" in team.ask(user, f"{root}/").body.decode()) != may
    for path in ("/stop", "/api/v1/stop"):
        assert "may not stop" in team.ask("vera", root + path, method="POST").error
        assert team.ask("sam", root + path, method="POST").status == 404
        assert team.ask("blind", root + path, method="POST").status == 404
    for path in ("/rerun", "/api/v1/rerun"):
        answer = team.ask("ada", root + path, method="POST")
        assert (answer.status, "runs no job again" in answer.error) == (403, True), answer
    stacks = team.ask("mo", f"{root}/api/v1/stacks/worker:0", method="POST")
    assert stacks.status == 403
    page = team.ask("vera", f"{root}/proxy/worker:0/")
    assert page.status == 404 and f"`howdah page {directory.job_id}` opens" in page.error
    asked = {"reason": "in the way"}
    answer = team.ask(
        "mo", f"{root}/api/v1/stop", method="POST", body=msgspec.json.encode(asked),
        Content_Type="application/json",
    )  # fmt: skip
    assert (answer.status, answer.json()) == (202, {"stopping": True, "firm": False})
    assert run.end() == 130
    final = gone(directory)
    assert final.reason == "stopped by mo in the portal: in the way"
    until(
        lambda: team.ask("vera", f"{root}/api/v1/job").json()["outcome"] == "stopped",
        "its end is shown",
    )
    assert team.ask("mo", f"{root}/api/v1/stop", method="POST").status == 409


@pytest.mark.nightly
def test_a_running_job_is_followed_live_as_its_readers_may_see_it(
    team: Team, running: tuple[Run, JobDirectory], tmp_path: Path
) -> None:
    run, directory = running
    root = f"/jobs/{directory.job_id}"
    # Only its coordinator knows the address of its page.
    until(
        lambda: (
            team.ask("vera", f"{root}/api/v1/job").status == 200
            and team.ask("vera", f"{root}/api/v1/job").json()["page"]
        ),
        "its coordinator answers",
    )
    assert 'id="note"' not in team.ask("vera", f"{root}/").body.decode()
    seen = ""
    for line in team.follow("vera", f"{root}/api/v1/stream?log=worker:0"):
        seen += line
        if "holding" in seen:
            (tmp_path / "goal").touch()
        if line == "event: bye\n":
            break
    assert "holding on" in seen and SECRET not in seen
    # One stream has it from the middle of the run to its end: nothing of that was read again from files.
    assert seen.count("event: hello") == 1 and "let go" in seen
    assert run.end() == 0
    until(
        lambda: team.ask("vera", f"{root}/api/v1/job").json()["outcome"] == "succeeded",
        "its end is shown",
    )


@pytest.mark.nightly
def test_where_a_coordinator_lets_no_portal_look_the_page_says_so_and_shows_the_directory(
    team: Team, running: tuple[Run, JobDirectory]
) -> None:
    """As one of an older release, which knows no passes."""
    _, directory = running
    (directory.secrets / "token").write_text("of another life")
    root = f"/jobs/{directory.job_id}"
    until(lambda: team.ask("vera", f"{root}/api/v1/tasks").status == 200, "it is found")
    until(
        lambda: "it may be of an older Howdah" in team.ask("vera", f"{root}/").body.decode(),
        "the page says why it may be old",
    )
    assert [task["task"] for task in team.ask("vera", f"{root}/api/v1/tasks").json()] == [
        "worker:0"
    ]
    assert b"holding on" in team.ask("vera", f"{root}/api/v1/logs/worker:0/raw").body


@contextlib.contextmanager
def crafted(team: Team, job_id: str) -> Iterator[JobDirectory]:
    """A job directory that its owner has made by hand."""
    path = base_folder() / job_id
    # Under its name only once it is whole.
    shutil.copytree(team.open.path, base_folder() / f".{job_id}")
    directory = JobDirectory(base_folder() / f".{job_id}")
    yield directory
    shutil.rmtree(path)
    until(lambda: job_id not in team.ids("ada"), "it leaves the list")


def test_a_job_shows_nothing_that_its_owner_could_not_read(team: Team, tmp_path: Path) -> None:
    hidden = tmp_path / "shadow"
    hidden.write_text("root:secret hash\n" * 10)
    if os.getuid() == 0:
        os.chown(hidden, OTHER_UID, OTHER_UID)
    job_id = "bad-20261121-143503-zzzz"
    with crafted(team, job_id) as directory:
        (log,) = (directory.logs / "worker-0").glob("*.log")
        log.unlink()
        log.symlink_to(hidden)
        stolen = directory.logs / "thief-0"
        stolen.symlink_to(hidden.parent)
        (directory.path / "metrics-0001.jsonl").unlink(missing_ok=True)
        if os.getuid() == 0:
            os.link(hidden, directory.path / "metrics-0001.jsonl")
        final = directory.final()
        assert final is not None
        (task,) = final.tasks
        outside = f"../../{team.closed.job_id}/logs/worker"
        tasks = (
            task,
            msgspec.structs.replace(task, task="thief:0", role="thief"),
            msgspec.structs.replace(task, task=f"{outside}:0", role=outside),
        )
        directory.write_final(msgspec.structs.replace(final, tasks=tasks, user="ada"))
        meta = msgspec.structs.replace(
            directory.meta(), user="ada", owner="ada", backend="yarn",
            url=f"file://{team.closed.path}",
        )  # fmt: skip
        directory.write_meta(meta)
        directory.path.rename(base_folder() / job_id)
        until(lambda: job_id in team.ids("vera"), "it is listed")
        (row,) = team.ask("vera", f"/api/v1/jobs?text={job_id}").json()["jobs"]
        assert row["user"] == owner(team.open)
        root = f"/jobs/{job_id}/api/v1"
        quoted = outside.replace("/", "%2F")
        for name in ("worker:0", "thief:0", f"{quoted}:0"):
            for rest in ("", "/raw", "/attempts"):
                answer = team.ask("vera", f"{root}/logs/{name}{rest}")
                assert b"hash" not in answer.body and b"ValueError" not in answer.body, answer
        assert b"hash" not in team.ask("vera", f"{root}/metrics/worker:0").body
        assert "file:" not in team.ask("vera", f"{root}/job").body.decode()


def test_a_second_portal_for_the_store_and_wrong_options_are_refused_in_words(team: Team) -> None:
    store = str(base_folder().parent)
    trusted = ("--trusted-proxy", "127.0.0.1")
    listen = ("--listen", "127.0.0.1:0")
    for arguments, words in (
        (("--store", store, *listen, *trusted), "another portal of this account shows the jobs"),
        (("--store", store, *listen), "--trusted-proxy"),
        (("--store", store, *listen, "--trusted-proxy", "proxy"), "'proxy' is no address"),
        (("--store", "s3://jobs", *trusted), "in folders and on HDFS, nowhere else"),
        (("--store", f"{store}/nothing", *trusted), "is no folder"),
        (("--store", store, "--listen", "8080", *trusted), "is no address with a port"),
        (("--store", store, *trusted, "--user-header", "X: y"), "is no name of a header"),
        (("--store", store, *trusted, "--prefix", "jobs"), "is no path"),
        (("--store", store, *trusted, "--pages-url", "https://pages.example"), "go together"),
        (("--store", store, *trusted, "--pages-port", "8081"), "go together"),
        (("--store", store, *trusted, "--prune-older-than", "long"), "'long' is not a time"),
        (("--store", store, *trusted, "--prune-keep-size", "much"), "'much' is no size up to 1024"),
        *(
            (("--store", store, *trusted, "--pages-url", url, "--pages-port", "0"), "of a host")
            for url in ("https://10.0.0.7", "pages.example", "https://pages.example/howdah")
        ),
    ):
        refused = howdah("portal", *arguments, code=2)
        assert words in " ".join(refused.told.split()), refused.told


@pytest.mark.nightly
def test_old_jobs_are_removed_each_day_as_their_owners_and_administrators_are_told(
    team: Team, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    own = store / owner(team.open)
    ended = own / team.open.job_id
    unended = own / "unended-20261121-143502-k3f9"
    strange = store / "mallory" / team.open.job_id
    for each in (ended, unended, strange):
        shutil.copytree(team.open.path, each)
    for path in (unended / "final.json", *unended.glob("events-*")):
        path.unlink()
    (ended / "logs" / "link").symlink_to(tmp_path)
    run = start(
        "portal", "--store", str(store), "--listen", "127.0.0.1:0", "--json", "--admin", "ada",
        "--trusted-proxy", "127.0.0.1", "--prune-older-than", "0s", "--prune-keep-size", "1k",
    )  # fmt: skip
    port = urlsplit(json.loads(run.until_line('"address"'))["address"]).port
    assert port is not None
    portal = team._replace(port=port, prefix="")
    until(lambda: "last: 1 removed, 1 not" in portal.ask("ada", "/").body.decode(), "it is told")
    page = portal.ask("ada", "/").body.decode()
    assert f"<code>{ended.name}</code> removed" in page
    assert (
        "jobs need more than 1k, the oldest that ended more than 0s ago are removed each day"
        in page
    )
    assert "not removed: it is not mallory&#39;s but" in page
    assert "removed each day" not in portal.ask(owner(team.open), "/").body.decode()
    assert (ended.exists(), unended.exists(), strange.exists()) == (False, True, True)
    run.signal(signal.SIGINT)
    assert run.end() == 130
    assert f"removed {ended.name} of {owner(team.open)}, " in run.told
