"""The job's page through YARN's web proxy, which is on an address of its own as on real sites."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from howdah.backends.base import PageReaders
from howdah.backends.yarn.view_acls import readers
from howdah.hadoop.configuration import Configuration
from howdah.spec.model import Acl
from tests.hadoop.plugin import MakeCluster
from tests.yarn.runner import Yarn, YarnJob, until

SERVES = """
import http.server, os
from howdah import task
port = int(os.environ["HOWDAH_PORT"])
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"a page of my own at " + self.path.encode())
task.announce_web("Mine", port)
http.server.HTTPServer(("", port), Page).serve_forever()
"""


def shown_to(site: dict[str, str], acl: Acl = Acl(), host: str = "10.0.0.9") -> PageReaders:  # noqa: B008
    return readers(Configuration(site), acl, "ann", host, AsyncMock())


def test_the_proxys_address_is_trusted_unless_programs_here_have_it_too() -> None:
    site = {"yarn.resourcemanager.webapp.address": "10.0.0.1:8088"}
    assert shown_to(site).addresses == {"10.0.0.1"}
    assert shown_to(site, host="10.0.0.1").addresses == frozenset()
    own = {**site, "yarn.web-proxy.address": "10.0.0.2:9046"}  # the RM is none then
    assert shown_to(own, host="10.0.0.1").addresses == {"10.0.0.2"}
    local = {"yarn.resourcemanager.webapp.address": "127.0.0.1:8088"}
    assert shown_to(local).addresses == frozenset()


def test_where_yarn_heeds_access_lists_so_does_the_page() -> None:
    site = {"yarn.acl.enable": "true", "yarn.admin.acl": "root,hal ops, sre"}
    acl = Acl(view=("bob",), view_groups=("team",))
    shown = shown_to(site, acl)
    assert shown.users == {"ann", "bob", "root", "hal"}
    assert shown.groups == {"team", "ops", "sre"}
    assert shown_to({**site, "yarn.admin.acl": " ops"}, acl).users == {"ann", "bob"}
    assert shown_to(site, Acl(view=("*",))).users is None
    assert shown_to({"yarn.acl.enable": "false"}, acl).users is None


@pytest.fixture
def job(hadoop_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> YarnJob:
    cluster = hadoop_cluster(web_proxy=True)
    for name, value in cluster.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))
    return Yarn(cluster, tmp_path).submit(
        'command = "python3 serves.py"\n[roles.worker]\nmemory = "256m"\nports = 1\n',
        files={"serves.py": SERVES},
    )


def get(url: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_page_can_be_looked_at_through_the_proxy_and_nothing_more(job: YarnJob) -> None:
    job.running()

    def told() -> str | None:
        url: str = job.application()["trackingUrl"]
        return url if "/proxy/" in url else None

    tracking = until(told, "the ResourceManager tells of the page")
    own = until(lambda: job.view().page, "the page is up")

    def shown() -> str | None:
        status, text = get(tracking)
        return text if status == 200 and job.job_id in text else None

    page = until(shown, "the page through the proxy")
    assert 'href="/' not in page
    assert 'src="/' not in page
    status, text = get(f"{tracking}api/v1/job")
    assert status == 200, text
    assert json.loads(text)["job_id"] == job.job_id
    of_task = f"{tracking}proxy/worker:0/some/where"
    until(lambda: get(of_task)[0] == 200, "its agent has seen that the task serves the page")
    assert get(of_task) == (200, "a page of my own at /some/where")
    status, text = get(f"{tracking}api/v1/stop", "PUT")
    assert status in (403, 405), text
    assert get(f"{own}api/v1/job")[0] == 401, "programs on this host are no proxy"
    job.handle.stop()
    assert job.wait().outcome == "stopped"
