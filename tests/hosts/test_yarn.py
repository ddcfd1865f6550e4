"""Jobs on a cluster whose hosts are apart, and networks that fail between them."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.hosts.hosts import Hosts
from tests.hosts.training import LONG_S, Training, alone
from tests.processes import name, runs
from tests.yarn.runner import Yarn, until

pytestmark = [pytest.mark.timeout(900), pytest.mark.nightly]

SHORT_S = 5.0
AWAY_S = 40.0
"""Longer than a client waits for one answer."""


def of_containers(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that run still, and are no NodeManager."""
    return [each for each in processes if "java" not in name(each) and runs(each)]


def test_a_job_spans_three_hosts(yarn: Yarn, hosts: Hosts) -> None:
    training = Training(yarn, workers=3)
    assert set(training.ledger.hosts(3).values()) == {"node1", "node2", "node3"}
    view = training.finish()
    assert {task.host for task in view.tasks} == {hosts[f"node{i}"].address for i in (1, 2, 3)}
    log = training.job.log("worker:2")
    assert "trained to step" in log


@pytest.mark.fault(
    "YARN", "a worker's host is cut off", "5 s", "nothing is lost: the same programs go on"
)
@pytest.mark.fault(
    "YARN", "the coordinator's host is cut off", "5 s", "nothing is lost: the same programs go on"
)
@pytest.mark.fault("YARN", "the client's host is cut off", "5 s", "nothing is lost")
@pytest.mark.fault(
    "YARN", "a NodeManager's word does not reach the ResourceManager", "5 s", "nothing is lost"
)
@pytest.mark.parametrize("what", ["worker", "coordinator", "client", "nodemanager"])
def test_five_seconds_of_silence_cost_nothing(yarn: Yarn, hosts: Hosts, what: str) -> None:
    training = Training(yarn)
    match what:
        case "worker":
            with training.host_of_worker(hosts).cut_off():
                time.sleep(SHORT_S)
        case "coordinator":
            with training.host_of_master(hosts).cut_off():
                time.sleep(SHORT_S)
        case "client":
            with hosts["client"].cut_off():
                time.sleep(SHORT_S)
        case _:
            host = training.host_of_worker(hosts)
            host.drop_sent_to(yarn.cluster.site.resource_manager_ports(1).tracker)
            time.sleep(SHORT_S)
            host.drop_nothing()
    training.goes_on("training goes on")
    view = training.finish()
    assert (view.restarts, view.generation, view.incarnation) == (0, 1, 1)


@pytest.mark.fault(
    "YARN",
    "a worker's host is cut off",
    "longer than every limit",
    "the agent ends its programs when its lease is over; then the gang is formed again on other hosts, from the newest checkpoint",
)
@pytest.mark.fault(
    "YARN",
    "a worker's host",
    "gone for good",
    "when the agent's lease is over, the gang is formed again on other hosts, from the newest checkpoint",
)
def test_a_worker_whose_host_stays_away_is_replaced_once_it_has_surely_ended(
    yarn: Yarn, hosts: Hosts
) -> None:
    """To the job its host is gone for good: it comes back when the job has ended. What was there shows
    then that it ended by itself."""
    training = Training(yarn)
    host = training.host_of_worker(hosts)
    there = host.processes()
    with host.cut_off():
        training.generation(2)
        assert host.name not in training.ledger.hosts(2).values()
        view = training.finish()
    assert (view.restarts, view.incarnation) == (1, 1)
    (failure,) = view.failures
    assert host.name in failure.what, failure
    until(lambda: not of_containers(there), "nothing of the lost container runs", LONG_S)


@pytest.mark.fault(
    "YARN",
    "the coordinator's host is cut off",
    "longer than every limit",
    "YARN starts another coordinator; programs on other hosts never notice, and the former coordinator ends",
)
def test_a_coordinator_whose_host_stays_away_is_replaced_and_the_programs_never_notice(
    yarn: Yarn, hosts: Hosts
) -> None:
    training = alone(yarn, hosts)
    host = training.host_of_master(hosts)
    former = training.job.master()
    with host.cut_off():
        training.next_coordinator(former)
        training.goes_on("training goes on")
    until(lambda: not runs(former), "the former coordinator ends", LONG_S)
    view = training.finish()
    assert (view.restarts, view.generation) == (0, 1)


@pytest.mark.fault(
    "YARN",
    "a NodeManager's word does not reach the ResourceManager",
    "longer than every limit",
    "the programs there are ended over the agent's own connection; then the gang is formed again on other hosts",
)
def test_a_node_that_yarn_alone_does_not_hear_is_left_and_its_programs_end_first(
    yarn: Yarn, hosts: Hosts
) -> None:
    training = Training(yarn)
    host = training.host_of_worker(hosts)
    host.drop_sent_to(yarn.cluster.site.resource_manager_ports(1).tracker)
    training.generation(2)
    assert host.name not in training.ledger.hosts(2).values()
    host.drop_nothing()
    view = training.finish()
    assert (view.restarts, view.incarnation) == (1, 1)


@pytest.mark.fault(
    "YARN",
    "the client's host is cut off",
    "longer than every limit, and the job ends meanwhile",
    "`howdah attach` goes on, and ends with the job's exit code",
)
def test_a_client_that_was_away_still_sees_the_end(yarn: Yarn, hosts: Hosts) -> None:
    training = Training(yarn)
    howdah = str(Path(sys.executable).with_name("howdah"))
    with hosts["client"].start([howdah, "attach", training.job.job_id]) as attached:
        assert attached.stderr is not None
        assert attached.stderr.readline()
        with hosts["client"].cut_off():
            training.goal.touch()
            until(lambda: not training.job.processes(), "the job ends meanwhile", LONG_S)
            time.sleep(AWAY_S)
        out, err = attached.communicate(timeout=LONG_S)
    assert attached.returncode == 0, err
    assert "succeeded" in out
    training.finish()
