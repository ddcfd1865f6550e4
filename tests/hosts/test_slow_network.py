"""Jobs on hosts whose network is slow: they go on all the same."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

from tests.hosts.hosts import Hosts, end_tree
from tests.hosts.training import LONG_S, Training
from tests.yarn.runner import Yarn, until

pytestmark = [pytest.mark.timeout(400), pytest.mark.thorough]


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
