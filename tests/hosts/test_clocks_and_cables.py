"""Jobs on hosts whose clocks are minutes apart, or whose cables are slow: they go on all the same."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from tests.hosts.conftest import OnHosts, hadoop_over_hosts
from tests.hosts.hosts import Hosts, end_tree
from tests.hosts.training import LONG_S, Training
from tests.yarn.runner import Yarn, until

pytestmark = [pytest.mark.timeout(400), pytest.mark.nightly]

AHEAD_S = 480
"""YARN itself starts no container on a node that is ten minutes ahead of the ResourceManager."""
BEHIND_S = -600
APART_S = 120.0
"""More than anything here takes, less than any two clocks are apart."""


@pytest.fixture(scope="module")
def hadoop_on_hosts() -> Iterator[OnHosts]:
    with hadoop_over_hosts(own_clocks=True) as there:
        yield there


@pytest.fixture
def hosts(hosts: Hosts) -> Iterator[Hosts]:
    """Their clocks are right before and after."""
    yield hosts
    for host in hosts:
        host.set_clock(0)


@pytest.mark.fault(
    "YARN",
    "the cables of all nodes take no more than 125 kB/s each way",
    "as long as it trains, and to its end",
    "nothing is taken for dead: checkpoints and logs arrive whole, and clients are answered",
)
def test_a_slow_network_is_only_slow(yarn: Yarn, hosts: Hosts) -> None:
    bulk = 40_000
    training = Training(yarn, workers=3, bulk=bulk)
    howdah = str(Path(sys.executable).with_name("howdah"))
    told = yarn.folder / "followed"
    follow = ["sh", "-c", 'exec "$0" logs --follow "$1" worker:0 > "$2"', howdah]
    with contextlib.ExitStack() as slow:
        following = hosts["client"].start([*follow, training.job.job_id, str(told)])
        slow.callback(end_tree, following)
        for name in ("node1", "node2", "node3"):
            slow.enter_context(hosts[name].slow(1000))
        newest = int(training.job.view().checkpoint or 0)
        until(
            lambda: int(training.job.view().checkpoint or 0) > newest + 1,
            "checkpoints are saved",
            LONG_S,
        )
        training.goes_on("training goes on")
        status = hosts["client"].run([howdah, "status", training.job.job_id])
        assert "running" in status.stdout, status.stderr
        view = training.finish()
        _, problem = following.communicate(timeout=LONG_S)
    assert (view.restarts, view.generation, view.incarnation) == (0, 1, 1)
    printed = min(training.ledger.last(0) // 10, 20)
    whole = f"saved {'.' * bulk}"
    assert told.read_text().count(whole) == printed, problem
    assert training.job.log("worker:0").count(whole) == printed


def ahead_s(training: Training, rank: int) -> float:
    """How far the clock of a rank's host is ahead of this process's."""
    last = training.ledger.lines(rank)[-1]
    return last.wall - time.time() + time.monotonic() - last.at


class Page:
    """The job page, in a browser that is signed in once."""

    def __init__(self, training: Training) -> None:
        self._handle = training.job.handle
        self._open = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(CookieJar())
        ).open
        self._base = ""

    def sign_in(self) -> None:
        def link() -> str | None:
            self._handle.status()
            return self._handle.page()

        address = until(link, "the page is served")
        self._base = address.partition("/login?")[0]
        self._open(address, timeout=30).read()

    def get(self, path: str) -> bytes:
        return self._open(f"{self._base}/{path}", timeout=30).read()


@pytest.mark.fault(
    "YARN",
    "clocks: the workers' and the coordinator's hosts are 8 minutes ahead, and 3 and 10 behind",
    "always",
    "nothing differs: the job runs, also under its next coordinator; measurements, pages and times are those of one clock",
)
def test_hosts_whose_clocks_are_apart(yarn: Yarn, hosts: Hosts) -> None:
    for name, seconds in {"node1": AHEAD_S, "node2": -180, "node3": BEHIND_S}.items():
        hosts[name].set_clock(seconds)
    began = time.monotonic()
    training = Training(yarn, workers=3)
    there = {host: ahead_s(training, rank) for rank, host in training.ledger.hosts(3).items()}
    assert sorted(round(each / 60) for each in there.values()) == [-10, -3, 8]

    page = Page(training)
    page.sign_in()
    until(lambda: measured(page) == {"worker:0", "worker:1", "worker:2"}, "the page has all ranks")

    # A coordinator stores them now and then; what a killed one had not is lost.
    stored = until(lambda: training.job.handle.metrics(), "measurements are stored")
    former = training.job.master()
    former.kill()
    training.next_coordinator(former)
    training.goes_on("training goes on")
    own = Page(training)
    own.sign_in()

    view = training.finish()
    took_s = time.monotonic() - began
    assert (view.restarts, view.generation, view.incarnation) == (0, 1, 2)
    assert view.submitted is not None and view.started is not None and view.finished is not None
    assert view.submitted <= view.started <= view.finished <= view.submitted + took_s + APART_S / 2
    for task in view.tasks:
        assert task.started and view.submitted <= task.started <= view.finished
    times = [each.time for each in training.job.handle.metrics()]
    assert len(times) >= len(stored)
    assert view.submitted <= min(times) and max(times) <= view.finished
    lines = list(training.job.handle.logs(follow=False))
    assert len({line.task for line in lines}) == 3
    assert all(abs(view.finished - (line.time or 0.0)) < APART_S for line in lines)
    events = [each.time for each in training.job.handle.events(follow=False)]
    assert events == sorted(events)


def measured(page: Page) -> set[str]:
    """Tasks of which the page has a plot."""
    tasks = "&".join(f"task=worker:{i}" for i in range(3))
    told = json.loads(page.get(f"api/v1/series?{tasks}&step=1"))
    return {each["task"] for each in told["series"] if any(each["points"])}
