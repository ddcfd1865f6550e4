"""Hosts with two interfaces, and a firewall on each: Hadoop has the one, jobs the other and a range of ports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hadoop.ports import RANGE as HADOOPS
from tests.hosts.conftest import OnHosts, hadoop_over_hosts
from tests.hosts.hosts import SECOND_NETWORK, Hosts
from tests.hosts.training import LONG_S, Training
from tests.yarn.runner import Yarn

pytestmark = [pytest.mark.timeout(400), pytest.mark.nightly]

JOBS = range(21_000, 21_040)
NETWORK = f"""
[network]
interface = "eth1"
ports = "{JOBS[0]}-{JOBS[-1]}"
"""


@pytest.fixture(scope="module")
def hadoop_on_hosts() -> Iterator[OnHosts]:
    with hadoop_over_hosts(two_networks=True) as there:
        yield there


@pytest.mark.fault(
    "YARN",
    "a firewall lets in only the ports of `[network] ports`, on the interface of `[network] interface`",
    "always",
    "the job runs, also under its next coordinator",
)
def test_a_job_keeps_to_its_interface_and_its_ports(yarn: Yarn, hosts: Hosts) -> None:
    for host in hosts:
        host.let_in_only({"eth0": HADOOPS, "eth1": JOBS})
    training = Training(yarn, workers=3, more=NETWORK)
    former = training.job.master()
    host, _, port = training.job.application()["amRPCAddress"].rpartition(":")
    assert host.startswith(SECOND_NETWORK) and int(port) in JOBS
    former.kill()
    training.next_coordinator(former)
    training.goes_on("training goes on")
    view = training.finish()
    assert (view.restarts, view.generation, view.incarnation) == (0, 1, 2)
    assert all(str(task.host).startswith(SECOND_NETWORK) for task in view.tasks)


def test_an_interface_that_nodes_do_not_have_ends_the_job_and_says_so(yarn: Yarn) -> None:
    job = yarn.submit('command = "true"\n[network]\ninterface = "eth7"\n')
    view = job.wait(LONG_S)
    assert view.outcome == "failed"
    assert "no network interface 'eth7'" in str(view.reason)
    assert "eth1" in str(view.reason)
