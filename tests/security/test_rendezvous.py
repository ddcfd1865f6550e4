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
