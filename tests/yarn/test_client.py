"""The client's side on a real cluster: what is refused, why a job waits, how it is found again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from howdah.backends.base import BackendError, Step, SubmissionCancelled
from howdah.backends.yarn import access
from howdah.client.api import as_loaded, connect
from howdah.client.submission.begin import begin
from howdah.client.submission.submit import submit
from howdah.core.messages import Task
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.retry import RetryPolicy
from howdah.storage.hdfs.files import Hdfs
from howdah.storage.jobdir import NoSuchJob, base_folder, list_jobs
from tests.cli.howdah import howdah, start
from tests.yarn.relay import Relay
from tests.yarn.runner import SMALL, Yarn, until

ONE = """
command = "echo begun; sleep {s}"
source = ""
[roles.worker]
memory = "256m"
"""
SHORT = ONE.format(s=0)
LONG = ONE.format(s=600)


def refusal(yarn: Yarn, **overrides: object) -> str:
    """What the cluster is said not to give. Nothing of the job is left then on the cluster; here is why, if YARN had
    taken it into a queue."""
    before = on_hdfs(yarn)
    sets = tuple(f"{key.replace('__', '.')}={value}" for key, value in overrides.items())
    path = yarn.folder / "job.toml"
    path.write_text(SHORT + SMALL)
    with pytest.raises(BackendError) as caught:
        yarn.submit_file(path, sets)
    assert on_hdfs(yarn) == before
    text = str(caught.value)
    if "which YARN has put it into" not in text:
        assert list_jobs(base_folder()) == []
    for job in list_jobs(base_folder()):
        final = job.final()
        assert final is not None and text in (final.reason or "")
        shutil.rmtree(job.path)
    return text


def on_hdfs(yarn: Yarn) -> set[str]:
    """Directories on HDFS of jobs that have this test's folder for a name: other tests submit too."""
    user = yarn.cluster.site.user
    hdfs = Hdfs(yarn.cluster.default_fs, conf_dir=str(yarn.cluster.conf_dir))
    name = yarn.folder.name.rstrip("0123456789_").replace("_", "-")
    with contextlib.suppress(FileNotFoundError):
        listed = hdfs.list(f"/user/{user}/.howdah/jobs/{user}")
        return {stat.path for stat in listed if stat.name.startswith(name)}
    return set()


def at_yarn(yarn: Yarn) -> set[str]:
    """Applications of such jobs."""
    name = yarn.folder.name
    return {each["id"] for each in yarn.cluster.applications() if name in each["name"]}


# -- what can never be granted -------------------------------------------------------------------


def test_what_the_cluster_can_never_grant_is_refused_with_what_it_can(yarn: Yarn) -> None:
    assert 'at most: memory = "12288m"' in refusal(yarn, roles__worker__memory="64g")
    assert "no resource 'example.com/lizence'" in refusal(
        yarn, roles__worker__resources='{"example.com/lizence" = 1}'
    )
    text = refusal(yarn, roles__worker__instances=30, roles__worker__memory="1g")
    assert "all tasks that must run together need 30" in text
    text = refusal(yarn, queue="small", roles__worker__instances=4, roles__worker__memory="1g")
    assert "the queue 'small' may have at most" in text


@pytest.mark.parametrize(
    ("queue", "user", "said"),
    [
        ("defualt", "", ("YARN did not take the job", "did you mean 'default'?")),
        ("pair", "", ("YARN did not take the job", "only holds other queues")),
        ("closed", "ada", ("ada may not submit to 'closed'", "use default")),
    ],
)
def test_a_queue_that_yarn_refuses_is_refused_with_what_could_be_meant(
    yarn: Yarn, queue: str, user: str, said: tuple[str, ...]
) -> None:
    before = on_hdfs(yarn)
    environ = dict(os.environ)
    if user:
        yarn.cluster.hdfs(f"/user/{user}", "MKDIRS")
        yarn.cluster.hdfs(f"/user/{user}", "SETOWNER", owner=user)
        environ["HADOOP_USER_NAME"] = user
    path = yarn.folder / "job.toml"
    path.write_text(SHORT + SMALL)
    run = start("run", str(path), "--backend", "yarn", "--set", f"queue={queue}", env=environ)
    assert run.end() == 3
    assert all(words in run.told for words in said), run.told
    assert on_hdfs(yarn) == before


# -- a submission that does not come to its end --------------------------------------------------


def test_what_cannot_be_packed_leaves_nothing(yarn: Yarn) -> None:
    before = on_hdfs(yarn)
    path = yarn.folder / "job.toml"
    path.write_text(SHORT + '[environment]\narchive = "damaged.tar.gz"\n')
    (yarn.folder / "damaged.tar.gz").write_text("no archive")
    with pytest.raises(BackendError, match="cannot be read as an archive"):
        yarn.submit_file(path)
    assert on_hdfs(yarn) == before


@pytest.mark.parametrize("at", ["", "submitting"])
def test_a_cancelled_submission_leaves_nothing(yarn: Yarn, at: str) -> None:
    before = on_hdfs(yarn)
    known = at_yarn(yarn)
    path = yarn.folder / "job.toml"
    path.write_text(SHORT + SMALL)
    submission = begin("yarn")
    try:
        loaded = as_loaded(path)
        if not at:
            submission.cancel()

        def progress(step: Step) -> None:
            if step.what == at:
                raise KeyboardInterrupt

        with pytest.raises((SubmissionCancelled, KeyboardInterrupt)):
            submit(loaded, backend="yarn", submission=submission, progress=progress)
    finally:
        submission.close()
    assert on_hdfs(yarn) == before
    assert list_jobs(base_folder()) == []
    assert at_yarn(yarn) == known


@pytest.mark.nightly
def test_a_submission_whose_answer_is_lost_is_followed_and_can_be_stopped(
    yarn: Yarn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """YARN has taken the job, and does not answer any more: neither that, nor that it has ended it."""
    monkeypatch.setattr(access, "POLICY", RetryPolicy(max_wait_s=10.0, try_timeout_s=10.0))
    conf = yarn.folder / "conf"
    shutil.copytree(yarn.cluster.conf_dir, conf)
    address = Configuration.load(conf).rm_addresses("client")[0]
    path = yarn.folder / "job.toml"
    path.write_text(LONG + SMALL)

    async def test() -> None:
        relay = Relay((address.host, address.port), "submitApplication", loses_answers=True)
        async with relay as port:
            site = conf / "yarn-site.xml"
            there = f"{address.host}:{address.port}"
            site.write_text(site.read_text().replace(f">{there}<", f">127.0.0.1:{port}<"))
            monkeypatch.setenv("HADOOP_CONF_DIR", str(conf))
            relay.cut_at = 1
            with pytest.raises(BackendError, match="Whether YARN has taken the job") as caught:
                await asyncio.to_thread(yarn.submit_file, path)
            relay.cut_at = None
            (job_id,) = re.findall(r"'howdah stop (\S+)' ends it", str(caught.value))
            run = await asyncio.to_thread(start, "attach", job_id)
            await asyncio.to_thread(run.until_line, "begun")
            await asyncio.to_thread(howdah, "stop", job_id, code=0)
            assert await asyncio.to_thread(run.end) == 130
            await asyncio.to_thread(howdah, "rm", job_id, code=0)

    asyncio.run(test())


# -- a job that waits ----------------------------------------------------------------------------


@pytest.fixture
def full_queue(yarn: Yarn) -> Iterator[str]:
    """The queue ``small``, with a job that leaves no room for another master."""
    taken = yarn.submit('queue = "small"\n' + LONG.replace("256m", "896m"))
    taken.until_logged("worker:0", "begun")
    yield "small"
    taken.handle.stop(firm=True)
    taken.wait()


@pytest.mark.nightly
def test_a_job_in_a_full_queue_says_why_it_waits_and_can_be_stopped(
    yarn: Yarn, full_queue: str
) -> None:
    job = yarn.submit(f'queue = "{full_queue}"\n' + SHORT)
    reason = until(lambda: job.view().reason, "it says why it waits")
    assert "small" in reason, reason
    assert job.view().phase == "submitted"
    follow = start("attach", job.job_id)
    try:
        follow.until_line("waiting: ")
    finally:
        follow.signal(signal.SIGINT)
        assert follow.end() == 0
    job.handle.stop("no time")
    final = job.wait()
    assert (final.outcome, final.exit_code) == ("stopped", 130)
    assert "no time" in final.reason
    assert job.until_application("KILLED")


@pytest.mark.nightly
def test_a_master_whose_containers_do_not_come_says_why(yarn: Yarn) -> None:
    first = yarn.submit('queue = "small"\n' + LONG.replace("256m", "640m"))
    first.until_logged("worker:0", "begun")
    job = yarn.submit('queue = "small"\n' + SHORT.replace("256m", "768m"))

    def told() -> str | None:
        reason = job.view().reason
        return reason if "worker:0 (" in reason else None

    reason = until(told, "it says why containers do not come")
    assert reason.startswith("waiting for containers: worker:0 (worker: "), reason
    first.handle.stop(firm=True)
    assert job.wait().outcome == "succeeded"


@pytest.mark.nightly
def test_a_damaged_copy_of_a_job_is_brought_anew(yarn: Yarn) -> None:
    """By whichever document of this machine's copy: HDFS has them all."""
    job = yarn.submit(SHORT)
    job.wait()
    commands = (("status", job.job_id, "--json"), ("events", job.job_id, "--json"))
    told = [howdah(*command).out for command in commands]
    for name in ("meta.json", "job.json", "final.json"):
        file = job.directory.path / name
        whole = file.read_bytes()
        for damaged in (b"", whole[: len(whole) // 2], b"\0" * len(whole)):
            file.write_bytes(damaged)
            assert [howdah(*command).out for command in commands] == told, name


# -- ends without a word of the master -----------------------------------------------------------


def test_a_job_killed_from_outside_says_by_whom_and_leaves_its_logs_but_not_its_key(
    yarn: Yarn,
) -> None:
    job = yarn.submit(LONG)
    job.until_logged("worker:0", "begun")
    hdfs = Hdfs(job.url, conf_dir=str(yarn.cluster.conf_dir))
    # What a job with a keytab has in its directory; its master does not live to remove it.
    hdfs.write_new(f"{job.url}/login.keytab", b"a key")
    yarn.cluster.rm(f"apps/{job.application_id}/state", "PUT", {"state": "KILLED"})
    final = job.wait()
    assert final.outcome == "stopped"
    assert "was killed by root" in final.reason
    assert b'"stopped"' in job.read("final.json")
    assert [(task.task, task.state) for task in final.tasks] == [("worker:0", "ended")]
    assert not hdfs.exists(f"{job.url}/login.keytab")
    # Of logs that no agent could copy, YARN has its own.
    hdfs.remove(f"{job.url}/logs", recursive=True)
    job.directory.log_path(Task("worker", 0), 1).unlink(missing_ok=True)
    assert job.until_logged("worker:0", "begun")


def test_a_master_that_cannot_start_is_shown_with_its_last_words(yarn: Yarn) -> None:
    job = yarn.submit(
        SHORT + '[hadoop]\npython = "/no/such/python3"\n[master]\nmemory = "256m"\nattempts = 1\n'
    )
    final = job.wait()
    assert final.outcome == "failed"
    assert "the master failed" in final.reason
    assert "/no/such/python3" in "\n".join([final.reason, *final.failures[0].tail])
    run = howdah("status", job.job_id)
    assert "/no/such/python3" in run.text


def test_what_was_shipped_and_is_gone_is_named(yarn: Yarn) -> None:
    from howdah.backends.yarn.client import application_end

    text = (
        "Application application_1_0001 failed 1 times due to AM Container for "
        "appattempt_1_0001_000001 exited with  exitCode: -1000\nFailing this attempt.Diagnostics: "
        "[2026-11-21 16:12:05.098]File does not exist: hdfs://nn/cache/runtime.tar.gz\n"
        "java.io.FileNotFoundException: File does not exist: hdfs://nn/cache/runtime.tar.gz\n"
        "\tat org.apache.hadoop.hdfs.DistributedFileSystem.getFileStatus(X.java:1)\n"
    )
    ended = application_end.ApplicationEnd(
        application_id="application_1_0001", state="FAILED", diagnostics=text
    )
    assert application_end.death(ended) is application_end.Death.NOT_BROUGHT


# -- from elsewhere ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place", [pytest.param("the usual store", marks=pytest.mark.nightly), "a store of its own"]
)
def test_a_job_is_found_from_another_machine_by_any_of_its_names(
    yarn: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    own = f'store = "{yarn.cluster.default_fs}/user/{yarn.cluster.site.user}/own"\n'
    job = yarn.submit(LONG if place == "the usual store" else own + LONG)
    job.until_logged("worker:0", "begun")
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "elsewhere"))
    assert "begun" in howdah("logs", job.application_id).text
    assert all(line["time"] for line in howdah("logs", job.application_id, "--json").documents())
    assert "worker:0" in howdah("status", job.job_id).text
    assert howdah("events", job.job_id[:-2]).text
    assert job.job_id in howdah("list", "--backend", "yarn").text
    where = ("exec", job.application_id, "worker:0", "--")
    beside = howdah(*where, "sh", "-c", "echo $HOWDAH_ROLE in $CONTAINER_ID; exit 9", code=9)
    assert re.fullmatch(r"worker in container_\w+", beside.text)
    follow = start("attach", job.application_id)
    try:
        follow.until_line("worker:0 | begun")
        howdah("stop", "--now", job.job_id)
    finally:
        assert follow.end() == 130
    assert connect(job.application_id).status().outcome == "stopped"
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "third"))
    handle = connect(job.job_id)
    assert [line.text for line in handle.logs(follow=False)] == ["begun"]
    assert list(handle.events(follow=False))
    there = Hdfs(job.url, conf_dir=str(yarn.cluster.conf_dir))
    assert there.exists(job.url)
    assert f"{job.job_id} removed, " in howdah("rm", job.application_id).text
    assert not there.exists(job.url) and not handle.directory.exists()


def test_an_application_that_is_no_job_is_called_so(yarn: Yarn) -> None:
    with pytest.raises(NoSuchJob, match="does not know application_1_0001"):
        connect("application_1_0001")


# -- the command line ----------------------------------------------------------------------------


COUNTS = """
import pathlib
folder = pathlib.Path("saved")
found = sorted(folder.glob("step-*"))
step = int(found[-1].name.partition("-")[2]) if found else 0
print("begins at", step)
for old in found:
    old.unlink()
(folder / f"step-{step + 5}").write_text("weights")
(folder / "large").write_bytes(bytes(3 << 20))  # sent in parts
"""
RESUMED = """
command = "python3 counts.py"
[checkpoint]
folder = "saved"
[roles.worker]
memory = "256m"
"""


def test_a_job_goes_on_from_its_checkpoint_on_the_cluster_and_away_from_it(yarn: Yarn) -> None:
    (yarn.folder / "counts.py").write_text(COUNTS)
    path = yarn.folder / "job.toml"
    # YARN takes ten tags of an application, in ASCII.
    tags = [*(f"tag-{number}" for number in range(10)), "größe"]
    path.write_text(f"tags = {tags}\n{RESUMED}{SMALL}", encoding="utf-8")

    def again(begins_at: int, *options: str) -> None:
        before = list_jobs(base_folder())[0].job_id
        run = howdah("rerun", before, "--resume", *options)
        assert f"worker:0 | begins at {begins_at}" in run.text
        assert re.search(rf"from checkpoint \d+ of {before}", run.told)

    first = howdah("run", str(path), "--backend", "yarn")
    assert "worker:0 | begins at 0" in first.text
    (note,) = (line for line in first.err if "these tags are not" in line)
    assert "tag-9" in note and "größe" in note
    assert "tag-0" not in note
    again(5, "--backend", "local")
    again(10, "--backend", "yarn")
    kept = [job for job in list_jobs(base_folder()) if any(job.path.glob("checkpoints/*/large"))]
    assert [job.meta().backend for job in kept] == ["local"], "what is on HDFS is not here as well"


def test_ctrl_c_stops_the_job_on_the_cluster(yarn: Yarn) -> None:
    path = yarn.folder / "job.toml"
    path.write_text(LONG + SMALL)
    run = start("run", str(path), "--backend", "yarn")
    run.until_line("worker:0 | begun")
    run.signal(signal.SIGINT)
    assert run.end() == 130
    (directory,) = list_jobs(base_folder())
    final = directory.final()
    assert final is not None and final.outcome == "stopped"


@pytest.mark.nightly
def test_what_the_cluster_does_not_heed_of_a_job_is_said_and_the_job_runs(
    yarn: Yarn, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = changed(yarn, "yarn-site.xml", r"(yarn\.acl\.enable</name>\s*<value>)true", r"\1false")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))
    path = yarn.folder / "job.toml"
    path.write_text(
        SHORT + 'image = "library/python"\n' + SMALL + '[acl]\nview-groups = ["team"]\n'
    )
    run = howdah("run", str(path), "--backend", "yarn")
    assert "succeeded" in run.text
    assert "the cluster does not heed all of the job:" in run.told
    assert "roles.worker.image: containers run on the nodes as they are, without" in run.told
    assert f"yarn.acl.enable is false ({folder}/yarn-site.xml)" in run.told
    doctor = howdah("doctor", "--backend", "yarn").text
    assert "access lists: `[acl]` of a job keeps nobody out" in doctor
    assert "images: containers run on the nodes as they are" in doctor


# -- doctor --------------------------------------------------------------------------------------


def test_doctor_finds_nothing_wrong_with_a_good_cluster(yarn: Yarn) -> None:
    run = howdah("doctor", "--backend", "yarn")
    assert "ok  ResourceManager" in run.text
    # "ok", or a warning where the disk of these tests is nearly full.
    assert re.search(r"^.. +HDFS: .*\d GiB free", run.text, re.M)
    assert "NO" not in run.text


def changed(yarn: Yarn, name: str, old: str, new: str) -> Path:
    """A copy of the configuration with one thing changed."""
    folder = yarn.folder / "changed"
    folder.mkdir()
    for path in yarn.cluster.conf_dir.glob("*.xml"):
        text = path.read_text()
        (folder / path.name).write_text(re.sub(old, new, text) if path.name == name else text)
    return folder


def broken(yarn: Yarn, monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str) -> str:
    """What doctor says of a copy of the configuration with one thing changed."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(changed(yarn, name, old, new)))
    return howdah("doctor", "--backend", "yarn", code=3).text


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (
            "yarn-site.xml",
            r"(yarn\.resourcemanager\.address</name>\s*<value>)[^<]*",
            r"\g<1>127.0.0.1:1",
            "ResourceManager: 127.0.0.1:1 cannot be reached",
        ),
        (
            "core-site.xml",
            r"(fs\.defaultFS</name>\s*<value>)[^<]*",
            r"\g<1>hdfs://127.0.0.1:1",
            "the NameNode 127.0.0.1:1 cannot be reached",
        ),
        (
            "core-site.xml",
            r"(fs\.defaultFS</name>\s*<value>)[^<]*",
            r"\g<1>file:///",
            "which is no HDFS",
        ),
        ("core-site.xml", r"</configuration>", r"", "core-site.xml"),
    ],
)
def test_doctor_says_what_is_wrong_with_a_broken_configuration(
    yarn: Yarn, monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str, said: str
) -> None:
    assert said in broken(yarn, monkeypatch, name, old, new)


def test_without_a_configuration_it_is_said_where_was_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "job.toml"
    path.write_text(SHORT)
    run = howdah("run", str(path), "--backend", "yarn", code=3)
    assert "none of HADOOP_CONF_DIR" in run.told
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "nowhere"))
    run = howdah("run", str(path), "--backend", "yarn", code=3)
    assert "nowhere is not a folder" in run.told


# -- a client that is killed ---------------------------------------------------------------------

KILLED = """
import os, signal, sys
from howdah.backends.yarn.client.submit import YarnSubmission
from howdah.cli.main import main

setattr(YarnSubmission, sys.argv[1], lambda *_: os.kill(os.getpid(), signal.SIGKILL))
main(["submit", sys.argv[2], "--backend", "yarn"])
"""


@pytest.mark.nightly
@pytest.mark.parametrize("moment", ["_note_place", "_hand_over"])
def test_a_job_whose_client_was_killed_while_it_submitted_is_lost_in_words(
    yarn: Yarn, moment: str
) -> None:
    path = yarn.folder / "job.toml"
    path.write_text(SHORT + SMALL)
    client = [sys.executable, "-c", KILLED, moment, str(path)]
    killed = subprocess.run(client, capture_output=True, text=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (directory,) = list_jobs(base_folder())
    words = f"{directory.job_id} was never handed over to YARN"
    (listed,) = until(
        lambda: [x for x in howdah("list", "--json").documents()[0] if x["lost"]], "it is lost"
    )
    assert words in listed["reason"]
    assert "lost" in howdah("list").text
    assert words in howdah("status", directory.job_id).text
    assert words in howdah("logs", directory.job_id, code=3).told
    assert words in howdah("stop", directory.job_id, code=3).told
