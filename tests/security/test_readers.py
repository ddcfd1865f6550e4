"""People who may only look at a job: what no route tells them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.routing import Route

from howdah.backends.base import PageReaders
from howdah.core.messages import Task
from howdah.spec.model import Job, Preprocess, Role
from howdah.wire import tickets
from howdah.wire.messages import WebAddress
from howdah.wire.status import FailureView
from tests.unit.web.fake_job import TOKEN, FakeJob
from tests.unit.web.serving import Served, serving
from tests.unit.web.upstream import program

ODD = 'p"a<s>s w\\ör/d&1'
PLANTED = (
    "job-secret-5151",
    "role-secret-5252",
    "step-secret-5353",
    ODD,
    "page-secret-5454",
    TOKEN,
)
JOB = Job(
    name="digits",
    env={"A": PLANTED[0], "PIN": "0042", "MODE": "running", "ODD": ODD},
    roles={"worker": Role(instances=2, env={"B": PLANTED[1]})},
    preprocess=Preprocess(command="true", env={"C": PLANTED[2]}),
)


@pytest.fixture(params=["of a cluster's proxy", "of a portal"])
def reader(request: pytest.FixtureRequest) -> dict[str, str]:
    """Headers of one who may only look."""
    if request.param == "of a portal":
        return {"Authorization": f"Bearer {tickets.mint_pass(TOKEN, time.time())}"}
    return {"Cookie": "proxy-user=bob"}


@pytest.fixture
def served() -> Iterator[Served]:
    """A job with variables, and a page with a secret."""
    readers = PageReaders(addresses=frozenset({"127.0.0.1"}))
    said = "words of the program"
    with serving(readers=readers) as served, program() as port:
        job = served.job
        job.job = lambda: JOB  # type: ignore[method-assign]
        job.stack_text = said
        page = WebAddress(
            task=Task("worker", 0),
            attempt=1,
            name="Page",
            host="127.0.0.1",
            port=port,
            secret=PLANTED[4],
        )

        def say() -> None:
            job.link("worker:0", page)
            job.say("failed", said, task="worker:0", attempt=1, cause=said)
            failure = FailureView(
                time=1.0,
                what=said,
                cause=said,
                generation=1,
                counted=True,
                tail=(said,),
                task="worker:0",
                attempt=1,
                advice=said,
            )
            job.fail(failure)
            job.change(reason=said, advice=said, phase="running")
            job.task("worker:0", last_line=said, attempt=1, state="running")
            job.print("worker:0", f"{said}\n" * 50, attempt=1)
            job.measure("worker:0", values={f"rate of {said}": 1.0})

        served.do(lambda _: say())
        yield served


def spoken(secret: str) -> list[bytes]:
    return [secret.encode(), json.dumps(secret)[1:-1].encode()]


def tells(body: bytes) -> list[str]:
    """Which secrets are in it, also a good part of one."""
    parts = {secret: (secret, secret[:8], secret[-8:]) for secret in PLANTED}
    return [s for s, some in parts.items() if any(f in body for p in some for f in spoken(p))]


def every_look(served: Served) -> list[str]:
    """An address for each route of the app that can be looked at."""
    found: list[str] = []
    for route in served.app.routes:
        assert isinstance(route, Route)
        path = route.path.replace("{name:path}", "app.js").replace("{rest:path}", "x")
        path = path.replace("{task}", "worker:0").replace("{version}", "v")
        if path != "/login" and route.methods and "GET" in route.methods:
            found.append(path)
    return found


def test_no_route_tells_a_reader_a_secret(served: Served, reader: dict[str, str]) -> None:
    """Finding 3: Someone who may only look at a job tries every route. They see no value of [env],
    no token and no page's secret."""
    looks = every_look(served)
    assert len(looks) > 12
    told: set[str] = set()
    for path in [
        *looks,
        "/api/v1/config?brief=1",
        "/api/v1/logs/worker:0?tail=5",
        "/api/v1/logs/worker:0?grep=secret",
        "/api/v1/series?task=worker:0",
        "/api/v1/changes?log=worker:0",
    ]:
        if path.endswith("/stream"):
            continue  # has no end: see below
        answer = served.get(path, headers=reader)
        assert answer.status < 500, path
        if not path.startswith("/proxy/"):
            assert not tells(answer.body), path
            assert not tells(str(answer.headers).encode()), path
        if tells(served.get(path).body):
            told.add(path)
    assert "/api/v1/config" in told, "the owner sees what is in the job file"
    status = served.get("/api/v1/job", headers=reader).json()
    (worker,) = [task for task in status["tasks"] if task["task"] == "worker:0"]
    assert (status["phase"], worker["state"]) == ("running", "running")
    config = served.get("/api/v1/config", headers=reader).json()
    assert set(config["env"].values()) == {"(not shown)"}
    for path in ("/api/v1/stop", "/api/v1/stacks/worker:0"):
        assert served.post(path, headers=reader).status == 403


def test_a_reader_opens_no_notebook_and_no_websocket(
    served: Served, reader: dict[str, str]
) -> None:
    """Finding 3: Someone who may only look asks for a page that is only the owner's, or for a
    websocket, through which they could change something unseen. Both are refused."""
    upgrade = {**reader, "Upgrade": "websocket", "Connection": "Upgrade"}
    assert served.get("/proxy/worker:0/ws", headers=upgrade).status in (401, 403)
    assert served.get("/proxy/worker:0/x", headers=reader).status == 200
    served.do(lambda job: job.targets.update({"worker:0": own(job.targets["worker:0"])}))
    assert served.get("/proxy/worker:0/x", headers=reader).status == 403
    assert served.get("/proxy/worker:0/x").status == 200


def own(page: WebAddress) -> WebAddress:
    return WebAddress(
        task=page.task,
        attempt=page.attempt,
        name=page.name,
        host=page.host,
        port=page.port,
        secret=page.secret,
        viewable=False,
    )


def test_no_name_makes_a_metric_or_a_label_of_its_own(served: Served) -> None:
    """Names of the job, its user, its framework and the causes of its failures have quotes,
    backslashes and line breaks. In the metrics they are values of labels and nothing else."""
    evil = 'x"} 1\nhowdah_job_outcome{outcome="succeeded"} 1\n# EOF\\'
    failure = FailureView(
        time=1.0,
        what=evil,
        cause=evil,
        generation=1,
        counted=True,
        task="worker:0",
        attempt=1,
        advice=evil,
    )

    def say(live: FakeJob) -> None:
        live.change(name=evil, user=evil, framework=evil, phase="running")
        live.fail(failure)

    served.do(say)
    families = list(text_string_to_metric_families(served.get("/metrics").body.decode()))
    samples = [sample for family in families for sample in family.samples]
    (info,) = [sample for sample in samples if sample.name == "howdah_job_info"]
    assert {info.labels[name] for name in ("name", "user", "framework")} == {evil}
    assert [s.labels["cause"] for s in samples if s.name == "howdah_job_failures_total"].count(evil)
    assert all(s.value == 0 for s in samples if s.name == "howdah_job_outcome")
