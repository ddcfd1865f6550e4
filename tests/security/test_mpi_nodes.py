"""The port on which tasks of an MPI job take commands in ssh's stead, tried by everybody else."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from howdah.frameworks.programs import HELPERS
from howdah.wire import authority
from tests.cli.howdah import until
from tests.security.strangers import bare_context

JOB = "digits-20260101-000000-abcd"
OTHER = "digits-20260101-000000-abce"


def variables(secrets: Path, port: int, job_id: str = JOB) -> dict[str, str]:
    certificates = (secrets / "ca.pem", secrets / "agent.pem", secrets / "agent.key")
    return {
        **os.environ,
        "HOWDAH_JOB_ID": job_id,
        "HOWDAH_CERTIFICATES": os.pathsep.join(map(str, certificates)),
        "HOWDAH_MPI_NODES": f"worker-0=127.0.0.1:1*1,worker-1=127.0.0.1:{port}*1",
        "HOWDAH_MPI_HOSTS": "worker-0:1,worker-1:1",
        "HOWDAH_MPI_NODE": "worker-1",
        "HOWDAH_IS_CHIEF": "false",
    }


@pytest.fixture
def node(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[tuple[Path, int]]:
    """A task that takes commands: the secrets of its job, and its port."""
    authority.create(JOB, tmp_path / "secrets")
    port = free_port()
    child = subprocess.Popen(
        [sys.executable, f"{HELPERS}/mpi_main.py", "true"],
        env=variables(tmp_path / "secrets", port),
        cwd=tmp_path,
    )

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(listens, "the task listens")
        yield tmp_path, port
        assert child.poll() is None, "no attack has ended it"
        assert remote(tmp_path / "secrets", port, "exit 5").returncode == 5, (
            "it still serves its job"
        )
        child.terminate()
        child.wait(10)
    finally:
        child.kill()
        child.wait()


def remote(
    secrets: Path, port: int, command: str, job_id: str = JOB
) -> subprocess.CompletedProcess[str]:
    """What mpirun calls in ssh's stead."""
    return subprocess.run(
        [sys.executable, f"{HELPERS}/mpi_remote.py", "-x", "worker-1", command],
        env=variables(secrets, port, job_id),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


def request(folder: Path) -> bytes:
    return json.dumps({"command": f"touch {folder}/done"}).encode() + b"\n"


def attempt(port: int, data: bytes, context: ssl.SSLContext | None) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
        try:
            line = context.wrap_socket(plain) if context is not None else plain
            line.sendall(data)
            answer = line.recv(1000)
            assert context is None or not answer
        except OSError:
            pass


def test_a_command_without_a_tasks_certificate_is_not_run(node: tuple[Path, int]) -> None:
    """Someone reaches the port of a task that takes mpirun's commands, and sends one without TLS,
    without a certificate, with another certificate of the job than its tasks', or with that of a
    task of another job, whatever its name. Nothing is run."""
    folder, port = node
    attempt(port, request(folder), None)
    shown = [(), *((folder / "secrets", role) for role in ("client", "coordinator"))]
    for name, job_id in (("of its name", JOB), ("of another name", OTHER)):
        authority.create(job_id, folder / name)
        shown.append((folder / name,))
    for certificate in shown:
        attempt(port, request(folder), bare_context(*certificate))
    assert not (folder / "done").exists()


@pytest.mark.nightly
def test_a_port_that_somebody_else_has_taken_is_told_no_command(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    """Someone with a certificate of another job takes the port of a task that takes mpirun's
    commands. It is told no command."""
    authority.create(JOB, tmp_path / "secrets")
    authority.create(OTHER, tmp_path / "other")
    port = free_port()
    child = subprocess.Popen(
        [sys.executable, f"{HELPERS}/mpi_main.py", "true"],
        env=variables(tmp_path / "other", port, OTHER),
        cwd=tmp_path,
    )
    try:
        done = remote(tmp_path / "secrets", port, f"touch {tmp_path}/done")
        assert done.returncode == 255 and "CERTIFICATE_VERIFY_FAILED" in done.stderr
        assert not (tmp_path / "done").exists()
    finally:
        child.terminate()
        child.wait(10)
