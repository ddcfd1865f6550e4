"""Who gets into the portal, and `howdah ui` as a user starts it."""

from __future__ import annotations

import json
import signal
import threading
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from howdah.portal import jobs
from howdah.portal.index import JobIndex
from howdah.storage.jobdir import JobDirectory
from tests.cli.howdah import start
from tests.cli.inside import howdah
from tests.portal.conftest import Past, Portal
from tests.unit.web.serving import wait_until

pytestmark = pytest.mark.timeout(180)


def test_nothing_is_shown_without_proof_and_nothing_runs_but_our_own_scripts(
    portal: Portal,
) -> None:
    for path in ("/", "/api/v1/jobs", "/jobs/x/"):
        assert portal.get(path, headers={}).status == 401
    assert "`howdah ui` prints" in portal.get("/api/v1/jobs", headers={}).error
    assert portal.get("/", headers={"Host": "evil.example"}).status == 421
    cookie = portal.log_in()
    answer = portal.get("/", headers=cookie)
    assert answer.status == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'" in policy and "unsafe" not in policy
    assert portal.get("/jobs/../../etc/passwd/", headers=cookie).status == 404
    assert "there is no job" in portal.get("/jobs/nobody/").error
    assert portal.get("/api/v1/jobs?colour=red").status == 400
    assert portal.ask("POST", "/").status == 405


def test_the_list_as_json_has_what_was_asked_for(portal: Portal, past: Past) -> None:
    found = portal.get("/api/v1/jobs?tag=gpu&since=1h").json()
    assert [job["job_id"] for job in found["jobs"]] == [past.failed.job_id]
    assert (found["total"], found["more"], found["to_come"]) == (1, False, 0)
    job = found["jobs"][0]
    assert (job["state"], job["cause"], job["tags"]) == ("failed", "user-code", ["night", "gpu"])
    assert portal.get("/api/v1/jobs?state=failed&state=succeeded").json()["total"] == 3
    described = portal.get("/api/v1/openapi.json").json()
    listed = described["paths"]["/api/v1/jobs"]["get"]
    assert {"text", "state", "since", "sort", "page"} <= {p["name"] for p in listed["parameters"]}
    assert described["components"]["schemas"]["Row"]["properties"].keys() == job.keys()
    assert described["paths"]["/jobs/{job_id}/api/v1/stop"]["post"]["operationId"] == "stop"


def test_two_jobs_are_compared_without_a_value_that_may_be_secret(
    portal: Portal, past: Past
) -> None:
    one, other = past.good.job_id, past.failed.job_id
    page = portal.get(f"/compare?job={one}&job={other}").body.decode()
    for text in (one, other, "succeeded", "failed", "env.HF_TOKEN", "(not shown)", "as by default"):
        assert text in page, text
    assert "of_ada" not in page
    assert "choose from 2 to 8 jobs" in portal.get(f"/compare?job={one}&job={one}").error
    assert portal.get("/compare").status == 400
    assert "there is no job 'x'" in portal.get(f"/compare?job={one}&job=x").error


def test_a_job_is_found_while_the_list_is_still_being_made(
    portal: Portal, past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, refresh = threading.Event(), JobIndex.refresh

    def late(index: JobIndex, ended: Callable[[], bool]) -> list[JobDirectory]:
        assert read.wait(60)
        return refresh(index, ended)

    monkeypatch.setattr(JobIndex, "refresh", late)
    monkeypatch.setattr(jobs, "PATIENCE_S", 0.0)
    with monkeypatch.context() as impatient:
        impatient.setattr(jobs, "FIND_S", 0.0)
        answer = portal.get(f"/jobs/{past.good.job_id}/")
        assert answer.status == 503 and "still being read" in answer.body.decode()
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(portal.get, f"/jobs/{past.good.job_id}/")
        read.set()
        assert asked.result().status == 200
    assert "there is no job" in portal.get("/jobs/nobody/").error


def test_howdah_ui_prints_the_address_and_ends_by_ctrl_c(past: Past) -> None:
    run = start("ui", "--json")
    said = json.loads(run.until_line('"address"'))
    run.until_line("shows the jobs in")
    assert said["folder"] == str(past.base)
    parts = urlsplit(said["address"])
    assert parts.hostname == "ui.localhost"
    base = f"http://127.0.0.1:{parts.port}"
    with urllib.request.urlopen(f"{base}{parts.path}?{parts.query}", timeout=20) as answer:
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
    request = urllib.request.Request(f"{base}/api/v1/jobs?name=digits", headers={"Cookie": cookie})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert [job["name"] for job in json.load(answer)["jobs"]] == ["digits"]
    refused = howdah("ui", "--port", str(parts.port), code=2)
    assert f"port {parts.port} of this machine can't be used" in refused.told
    run.signal(signal.SIGINT)
    assert run.end() == 130
    assert "Traceback" not in run.told


def test_a_folder_that_others_may_write_to_now_is_no_defect(portal: Portal, past: Past) -> None:
    assert portal.get("/").status == 200
    past.base.chmod(0o777)
    try:
        wait_until(lambda: portal.get("/api/v1/jobs").status == 503, "it is found out")
        wait_until(lambda: "can't be trusted" in portal.get("/").body.decode(), "it is said")
    finally:
        past.base.chmod(0o700)
    wait_until(lambda: portal.get("/").status == 200, "it can be trusted again")


def test_a_job_that_is_removed_leaves_the_list(portal: Portal, past: Past) -> None:
    extra = JobDirectory(past.base / "gone-20261121-143504-k3f9")
    extra.path.mkdir(mode=0o700)
    try:
        assert portal.get("/api/v1/jobs?text=gone-").json()["total"] == 1
    finally:
        extra.path.rmdir()
    wait_until(
        lambda: portal.get("/api/v1/jobs?text=gone-").json()["total"] == 0, "it leaves the list"
    )
