"""Whole jobs on a cluster that demands Kerberos, HDFS data included."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hadoop.cluster import Cluster
from tests.kerberos.person import Person, steps

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


def test_a_job_of_somebody_with_a_ticket_trains_and_has_its_checkpoints_on_hdfs(
    hadoop_kerberos: Cluster, tmp_path: Path
) -> None:
    alice = Person.with_ticket(hadoop_kerberos, tmp_path)
    alice.write(job=JOB, program=TRAINS)
    done = alice.run()
    assert done.returncode == 0, done.stderr
    assert steps(done.stdout).count(4) == 2
    # alice@HOWDAH.TEST is ally on the cluster, and nobody there is the account the tests run as.
    assert "ally" in done.stdout
    told = alice.application()
    assert (told["user"], told["finalStatus"]) == ("ally", "SUCCEEDED")
    url = alice.job().meta().url
    assert url is not None
    assert "/user/ally/" in url
    listed = alice.howdah("status", alice.job().job_id)
    assert "succeeded" in listed.stdout, listed
    assert alice.files(f"{url}/checkpoints"), "nothing was saved"
    assert {owner for owner, _ in alice.files(url).values()} == {"ally"}


def ticket(cluster: Cluster, folder: Path) -> Person:
    return Person.with_ticket(cluster, folder)


def token_file(cluster: Cluster, folder: Path) -> Person:
    before = Person.with_ticket(cluster, folder / "before")
    return Person(cluster, folder, {"HADOOP_TOKEN_FILE_LOCATION": str(before.tokens())})


def proxy_user(cluster: Cluster, folder: Path) -> Person:
    gateway = Person.with_ticket(cluster, folder, "gateway")
    gateway.env["HADOOP_PROXY_USER"] = "bob"
    return gateway


@pytest.mark.parametrize("protection", ["authentication", "integrity", "privacy"])
@pytest.mark.parametrize(
    ("who", "user"), [(ticket, "ally"), (token_file, "ally"), (proxy_user, "bob")]
)
def test_a_job_trains_under_each_protection_whatever_says_who_submits(
    hadoop_kerberos: Cluster,
    tmp_path: Path,
    who: Callable[[Cluster, Path], Person],
    user: str,
    protection: str,
) -> None:
    person = who(hadoop_kerberos, tmp_path)
    person.configure(
        core={"hadoop.rpc.protection": protection},
        hdfs={"dfs.data.transfer.protection": protection},
    )
    person.write(job=JOB, program=TRAINS)
    done = person.run()
    assert done.returncode == 0, done.stderr
    assert steps(done.stdout).count(4) == 2
    told = person.application()
    assert (told["user"], told["finalStatus"]) == (user, "SUCCEEDED")
    url = person.job().meta().url
    assert url is not None
    assert person.files(f"{url}/checkpoints")
