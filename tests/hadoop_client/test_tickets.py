"""Tickets of a keytab, in a process that outlives them. Only the KDC is needed."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hadoop import ports
from tests.hadoop.kdc import REALM, Kdc
from tests.yarn.runner import until

USES = """
import sys, time
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.security.gss import GssContext
from howdah.hadoop.security.login import login

secure = Configuration({"hadoop.security.authentication": "kerberos"})
who = login(secure, {}, principal=sys.argv[1], keytab=sys.argv[2])
begun, before = time.time(), who.credential.inquire()
while time.time() < begun + before.lifetime_s + 2:  # it is good for the clocks' difference longer
    time.sleep(0.05)
assert GssContext("nn", "localhost", "", who.credential).step(b"")
print(f"went on after {before.lifetime_s:g} s")
"""


@pytest.fixture
def short_tickets(tmp_path: Path) -> Iterator[Kdc]:
    """A realm whose clients ask for tickets of five seconds."""
    kdc = Kdc(tmp_path / "realm")
    port = ports.claim(tmp_path).start
    kdc.create(port)
    text = kdc.configuration.read_text()
    text = text.replace("clockskew = 300", "clockskew = 1\nticket_lifetime = 5s")
    kdc.configuration.write_text(text)
    env = {**os.environ, **kdc.server_env()}
    with subprocess.Popen(kdc.command(), env=env, stdout=subprocess.DEVNULL) as process:
        try:
            until(lambda: _answers(port), "the KDC answers")
            yield kdc
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5.0):
            return True
    except OSError:
        return False


def test_a_login_with_a_keytab_outlives_its_ticket(short_tickets: Kdc) -> None:
    """As a job's master has it, which gets new delegation tokens by it for days."""
    command = [sys.executable, "-c", USES, f"alice@{REALM}", str(short_tickets.keytab("alice"))]
    done = subprocess.run(
        command,
        env={**os.environ, **short_tickets.env()},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert re.fullmatch(r"went on after [1-5] s\n", done.stdout), (done.stdout, done.stderr)
