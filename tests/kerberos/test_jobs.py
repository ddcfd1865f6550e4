"""Whole jobs on a cluster that demands Kerberos, HDFS data included."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hadoop import artifacts
from tests.hadoop.cluster import Cluster
from tests.hadoop.site import OTHER_NAME
from tests.kerberos import toy
from tests.kerberos.person import Person, steps
from tests.yarn.runner import until

JOB = """
name = "train"
command = "python3 program.py"
[roles.worker]
instances = 2
memory = "256m"
[master]
memory = "256m"
[checkpoint]
folder = "checkpoints"
"""
TRAINS = """
import os
from pathlib import Path
from howdah import task
folder = Path(os.environ["HOWDAH_CHECKPOINT_DIR"])
weight = 0.0
for step in range(5):
    weight += 0.5 * (3.0 - weight)
    (folder / "weight.txt").write_text(str(weight))
    task.checkpoint_saved(step)
    print("step", step, weight, os.environ["HADOOP_USER_NAME"], flush=True)
"""
READS_TOKENS = """
import os, re
from pathlib import Path
found = Path(os.environ["HADOOP_TOKEN_FILE_LOCATION"]).read_bytes()
print(re.search(rb"alice@[A-Z.]+ at [a-z:/]+", found)[0].decode(), b"TOY_TOKEN" in found, flush=True)
# With this one a program asks the ResourceManager, as it could under TonY.
assert b"RM_DELEGATION_TOKEN" in found
"""


def finished(person: Person) -> dict[str, str]:
    """What YARN says at the end, which it may hear of a moment after the job's own."""
    until(lambda: person.application()["state"] == "FINISHED", "YARN has ended it")
    return person.application()


def test_a_job_of_somebody_with_a_ticket_trains_and_has_its_checkpoints_on_hdfs(
    hadoop_kerberos: Cluster, tmp_path: Path
) -> None:
    """A job trains in two containers and keeps its logs and checkpoints on HDFS, all of it as its submitter,
    whose account here has another name. The file system is one NameNode, called by its host's name."""
    alice = Person.with_ticket(hadoop_kerberos, tmp_path)
    port = hadoop_kerberos.default_fs.rpartition(":")[2]
    alice.configure(core={"fs.defaultFS": f"hdfs://localhost:{port}"})
    alice.write(job=JOB, program=TRAINS)
    done = alice.run()
    assert done.returncode == 0, done.stderr
    assert steps(done.stdout).count(4) == 2
    # alice@HOWDAH.TEST is ally on the cluster, and nobody there is the account the tests run as.
    assert "ally" in done.stdout
    told = finished(alice)
    assert (told["user"], told["finalStatus"]) == ("ally", "SUCCEEDED")
    url = alice.job().meta().url
    assert url is not None
    assert "/user/ally/" in url
    files = alice.files(url)
    assert {owner for owner, _ in files.values()} == {"ally"}
    for name in ("weight.txt", "logs/worker-0/1.log", "logs/worker-1/1.log"):
        assert any(path.endswith(name) for path in files), name


@pytest.mark.nightly
def test_a_job_has_a_token_for_each_file_system_that_it_writes(
    hadoop_kerberos: Cluster, tmp_path: Path
) -> None:
    """Checkpoints and outputs on other file systems than the job's directory, one of them by way of a ViewFs: the
    job has a token for each."""
    site = hadoop_kerberos.site
    alice = Person.with_ticket(hadoop_kerberos, tmp_path)
    # The same NameNode, but who has only a token for its address is nobody to the name service.
    other = f"hdfs://{OTHER_NAME}/user/ally"
    alice.configure(core={"fs.viewfs.mounttable.v.link./kept": f"{other}/kept"})
    job = (
        JOB.partition("[checkpoint]")[0]
        + f"""
[checkpoint]
folder = "checkpoints"
store = "viewfs://v/kept"
[outputs]
folders = ["results"]
store = "{other}/results"
"""
    )
    alice.write(job=job, program=TRAINS + '\nPath("results/loss.txt").write_text("0.5")\n')
    done = alice.run()
    assert done.returncode == 0, done.stderr
    status = json.loads(alice.howdah("status", alice.job().job_id, "--json").stdout)
    assert status["unsaved"] == [], status
    folder = f"{site.default_fs}/user/ally"
    assert any(each.endswith("weight.txt") for each in alice.files(f"{folder}/kept"))
    assert any(each.endswith("loss.txt") for each in alice.files(f"{folder}/results"))


@pytest.mark.nightly
def test_tokens_that_a_plug_in_gets_reach_the_programs(
    hadoop_kerberos: Cluster, tmp_path: Path
) -> None:
    """Tokens of other services, which an installed package gets for the job, are in the programs' token
    file."""
    alice = Person.with_ticket(hadoop_kerberos, tmp_path)
    toy.install(alice)
    alice.write(job=JOB + '[hadoop.tokens.toy]\nurl = "toy://here"\n', program=READS_TOKENS)
    done = alice.run()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("alice@HOWDAH.TEST at toy://here True") == 2
    assert "tokens of toy: got by toy_tokens:tokens" in alice.howdah("doctor").stdout


@pytest.mark.nightly
def test_logs_that_only_yarn_has_are_read(hadoop_kerberos: Cluster, tmp_path: Path) -> None:
    """`howdah logs` of a job that has ended, on another machine and where the job's own logs are gone: it reads those
    that YARN has aggregated, all under `privacy`."""
    if artifacts.native() is None:
        pytest.skip("NodeManagers aggregate no logs here: they have no native library")
    carol = Person.with_ticket(hadoop_kerberos, tmp_path, "carol")
    carol.configure(
        core={"hadoop.rpc.protection": "privacy"}, hdfs={"dfs.data.transfer.protection": "privacy"}
    )
    carol.write(job=JOB, program=TRAINS)
    done = carol.run()
    assert done.returncode == 0, done.stderr
    job = carol.job()
    carol.remove(f"{job.meta().url}/logs/worker-1")
    carol.env["HOWDAH_HOME"] = str(tmp_path / "elsewhere")

    def steps_of(task: str) -> list[int]:
        return steps(carol.howdah("logs", job.job_id, task).stdout)

    until(lambda: steps_of("worker:1"), "YARN has aggregated the logs")
    assert steps_of("worker:1") == steps_of("worker:0") == [0, 1, 2, 3, 4]


def ticket(cluster: Cluster, folder: Path) -> tuple[Person, str]:
    """a ticket"""
    return Person.with_ticket(cluster, folder), ""


def keytab(cluster: Cluster, folder: Path) -> tuple[Person, str]:
    """no ticket, and `keytab` under `[hadoop]`"""
    job = f'[hadoop]\nkeytab = "{cluster.kdc.keytab("alice")}"\n'
    return Person(cluster, folder), job


def token_file(cluster: Cluster, folder: Path) -> tuple[Person, str]:
    """no ticket, and a file of tokens"""
    before = Person.with_ticket(cluster, folder / "before")
    return Person(cluster, folder, {"HADOOP_TOKEN_FILE_LOCATION": str(before.tokens())}), ""


def proxy_user(cluster: Cluster, folder: Path) -> tuple[Person, str]:
    """the ticket of a gateway that acts for bob"""
    gateway = Person.with_ticket(cluster, folder, "gateway")
    gateway.env["HADOOP_PROXY_USER"] = "bob"
    return gateway, ""


PROTECTIONS = ("authentication", "integrity", "privacy")
WHO = {ticket: "ally", keytab: "ally", token_file: "ally", proxy_user: "bob"}
"""Each with the name that the cluster knows them by."""


@pytest.mark.nightly
@pytest.mark.parametrize("protection", PROTECTIONS)
@pytest.mark.parametrize("who", WHO)
def test_a_job_trains_under_each_protection_whatever_says_who_submits(
    hadoop_kerberos: Cluster,
    tmp_path: Path,
    who: Callable[[Cluster, Path], tuple[Person, str]],
    protection: str,
) -> None:
    person, hadoop = who(hadoop_kerberos, tmp_path)
    person.configure(
        core={"hadoop.rpc.protection": protection},
        hdfs={"dfs.data.transfer.protection": protection},
    )
    person.write(job=JOB + hadoop, program=TRAINS)
    done = person.run()
    assert done.returncode == 0, done.stderr
    assert steps(done.stdout).count(4) == 2
    assert ("the job can use HDFS until" in done.stderr) == (who is not keytab)
    told = finished(person)
    assert (told["user"], told["finalStatus"]) == (WHO[who], "SUCCEEDED")
    url = person.job().meta().url
    assert url is not None
    assert Person.with_ticket(hadoop_kerberos, tmp_path / "looks", "hdfs").files(
        f"{url}/checkpoints"
    )
