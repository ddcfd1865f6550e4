"""Ports at which a job's programs meet: another user of the machine wants to be there first."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.howdah import Run, ended_at_last, job_file, newest, start, until

STRANGER = 54321
HOST = "127.0.0.1"
# Takes as long to bind its port as one that first imports a framework.
SLOW = "import os, time\nprint('port', os.environ['HOWDAH_PORT'], flush=True)\ntime.sleep(300)\n"
# Somebody listens on its port before it does.
LATE = """
import os, socket, time
port = int(os.environ["HOWDAH_PORT"])
print("port", port, flush=True)
while socket.socket().connect_ex(("127.0.0.1", port)):
    time.sleep(0.02)
socket.create_server(("127.0.0.1", port))
"""
# Bind as the servers of both frameworks do; tests/frameworks/test_held_ports.py has the real ones.
JAX = """
import os, socket, time
port = int(os.environ["JAX_COORDINATOR_ADDRESS"].rpartition(":")[2])
print("port", port, flush=True)
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.05)
if os.environ["JAX_PROCESS_ID"] == "0":
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    server.bind(("0.0.0.0", port))
print("bound", flush=True)
"""
TENSORFLOW = """
import json, os, socket, time
workers = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
port = int(workers[int(os.environ["HOWDAH_RANK"])].rpartition(":")[2])
print("port", port, flush=True)
while not os.path.exists(os.environ["GO"]):
    time.sleep(0.05)
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(os.environ["TF_GRPC_REUSE_PORT"]))
server.bind(("0.0.0.0", port))
print("bound", flush=True)
"""


@contextmanager
def another_user() -> Iterator[None]:
    """What is done in the block another user of the machine does."""
    if os.getuid():
        pytest.skip("only root can act as another user")
    os.seteuid(STRANGER)
    try:
        yield
    finally:
        os.seteuid(0)


def ports_said(run: Run) -> list[int]:
    """Ports that the programs have printed, in order."""
    return [int(found[1]) for line in run.out if (found := re.search(r"\bport (\d+)$", line))]


def test_another_user_who_takes_a_reserved_port_ends_the_job_after_its_attempts(
    tmp_path: Path,
) -> None:
    """Finding 6: In every attempt, another user listens on a reserved port before the program does.
    Each attempt ends at once and counts, and the job's failure names the user."""
    file = job_file(tmp_path, SLOW, roles={"worker": {"instances": 2, "ports": 1, "attempts": 2}})
    taken: list[socket.socket] = []
    with ended_at_last():
        run = start("run", str(file))
        try:
            for attempt in (1, 2):
                until(lambda n=2 * attempt: len(ports_said(run)) >= n, "both programs run")
                with another_user():
                    taken.append(socket.create_server((HOST, ports_said(run)[-1])))
            assert run.end() == 1
        finally:
            for server in taken:
                server.close()
    told = run.text + run.told
    assert f"lost its port {ports_said(run)[-1]} to another user" in told
    assert f"uid {STRANGER} listens on it" in told
    final = newest().final()
    assert final is not None and "all 2 attempts are spent" in final.reason
    causes = [(failure.cause, failure.counted) for failure in final.failures]
    assert causes == [("port-hijacked", True)] * 2
    assert not set(ports_said(run)[:2]) & set(ports_said(run)[2:4]), "new ports each time"


@pytest.mark.nightly
def test_who_takes_a_reserved_port_again_and_again_does_not_restart_a_job_for_ever(
    tmp_path: Path,
) -> None:
    """Finding 6: In every attempt, a program that cannot be told apart takes the reserved port.
    Three times are taken for chance. Later ones count, and the job ends when its attempts are
    used up."""
    file = job_file(tmp_path, LATE, roles={"worker": {"ports": 1, "attempts": 2}})
    taken: list[socket.socket] = []
    with ended_at_last():
        run = start("run", str(file))
        try:
            for attempt in range(1, 6):
                until(lambda n=attempt: len(ports_said(run)) >= n, f"attempt {attempt} runs")
                taken.append(socket.create_server((HOST, ports_said(run)[-1])))
            assert run.end() == 1
        finally:
            for server in taken:
                server.close()
    assert (
        f"the port {ports_said(run)[-1]} that was reserved for it was taken" in run.text + run.told
    )
    final = newest().final()
    assert final is not None and "all 2 attempts are spent" in final.reason
    causes = [(failure.cause, failure.counted) for failure in final.failures]
    assert causes == [("port-taken", False)] * 3 + [("port-taken", True)] * 2


@pytest.mark.nightly
@pytest.mark.parametrize(("framework", "program"), [("tensorflow", TENSORFLOW), ("jax", JAX)])
def test_nobody_gets_a_port_between_its_choice_and_the_frameworks_server(
    tmp_path: Path, framework: str, program: str
) -> None:
    """Finding 6: While the framework is being imported, another user, or another program of the
    same user, tries to bind the port of TensorFlow's server or JAX's service. The agent still
    holds the port, and the server gets it."""
    go = tmp_path / "go"
    file = job_file(
        tmp_path,
        program,
        framework=framework,
        env={"GO": str(go)},
        roles={"worker": {"instances": 2}},
    )
    with ended_at_last():
        run = start("run", str(file))
        until(lambda: len(ports_said(run)) == 2, "the programs run")
        port = ports_said(run)[0]
        for host in (HOST, "0.0.0.0"):
            with pytest.raises(OSError, match="in use"), socket.socket() as thief:
                thief.bind((host, port))
        with another_user():
            for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                with pytest.raises(OSError, match="in use"), socket.socket() as thief:
                    thief.setsockopt(socket.SOL_SOCKET, option, 1)
                    thief.bind((HOST, port))
        go.touch()
        assert run.end() == 0, run.text + run.told
    assert any("bound" in line for line in run.out)
