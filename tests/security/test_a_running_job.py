"""Everything a running job opens, tried as a stranger of the same machine; where its secrets are."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import resource
import socket
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from howdah.core.messages import Held, HeldPhase, Task
from howdah.storage.layout import CoordinatorAddress
from howdah.wire.frames import encode
from howdah.wire.messages import AgentHello, AskStop, ClientHello
from tests.acceptance.jobs import Job
from tests.changing_folders import all_below, contents
from tests.cli.howdah import ended_at_last, howdah, job_file, start, until
from tests.security.strangers import bare_context

PROGRAM = (
    "import resource, time\nprint('begun', resource.getrlimit(resource.RLIMIT_CORE), flush=True)\n"
    "time.sleep(600)\n"
)
SECRETS = ("token", "agent.key", "client.key", "coordinator.key", "containers.key")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Job, Job]]:
    """Two running jobs, each with its programs begun."""
    with ended_at_last():
        found: list[Job] = []
        for name in ("one", "My_Job.2"):
            folder = tmp_path_factory.mktemp(name)
            file = job_file(folder, PROGRAM, name=name, roles={"worker": {"instances": 2}})
            with _core_files():
                job = Job(start("run", str(file)))
            found.append(job)
            until(lambda job=job: _address(job).http_port or None, "the page")
            until(lambda job=job: len(job.lines("begun")) == 2 or None, "both programs")
        yield found[0], found[1]
        for job in found:
            howdah("stop", "--now", job.directory.job_id)
            job.run.end()


@contextlib.contextmanager
def _core_files() -> Iterator[None]:
    """The user wants core files, as large as may be."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


def _address(job: Job) -> CoordinatorAddress:
    return until(job.directory.coordinator, "a coordinator")


def _own(job: Job) -> list[psutil.Process]:
    """The node daemon and all below it."""
    node = job.node()
    return [node, *node.children(recursive=True)]


def test_a_job_listens_on_two_ports_of_this_host_alone_and_on_private_sockets(
    jobs: tuple[Job, Job],
) -> None:
    """A job listens on two ports of this host only, and on private sockets."""
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
    """Other users try to read a job's files. They can read none."""
    top = jobs[0].directory.path
    for path in [top, *all_below(top)]:
        with contextlib.suppress(FileNotFoundError):
            assert path.is_symlink() or _closed(path, below=top), path


def _closed(path: Path, below: Path) -> bool:
    """Whether others can't open it. Copies of the user's files have the modes that those had."""
    above = [folder for folder in path.parents if folder.is_relative_to(below / "containers")]
    closed = [stat.S_IMODE(each.stat().st_mode) & 0o077 == 0 for each in (path, *above)]
    return closed[0] or (path.is_relative_to(below / "containers") and any(closed[1:]))


def test_secrets_are_in_their_files_and_nowhere_else(jobs: tuple[Job, Job]) -> None:
    """A job's secrets are in their files, and nowhere else that the test looks."""
    job, _ = jobs
    folder = job.directory.secrets
    secrets = [(folder / name).read_text().strip().splitlines() for name in SECRETS]
    texts = [(lines[1] if len(lines) > 1 else lines[0]).encode() for lines in secrets]
    launches = list(job.directory.containers.glob("*/launch.json"))
    own = {json.loads(path.read_bytes())["secret"].encode() for path in launches}
    assert len(own) == len(launches) == 2 and min(map(len, own)) > 30
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in launches)
    texts += own
    for process in _own(job):
        seen = Path(f"/proc/{process.pid}/environ").read_bytes()
        seen += Path(f"/proc/{process.pid}/cmdline").read_bytes()
        assert not any(text in seen for text in texts), process.cmdline()
    for path, content in contents(job.directory.path):
        if path.parent != folder and path not in launches:
            assert not any(text in content for text in texts), path


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


def test_a_job_has_no_say_over_another(jobs: tuple[Job, Job]) -> None:
    """A compromised task has its own job's certificates, keys and token, and knows all names of
    another job. It can neither stop nor read that job."""
    job, mine = jobs
    held = Held(task=Task("worker", 0), attempt=1, generation=1, phase=HeldPhase.RUNNING)
    for job_id in (job.directory.job_id, mine.directory.job_id):
        agent = AgentHello(job_id=job_id, container_id="1", host="127.0.0.1", pid=1, held=held)
        client = ClientHello(job_id=job_id, user="root")
        for hello in (agent, client):
            for role in ("agent", "client", "coordinator"):
                said = encode(hello) + encode(AskStop())
                assert (
                    _talk(_address(job).port, said, bare_context(mine.directory.secrets, role))
                    == b""
                )
    for method, path in (("POST", "/api/v1/stop"), ("GET", "/api/v1/config")):
        link = http.client.HTTPConnection("127.0.0.1", _address(job).http_port, timeout=20)
        link.request(method, path, headers={"Authorization": f"Bearer {mine.directory.token()}"})
        assert link.getresponse().status == 401
        link.close()
    _still_runs(job)
    _still_runs(mine)


def test_neither_coordinator_nor_agent_leaves_its_memory_in_a_file(jobs: tuple[Job, Job]) -> None:
    """Finding 18: A core file of a coordinator or an agent would hold keys and the token. They
    write none, whatever the user's limit is, and programs get the limit as it was."""
    job, _ = jobs
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    assert str((most, most)) in job.lines("begun.*")[0].string
    (program,) = job.programs("worker:0")
    agent = program.parent()
    assert agent is not None
    for pid in (job.coordinator().pid, agent.pid):
        assert resource.prlimit(pid, resource.RLIMIT_CORE)[0] == 0


def test_each_jobs_links_have_a_host_name_of_their_own(jobs: tuple[Job, Job]) -> None:
    """Finding 14: A browser sends a session cookie to every port of a host name. So each job on
    this machine has a name of its own below .localhost, and no other program's page gets the
    cookie."""
    for job in jobs:
        line = job.run.until_line("page http")
        host = urlsplit(line[line.index("http") :]).hostname or ""
        assert host == f"{job.directory.job_id}.localhost"
        assert all(re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", s) for s in host.split("."))


def test_the_node_daemon_hangs_up_on_whoever_does_not_greet(jobs: tuple[Job, Job]) -> None:
    """A program connects to the node daemon and does not greet it. The node daemon hangs up."""
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


def _still_runs(job: Job) -> None:
    link = http.client.HTTPConnection("127.0.0.1", _address(job).http_port, timeout=60)
    link.request("GET", "/api/v1/job", headers={"Authorization": f"Bearer {job.directory.token()}"})
    view = json.loads(link.getresponse().read())
    link.close()
    assert [task["state"] for task in view["tasks"]] == ["running", "running"]
    assert view["failures"] == []
