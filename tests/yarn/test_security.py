"""Attacks on jobs on a real cluster: another user of a node, a reader who comes through YARN's proxy."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

from howdah.coordinator.agents.container_secrets import ContainerSecrets
from howdah.hadoop.aggregated import AggregatedLogs
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.ids import ApplicationId
from howdah.hadoop.resourcemanager import ResourceManager
from tests.changing_folders import all_below
from tests.cli.howdah import howdah
from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster
from tests.hadoop_client.webhdfs import WebHdfs
from tests.security.strangers import needs_root, program
from tests.yarn.runner import Yarn, YarnJob, until

SECRET = "planted-secret-4711"
_LAUNCH = re.compile(rb'HOWDAH_LAUNCH="([A-Za-z0-9+/=]+)"')
WORKS = """
import os, signal, socket, time
from howdah import task
server = socket.socket(socket.AF_UNIX)
server.bind("mine.sock")
server.listen()
with open("results.txt", "w") as file:
    file.write(os.environ["PASSWORD"])
print("it works", flush=True)
while not os.path.exists("/proc/self/cwd/stop"):
    time.sleep(0.05)
"""
JOB = """
command = "python3 works.py"
env = { PASSWORD = "planted-secret-4711" }
[roles.worker]
memory = "256m"
ports = 1
"""

_LOOKS = """
told = json.load(sys.stdin)
opened, listed, reached, traced, said = {}, [], [], [], {}

def walk(folder, name):
    try:
        names = os.listdir(folder)
    except OSError:
        return
    listed.append(name)
    for each in names:
        path = f"{name}/{each}"
        try:
            found = os.open(each, os.O_RDONLY | os.O_NONBLOCK, dir_fd=folder)
        except OSError:
            continue
        try:
            if stat.S_ISDIR(os.fstat(found).st_mode):
                walk(found, path)
            else:
                opened[path] = os.read(found, 1 << 20).decode("latin-1")
        except OSError:
            pass
        finally:
            os.close(found)

for number, folder in told["folders"]:
    walk(number, folder)
libc = ctypes.CDLL(None, use_errno=True)
for pid in told["pids"]:
    with open(f"/proc/{pid}/cmdline") as file:
        said[f"cmdline of {pid}"] = file.read()
    for what in ("environ", "mem", "maps", "auxv", "stack"):
        try:
            with open(f"/proc/{pid}/{what}", "rb") as file:
                file.read(1)
            traced.append(f"{what} of {pid}")
        except OSError:
            pass
    for what in ("cwd", "fd", "root"):
        try:
            os.listdir(f"/proc/{pid}/{what}")
            traced.append(f"{what} of {pid}")
        except OSError:
            pass
    if libc.ptrace(16, pid, 0, 0) == 0:
        traced.append(f"ptrace of {pid}")
    for number in (0, 10):
        try:
            os.kill(pid, number)
            traced.append(f"signal {number} to {pid}")
        except PermissionError:
            pass
for path in told["sockets"]:
    with socket.socket(socket.AF_UNIX) as link:
        try:
            link.connect(path)
            reached.append(path)
        except OSError:
            pass
careless = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
REQUEST = b"GET /api/v1/config HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nCookie: proxy-user=root\\r\\n\\r\\n"
for host, port in told["ports"]:
    for wrap in (None, careless):
        heard = b""
        try:
            with socket.create_connection((host, port), 10) as link:
                link.settimeout(3)
                link = wrap.wrap_socket(link) if wrap else link
                link.sendall(REQUEST)
                while piece := link.recv(65536):
                    heard += piece
        except OSError:
            pass
        said[f"{host}:{port} {'with TLS' if wrap else ''}"] = heard.decode("latin-1")
print(json.dumps({"opened": opened, "listed": listed, "reached": reached, "traced": traced, "said": said}))
"""


def _listening(processes: list[psutil.Process]) -> list[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for process in processes:
        for each in process.net_connections(kind="tcp"):
            if each.status == psutil.CONN_LISTEN:
                host = each.laddr.ip
                found.add(("127.0.0.1" if host in ("0.0.0.0", "::") else host, each.laddr.port))
    return sorted(found)


def _sockets(processes: list[psutil.Process]) -> list[str]:
    return sorted(
        {
            each.laddr if each.laddr.startswith("/") else f"{process.cwd()}/{each.laddr}"
            for process in processes
            for each in process.net_connections(kind="unix")
            if isinstance(each.laddr, str) and each.laddr
        }
    )


def _look_around(cluster: Cluster, processes: list[psutil.Process]) -> dict[str, Any]:
    """What another user of the node finds. Their program begins in the nodes' own folders, because
    the test's may be where only root comes."""
    folders = [path for path in all_below(cluster.site.folder) if path.name in ("local", "logs")]
    folders = [path for path in folders if path.is_dir()]
    assert folders
    opened = [(os.open(path, os.O_RDONLY), path.name) for path in (*folders, Path("/tmp"))]
    try:
        with program(_LOOKS, fds=tuple(number for number, _ in opened)) as stranger:
            assert stranger.stdin is not None
            told = {
                "folders": opened[:-1],
                "pids": [process.pid for process in processes],
                "sockets": _sockets(processes),
                "ports": _listening(processes),
            }
            out, _ = stranger.communicate(json.dumps(told), timeout=200)
            return json.loads(out)
    finally:
        for number, _ in opened:
            os.close(number)


@pytest.mark.nightly
@pytest.mark.timeout(400)
@needs_root
def test_another_user_of_a_node_gets_nothing_of_a_container(yarn: Yarn) -> None:
    """On YARN, a program of another user on the same node reads the containers' folders, logs and
    environments, traces and signals their processes, and calls their sockets and the ports of
    agents and coordinator. It learns nothing, and the job goes on."""
    attack_as_another_user(yarn)


def attack_as_another_user(yarn: Yarn) -> None:
    job = yarn.submit(JOB, files={"works.py": WORKS})
    job.until_logged("worker:0", "it works")
    processes = [*job.processes(), job.master()]
    assert any("works.py" in " ".join(each.cmdline()) for each in processes)
    found = _look_around(yarn.cluster, processes)
    assert "local/usercache" in found["listed"]
    number = job.application_id.removeprefix("application_")
    mine = [path for path in found["opened"] if number in path]
    assert not mine, mine
    assert not found["traced"], found["traced"]
    assert not found["reached"], found["reached"]
    token = job.directory.token()
    said = json.dumps(found["said"]) + json.dumps(found["opened"])
    for secret in (SECRET, token, "PRIVATE KEY"):
        assert secret not in said
    answers = [each for name, each in found["said"].items() if ":" in name and each]
    assert answers
    assert all(each.startswith("HTTP/1.1 40") for each in answers), answers
    assert [task.state for task in job.running()] == ["running"]
    job.handle.stop()
    assert job.wait().outcome == "stopped"


def test_aggregated_logs_tell_no_secret(yarn: Yarn) -> None:
    """When a job has ended, YARN keeps the logs of all containers on HDFS, with their launch
    scripts, for everyone who may view the job. They contain no value of [env], no token, no key
    and no container's secret."""
    job = yarn.submit(JOB.replace("python3 works.py", "true"), files={"works.py": WORKS})
    assert job.wait().outcome == "succeeded"
    secrets = [SECRET.encode(), job.directory.token().encode(), b"PRIVATE KEY"]
    job.until_application("FINISHED")
    until(lambda: job.application()["logAggregationStatus"] == "SUCCEEDED", "logs are aggregated")
    logs = AggregatedLogs(Configuration.load(yarn.cluster.conf_dir, env={}), WebHdfs(yarn.cluster))
    found = logs.of(ApplicationId.parse(job.application_id), yarn.cluster.site.user)
    assert len({log.container for log in found}) == 2
    assert {log.name for log in found} >= {"launch_container.sh", "stderr"}
    of_containers = ContainerSecrets(job.directory.containers_key())
    for log in found:
        content = b"".join(logs.read(log))
        content += b"".join(map(base64.b64decode, _LAUNCH.findall(content)))
        own = of_containers.of(log.container).encode()
        assert not [each for each in (own, *secrets) if each in content], (log.container, log.name)


def _get(url: str, user: str = "", method: str = "GET", **headers: str) -> tuple[int, str]:
    url += ("&" if "?" in url else "?") + f"user.name={user}" if user else ""
    request = urllib.request.Request(url, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def proxied(
    hadoop_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> YarnJob:
    """A job that bob and a team may view, on a cluster whose proxy asks everybody for a name."""
    cluster = hadoop_cluster(
        web_proxy=True,
        # they are set by REST, which such a cluster lets only known users do
        properties={
            "hadoop.http.filter.initializers": "org.apache.hadoop.security.AuthenticationFilterInitializer",
            "hadoop.http.authentication.simple.anonymous.allowed": "true",
            "hadoop.user.group.static.mapping.overrides": "carol=team;dan=ops;mallory=others;bob=",
        },
    )
    for name, value in cluster.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))
    return Yarn(cluster, tmp_path).submit(
        JOB + '[acl]\nview = ["bob"]\nview-groups = ["team"]\nmodify-groups = ["ops"]\n',
        files={"works.py": WORKS},
    )


@pytest.mark.nightly
def test_a_reader_who_comes_through_yarns_proxy_sees_what_the_access_list_says(
    proxied: YarnJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through YARN's proxy, only users on the job's access list, or in a group on it, see its page,
    and they can change nothing there. A user who claims another's name in a cookie, in a header
    or at the coordinator's own port gets nothing. Users who may change the job, and nobody else,
    can end it at once with `howdah stop --now`."""
    proxied.until_logged("worker:0", "it works")

    def told() -> str | None:
        url: str = proxied.application()["trackingUrl"]
        return url if "/proxy/" in url else None

    tracking = until(told, "the ResourceManager tells of the page")
    own = until(lambda: proxied.view().page, "the page is up")
    until(lambda: _get(f"{tracking}api/v1/job", "bob")[0] == 200, "bob is shown the page")
    routes = ("", "api/v1/job", "api/v1/config", "api/v1/events", "api/v1/tasks/worker:0/log")
    shown = {route: _get(f"{tracking}{route}", "bob") for route in routes}
    assert {status for status, _ in shown.values()} <= {200, 404}, shown
    assert _get(f"{tracking}api/v1/job", "carol")[0] == 200, "she is in the team"
    assert not any(SECRET in text for _, text in shown.values())
    assert _get(f"{tracking}api/v1/stop", "bob", "PUT")[0] in (403, 405)
    for user in ("mallory", ""):
        for headers in ({}, {"Cookie": "proxy-user=bob"}, {"Proxy-User": "bob"}):
            for route in routes:
                status, text = _get(f"{tracking}{route}", user, **headers)
                assert status in (401, 403), (user, headers, route, status, text[:300])
    for cookie in ("proxy-user=bob", f"proxy-user={proxied.cluster.site.user}"):
        assert _get(f"{own}api/v1/job", Cookie=cookie)[0] == 401, "programs here are no proxy"
    assert [task.state for task in proxied.running()] == ["running"]
    application = ApplicationId.parse(proxied.application_id)
    configuration = Configuration.load(proxied.cluster.conf_dir, env={})

    async def as_seen_by(user: str) -> str:
        async with ResourceManager(configuration, user) as manager:
            return (await manager.application_report(application)).host

    assert asyncio.run(as_seen_by("mallory")) == "N/A"
    assert asyncio.run(as_seen_by("carol")) not in ("N/A", "")
    with monkeypatch.context() as patch:
        patch.setenv("HOWDAH_HOME", str(tmp_path / "others"))
        for user in ("carol", "mallory"):
            patch.setenv("HADOOP_USER_NAME", user)
            refused = howdah("stop", "--now", proxied.application_id, code=3)
            assert f"{user} may not end {proxied.application_id}" in refused.told
        # He is in a group that may; what only its owner may ask for is not silently something else.
        patch.setenv("HADOOP_USER_NAME", "dan")
        told_dan = howdah("stop", proxied.job_id, code=3).told
        assert f"`howdah stop --now {proxied.application_id}` ends it at once" in told_dan
        assert [task.state for task in proxied.running()] == ["running"]
        ended = howdah("stop", "--now", proxied.job_id, "--reason", "we need the room")
        assert f"{proxied.application_id} has been ended" in ended.text
    final = proxied.wait()
    assert final.outcome == "stopped"
    assert "dan" in (final.reason or "") and "we need the room" in (final.reason or "")
