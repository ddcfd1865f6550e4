"""A host of a cluster that is gone for good: a power cut, of which nobody is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hosts.conftest import OnHosts, hadoop_over_hosts
from tests.hosts.hosts import Hosts
from tests.hosts.training import alone
from tests.yarn.runner import Yarn

pytestmark = [pytest.mark.timeout(900), pytest.mark.nightly]


@pytest.fixture
def hadoop_on_hosts() -> Iterator[OnHosts]:
    """A cluster for each test: a host that is gone does not come back."""
    with hadoop_over_hosts() as there:
        yield there


@pytest.fixture
def hosts(hadoop_on_hosts: OnHosts) -> Hosts:
    return hadoop_on_hosts.hosts


@pytest.mark.fault(
    "YARN",
    "the coordinator's host",
    "gone for good",
    "YARN starts another coordinator; programs on other hosts never notice",
)
def test_a_coordinator_is_replaced_and_the_programs_never_notice(yarn: Yarn, hosts: Hosts) -> None:
    training = alone(yarn, hosts)
    former = training.job.master()
    training.host_of_master(hosts).crash()
    training.next_coordinator(former)
    training.goes_on("training goes on")
    view = training.finish()
    assert (view.restarts, view.generation) == (0, 1)
