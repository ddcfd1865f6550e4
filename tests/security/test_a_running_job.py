"""Everything a running job opens, tried as a stranger of the same machine; where its secrets are."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from howdah.storage.layout import CoordinatorAddress
from tests.acceptance.jobs import Job
from tests.cli.howdah import ended_at_last, howdah, job_file, start, until

PROGRAM = "import time\nprint('begun', flush=True)\ntime.sleep(300)\n"
SECRETS = ("token", "agent.key", "client.key", "coordinator.key")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Job, Job]]:
    """Two running jobs, each with its programs begun."""
    with ended_at_last():
        found: list[Job] = []
        for name in ("one", "two"):
            folder = tmp_path_factory.mktemp(name)
            file = job_file(folder, PROGRAM, name=name, roles={"worker": {"instances": 2}})
            job = Job(start("run", str(file)))
            until(lambda job=job: len(job.lines("begun")) == 2 or None, "both programs")
            until(lambda job=job: _address(job).http_port or None, "the page")
            found.append(job)
        yield found[0], found[1]
        for job in found:
            howdah("stop", "--now", job.directory.job_id)
            job.run.end()


def _address(job: Job) -> CoordinatorAddress:
    return until(job.directory.coordinator, "a coordinator")


def _own(job: Job) -> list[psutil.Process]:
    """The node daemon and all below it."""
    node = job.node()
    return [node, *node.children(recursive=True)]


def test_a_job_listens_on_two_ports_of_this_host_alone_and_on_private_sockets(
    jobs: tuple[Job, Job],
) -> None:
    job, _ = jobs
    ports: set[tuple[str, int]] = set()
    paths: set[Path] = set()
    for process in _own(job):
        for connection in process.net_connections("all"):
            if connection.family == socket.AF_UNIX:
                assert isinstance(connection.laddr, str)
                if connection.laddr:
                    paths.add(Path(connection.laddr))
            elif connection.status == psutil.CONN_LISTEN:
                ports.add((connection.laddr.ip, connection.laddr.port))
    address = _address(job)
    assert ports == {("127.0.0.1", address.port), ("127.0.0.1", address.http_port)}
    assert len(paths) == 3, "one of the node daemon, one for each agent's programs"
    for path in paths:
        folder = path.parent.stat()
        assert (stat.S_IMODE(folder.st_mode), folder.st_uid) == (0o700, os.getuid())


def test_nothing_of_a_job_can_be_read_by_others(jobs: tuple[Job, Job]) -> None:
    top = jobs[0].directory.path
    for path in [top, *top.rglob("*")]:
        # The task's folder has links to the source, whose modes are the user's own.
        if not path.is_symlink() and "__pycache__" not in path.parts:
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_secrets_are_in_their_files_and_nowhere_else(jobs: tuple[Job, Job]) -> None:
    job, _ = jobs
    folder = job.directory.secrets
    secrets = [(folder / name).read_text().strip().splitlines() for name in SECRETS]
    texts = [(lines[1] if len(lines) > 1 else lines[0]).encode() for lines in secrets]
    for process in _own(job):
        seen = Path(f"/proc/{process.pid}/environ").read_bytes()
        seen += Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert not any(text in seen for text in texts), process.cmdline()
    for path in job.directory.path.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.parent != folder:
            assert not any(text in path.read_bytes() for text in texts), path


def _talk(port: int, data: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """All that comes back until the other side hangs up."""
    answer = b""
    with (
        contextlib.suppress(ConnectionError, ssl.SSLError),
        socket.create_connection(("127.0.0.1", port), timeout=20) as raw,
    ):
        link = context.wrap_socket(raw) if context is not None else raw
        link.sendall(data)
        while part := link.recv(65536):
            answer += part
    return answer


def _context(job: Job | None = None, newest: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if newest is not None:
        context.maximum_version = newest
    if job is not None:
        folder = job.directory.secrets
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
    return context


@pytest.mark.timeout(90)
def test_the_port_of_frames_tells_a_stranger_nothing(jobs: tuple[Job, Job]) -> None:
    job, other = jobs
    port = _address(job).port
    frame = b"\0\0\0\x10" + b"x" * 16
    assert _talk(port, b"GET / HTTP/1.1\r\n\r\n") in (b"", _TLS_ALERT)
    assert _talk(port, frame, _context()) == b""
    assert _talk(port, frame, _context(other)) == b""
    assert _talk(port, frame, _context(job, ssl.TLSVersion.TLSv1_2)) == b""
    assert _talk(port, b"\xff" * 4096, _context(job)) == b"", "a malformed frame costs its sender"
    _still_runs(job)


_TLS_ALERT = bytes.fromhex("15030300020246")


def test_the_page_tells_a_stranger_nothing(jobs: tuple[Job, Job]) -> None:
    job, other = jobs
    port = _address(job).http_port
    cookie = f"howdah-{job.directory.job_id}"
    for path in ("/", "/api/status", "/metrics", "/proxy/worker:0/", "/%2e%2e/secrets/token"):
        for headers in (
            {},
            {"Authorization": "Bearer " + "x" * 43},
            {"Authorization": f"Bearer {other.directory.token()}"},
            {"Cookie": f"{cookie}={other.directory.token()}"},
        ):
            link = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            link.request("GET", path, headers=headers)
            answer = link.getresponse()
            assert answer.status == 401, (path, headers)
            assert b"begun" not in answer.read()
            link.close()
    assert _talk(port, b"\0" * 5000 + b"\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    _still_runs(job)


def test_the_node_daemon_hangs_up_on_whoever_does_not_greet(jobs: tuple[Job, Job]) -> None:
    job, _ = jobs
    paths = {c.laddr for c in job.node().net_connections("unix") if c.laddr}
    for path in paths:
        assert isinstance(path, str)
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(20)
            link.connect(path)
            link.sendall(os.urandom(4096))
            with contextlib.suppress(ConnectionError):
                assert link.recv(100) == b""
    _still_runs(job)


def test_garbage_for_the_programs_socket_is_dropped(jobs: tuple[Job, Job]) -> None:
    job, _ = jobs
    for program in job.programs("worker:0"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
            link.connect(program.environ()["HOWDAH_TASK_SOCKET"])
            for data in (b"", b"{", b"[]", b"null", os.urandom(2000), b'{"step": "x"}' * 50):
                link.send(data)
    _still_runs(job)


def _still_runs(job: Job) -> None:
    view = howdah("status", job.directory.job_id, "--json").documents()[0]
    assert [task["state"] for task in view["tasks"]] == ["running", "running"]
    assert view["failures"] == []
