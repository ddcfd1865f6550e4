"""Jobs that outlive their delegation tokens. Seven days are two minutes here."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster
from tests.kerberos import toy
from tests.kerberos.person import Person
from tests.yarn.runner import until

pytestmark = pytest.mark.nightly

RENEWED_S, ENDS_S = 30, 120
_LIFETIMES = {
    f"{service}.delegation.token.{name}": str(seconds * 1000)
    for service in ("dfs.namenode", "yarn.resourcemanager")
    for name, seconds in (("renew-interval", RENEWED_S), ("max-lifetime", ENDS_S))
}
JOB = """
name = "long"
command = "python3 program.py"
env = {{ STOP_FILE = "{stop}" }}
[roles.worker]
memory = "256m"
[master]
memory = "256m"
[checkpoint]
folder = "checkpoints"
"""
TRAINS = """
import os, time
from pathlib import Path
from howdah import task
folder = Path(os.environ["HOWDAH_CHECKPOINT_DIR"])
tokens = Path(os.environ["HADOOP_TOKEN_FILE_LOCATION"])
versions, passwords, step = [], set(), 0
while not os.path.exists(os.environ["STOP_FILE"]):
    (folder / "step.txt").write_text(str(step))
    task.checkpoint_saved(step)
    found = tokens.read_bytes()
    assert ("TOY" in os.environ) == (b"TOY_TOKEN" in found), "tokens of other services are lost"
    if found not in versions:
        versions.append(found)
    if len(versions) > 1:  # the first file is YARN's
        assert tokens.stat().st_mode & 0o077 == 0, "others can read the tokens"
    kind = found.index(b"\\x06kms-dt")
    passwords.add(found[kind - 20 : kind])
    step += 1
    time.sleep(2)
print("token files:", len(versions), "tokens of the KMS:", len(passwords), flush=True)
"""


@pytest.fixture(scope="module")
def short_lived(hadoop_module_cluster: MakeCluster) -> Iterator[Cluster]:
    """A cluster whose tokens are renewed every 30 s and end after two minutes. Of its two
    ResourceManagers, each with a principal of its own, ZooKeeper chooses which serves."""
    yield hadoop_module_cluster(
        kerberos=True,
        kms=1,
        resource_managers=2,
        zookeeper=True,
        node_managers=1,
        properties=_LIFETIMES,
    )


@pytest.mark.timeout(600)
def test_a_job_trains_on_when_another_resource_manager_serves_and_that_one_renews_its_tokens(
    short_lived: Cluster, tmp_path: Path
) -> None:
    """With a ticket: of two ResourceManagers with a principal each the serving one dies. The job trains on,
    and the other one renews its tokens, which name the first one's principal."""
    alice = Person.with_ticket(short_lived, tmp_path)
    stop = tmp_path / "stop"
    alice.write(job=JOB.format(stop=stop), program=TRAINS)
    done = alice.howdah("submit", "--backend", "yarn", "job.toml")
    assert done.returncode == 0, done.stderr
    saves_on(alice)
    died = short_lived.active()
    short_lived.kill(f"resourcemanager{died}")
    # As the first one has renewed them they are good until then.
    over = time.time() + RENEWED_S
    until(lambda: short_lived.active() not in (None, died), "the other one serves", 150.0)
    until(lambda: time.time() > over + 1, "what the first one has renewed is over", RENEWED_S + 30)
    saves_on(alice)
    stop.touch()
    until(lambda: alice.application()["state"] == "FINISHED", "it ends", 150.0)
    assert alice.application()["finalStatus"] == "SUCCEEDED", alice.application()
    short_lived.start(f"resourcemanager{died}")
    short_lived.wait_ready()


def saves_on(person: Person) -> None:
    """Wait until the person's job has saved a checkpoint that it had not."""

    def newest() -> int | None:
        told = person.howdah("status", person.job().job_id, "--json")
        return json.loads(told.stdout)["checkpoint"] if told.returncode == 0 else None

    before = newest()
    until(lambda: newest() not in (None, before), "a new checkpoint is saved", 150.0)


@pytest.mark.timeout(900)
def test_a_job_with_a_keytab_lives_on_when_its_first_tokens_have_ended_and_its_master_is_killed(
    short_lived: Cluster, tmp_path: Path
) -> None:
    """With a keytab: new tokens reach the containers, beside those of other services, and after the end of the first ones the master may be
    killed and checkpoints are still saved. The key is gone from HDFS at the end."""
    # No ticket; what looks at HDFS beside the job has the key too.
    keytab = short_lived.kdc.keytab("alice")
    by_key = {"KRB5_CLIENT_KTNAME": f"FILE:{keytab}", "KRB5CCNAME": f"FILE:{tmp_path}/got"}
    alice = Person(short_lived, tmp_path)
    looks = Person(short_lived, tmp_path, by_key)
    stop = tmp_path / "stop"
    toy.install(alice)
    key = f'[hadoop]\nkeytab = "{keytab}"\n[hadoop.tokens.toy]\nurl = "toy://here"\n'
    alice.write(job=JOB.format(stop=f'{stop}", TOY = "1') + key, program=TRAINS)
    done = alice.howdah("submit", "--backend", "yarn", "job.toml")
    assert done.returncode == 0, done.stderr
    job = alice.job()
    url = job.meta().url
    assert url is not None
    began = time.time()
    until(lambda: alice.application()["state"] == "RUNNING", "it runs", 150.0)
    until(lambda: time.time() > began + ENDS_S + 5, "its first tokens have ended", ENDS_S + 30)

    master = _master(url)
    master.kill()
    until(lambda: _running(url) not in (None, master), "the next master runs", 150.0)
    taken_over = time.time()
    until(
        lambda: _newest(looks, f"{url}/checkpoints") > taken_over,
        "checkpoints are saved under the next master",
        150.0,
    )
    stop.touch()
    until(lambda: alice.application()["state"] == "FINISHED", "it ends", 150.0)
    assert alice.application()["finalStatus"] == "SUCCEEDED", alice.application()
    log = looks.howdah("logs", job.job_id).stdout
    count = int(log.partition("token files:")[2].split()[0])
    assert count >= 4, log
    assert int(log.partition("tokens of the KMS:")[2].split()[0]) >= 4, log
    assert not [path for path in looks.files(url) if path.endswith("login.keytab")]


def _newest(person: Person, url: str) -> float:
    return max((changed for _, changed in person.files(url).values()), default=0.0)


def _running(url: str) -> psutil.Process | None:
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "howdah.coordinator" in words and url in words and "python" in Path(words[0]).name:
            return process
    return None


def _master(url: str) -> psutil.Process:
    return until(lambda: _running(url), "the master runs")
