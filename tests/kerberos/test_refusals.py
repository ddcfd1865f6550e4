"""What goes wrong with Kerberos is said once, with what to do about it, and nothing is submitted."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from tests.hadoop.cluster import Cluster
from tests.hadoop.kdc import program
from tests.kerberos import toy
from tests.kerberos.person import Person
from tests.yarn.runner import until

pytestmark = pytest.mark.nightly

JOB = 'name = "never"\ncommand = "true"\n[roles.worker]\nmemory = "256m"\n'


def refused(person: Person, *words: str, job: str = JOB) -> None:
    """Submitting fails with one line that has these words; no job is left anywhere."""
    person.write(job=job)
    done = person.howdah("submit", "--backend", "yarn", "job.toml")
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("howdah |")]
    assert len(lines) == 1, done.stderr
    for each in words:
        assert each in lines[0], lines[0]
    assert not [*(person.folder / "home" / "jobs").glob("*/*")]
    assert not [each for each in person.cluster.applications() if "never" in each["name"]]


def test_without_a_ticket(hadoop_kerberos: Cluster, tmp_path: Path) -> None:
    """No ticket."""
    refused(Person(hadoop_kerberos, tmp_path), "there is no ticket", "run kinit", "keytab")


def test_with_an_expired_ticket(hadoop_kerberos: Cluster, tmp_path: Path) -> None:
    """An expired ticket."""
    alice = Person.with_ticket(hadoop_kerberos, tmp_path, "alice", "-l", "1s")

    def expired() -> bool:
        words = [program("klist"), "-s", "-c", str(tmp_path / "tickets")]
        return subprocess.run(words, env=alice.env).returncode == 1

    until(expired, "the ticket expires", 20.0)
    refused(alice, "the ticket has expired", "kinit", "keytab")


def test_with_a_clock_ten_minutes_off(hadoop_kerberos: Cluster, tmp_path: Path) -> None:
    """A clock that is ten minutes off."""
    alice = Person.with_ticket(hadoop_kerberos, tmp_path)
    cache = tmp_path / "tickets"
    data = cache.read_bytes()
    # The cache's header has what Kerberos adds to this machine's clock (file format 4, tag 1).
    assert data[:2] == b"\5\4"
    (length,) = struct.unpack(">H", data[2:4])
    header = struct.pack(">HHii", 1, 8, 600, 0)
    cache.write_bytes(data[:2] + struct.pack(">H", len(header)) + header + data[4 + length :])
    refused(alice, "clock", "five minutes")


def test_to_a_server_of_another_name_than_is_configured(
    hadoop_kerberos: Cluster, tmp_path: Path
) -> None:
    """A server of another name than the configuration has."""
    alice = Person.with_ticket(hadoop_kerberos, tmp_path)
    alice.configure(yarn={"yarn.resourcemanager.principal": "yarn/_HOST@HOWDAH.TEST"})
    refused(alice, "'rm/localhost'", "'yarn/localhost'", "the configuration wants")


def test_to_a_server_of_another_realm(hadoop_kerberos: Cluster, tmp_path: Path) -> None:
    """A server of another realm."""
    alice = Person.with_ticket(hadoop_kerberos, tmp_path)
    alice.configure(yarn={"yarn.resourcemanager.principal": "rm/_HOST@ELSEWHERE"})
    refused(alice, "rm/localhost@ELSEWHERE")


def test_with_a_keytab_that_has_not_the_key(hadoop_kerberos: Cluster, tmp_path: Path) -> None:
    """A keytab without the principal's key."""
    somebody = Person(hadoop_kerberos, tmp_path)
    keytab = hadoop_kerberos.kdc.keytab("alice")
    job = JOB + f'[hadoop]\nkeytab = "{keytab}"\nprincipal = "bob@HOWDAH.TEST"\n'
    refused(somebody, "bob@HOWDAH.TEST", str(keytab), "no key", job=job)


def test_of_somebody_who_may_not_act_for_another(hadoop_kerberos: Cluster, tmp_path: Path) -> None:
    """Somebody who may not act for another user."""
    bob = Person.with_ticket(hadoop_kerberos, tmp_path, "bob")
    bob.env["HADOOP_PROXY_USER"] = "ally"
    refused(bob, "bob", "impersonate", "ally")


def test_for_a_service_whose_tokens_are_not_got(hadoop_kerberos: Cluster, tmp_path: Path) -> None:
    """A service under `[hadoop.tokens]` whose tokens no installed package gets, or not now."""
    alice = Person.with_ticket(hadoop_kerberos, tmp_path)
    named = JOB + "[hadoop.tokens.toy]\n"
    refused(alice, "hadoop.tokens.toy", "no installed package", "howdah.token_providers", job=named)
    toy.install(alice)
    refused(alice, "'toys'", "Did you mean 'toy'?", job=JOB + "[hadoop.tokens.toys]\n")
    refused(alice, "'toy' has returned {}", job=named)
    refused(
        alice,
        "no token of 'toy'",
        "it is being repaired",
        job=named + 'says = "it is being repaired"\n',
    )
