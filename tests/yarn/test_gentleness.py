"""What jobs that wait ask of the ResourceManager, counted by it; and what it is told in the end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from howdah.backends.base import RoleResources
from howdah.backends.yarn.master.allocate_loop import AllocateLoop
from howdah.backends.yarn.master.outstanding_requests import OutstandingRequests
from howdah.core.messages import ContainerRequest
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.protos import yarn as protos
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.scheduler import Scheduler
from tests.conformance.harness import eventually
from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster
from tests.hadoop.rest import call
from tests.yarn import unmanaged
from tests.yarn.relay import Relay
from tests.yarn.runner import Yarn, YarnJob, until

pytestmark = pytest.mark.nightly

JOBS = 100
WINDOW_S = 30.0
BEFORE_S = 31.0
"""Who has waited so long asks as seldom as they ever do."""
MOST_A_SECOND = 0.5
"""Of one job, its master and somebody who watches it together."""


# -- how often -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def yarn_cluster(hadoop_module_cluster: MakeCluster) -> Cluster:
    return hadoop_module_cluster(node_managers=1, node_expiry_ms=600_000, master_expiry_ms=600_000)


@pytest.fixture
def yarn(yarn: Yarn) -> Iterator[Yarn]:
    yield yarn
    yarn.cluster.resume("nodemanager1")


class Watchers:
    """Somebody who waits for each of the jobs, until they have ended."""

    def __init__(self, jobs: list[YarnJob]) -> None:
        self._threads = [
            threading.Thread(target=job.handle.wait, name=f"watches {job.job_id}") for job in jobs
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60.0)
            assert not thread.is_alive(), f"{thread.name}, which has ended"


def asked(cluster: Cluster) -> int:
    """Calls that the ResourceManager has answered to clients and masters."""
    configuration = Configuration.load(cluster.conf_dir, env={})
    ports = [configuration.rm_addresses(kind)[0].port for kind in ("client", "scheduler")]
    name = "Hadoop:service=ResourceManager,name=RpcActivityForPort"
    beans = [call(f"{cluster.rm_web}/jmx?qry={name}{port}")["beans"][0] for port in ports]
    return sum(bean["RpcProcessingTimeNumOps"] for bean in beans)


def a_second(cluster: Cluster, window_s: float = WINDOW_S) -> float:
    """Calls a second, in a while. Who waits is not to be woken by anything: it is the time itself."""
    before, begun = asked(cluster), time.monotonic()
    time.sleep(window_s)
    return (asked(cluster) - before) / (time.monotonic() - begun)


def number(job: YarnJob) -> int:
    return int(job.application_id.rpartition("_")[2])


@pytest.mark.timeout(900)
def test_jobs_that_wait_for_their_masters_ask_seldom_and_use_up_no_application_ids(
    yarn: Yarn,
) -> None:
    yarn.cluster.pause("nodemanager1")
    jobs = [yarn.submit('command = "true"\n[roles.worker]') for _ in range(JOBS)]
    watchers = Watchers(jobs)
    time.sleep(BEFORE_S)
    rate = a_second(yarn.cluster, WINDOW_S / 2) / JOBS
    assert 0.1 < rate <= MOST_A_SECOND, "they are watched, and gently"
    last = yarn.submit('command = "true"\n[roles.worker]')
    assert number(last) == number(jobs[-1]) + 1
    for job in jobs:
        job.end()
    watchers.join()


@pytest.mark.timeout(900)
def test_a_master_that_waits_for_containers_asks_seldom(yarn: Yarn) -> None:
    memory = sum(node["availMemoryMB"] for node in yarn.cluster.nodes())
    text = f'command = "sleep 600"\n[roles.worker]\nmemory = "{memory * 2 // 3}m"'
    holder = yarn.submit(text)
    holder.running()
    job = yarn.submit(text)
    watchers = Watchers([job])
    until(lambda: "worker:" in job.view().reason, "it says what it waits for")
    time.sleep(BEFORE_S)
    theirs = a_second(yarn.cluster)
    job.end()
    watchers.join()
    holders = a_second(yarn.cluster)
    assert 0.1 < theirs - holders <= MOST_A_SECOND
    assert holders <= 1.1, "a master whose containers run"
    holder.end()


# -- nothing is forgotten ------------------------------------------------------------------------


class Told:
    """What the loop has told."""

    busy = False

    def __init__(self, requests: OutstandingRequests) -> None:
        self._requests = requests
        self.granted: set[str] = set()
        self.refused_requests: list[int] = []

    def answered(self, answer: protos.AllocateResponseProto) -> None:
        for container in answer.allocated_containers:
            self.granted.add(self._requests.role_of(container.allocation_request_id) or "")

    def registered_again(self, answer: protos.RegisterApplicationMasterResponseProto) -> None:
        raise AssertionError(answer)

    def refused(self, role: str, reason: str) -> None:
        self.refused_requests += self._requests.refuse(role)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("cut_at", [1, 2, 3, 4])
def test_a_connection_that_breaks_between_the_roles_forgets_none_of_them(
    yarn_cluster: Cluster, caplog: pytest.LogCaptureFixture, cut_at: int
) -> None:
    """A request that can never be granted makes the others be sent one by one."""

    async def test() -> None:
        configuration = Configuration.load(yarn_cluster.conf_dir, env={})
        address = configuration.rm_addresses("scheduler")[0]
        _, token = await unmanaged.submit(configuration, yarn_cluster.site.user, "roles")
        relay = Relay((address.host, address.port), "allocate")
        async with relay as port:
            through = {"yarn.resourcemanager.scheduler.address": f"127.0.0.1:{port}"}
            there = Configuration({**configuration.as_dict(), **through})
            hasty = RetryPolicy(max_wait_s=0.3, try_timeout_s=0.3)
            scheduler = Scheduler(there, yarn_cluster.site.user, token, retry=hasty)
            await scheduler.register("127.0.0.1", -1, "", timeout_s=30.0)
            roles = {
                "first": RoleResources(memory_mb=64),
                "huge": RoleResources(memory_mb=100_000_000),
                "last": RoleResources(memory_mb=64),
            }
            requests = OutstandingRequests(roles)
            requests.add([ContainerRequest(request_id=n, role=r) for n, r in enumerate(roles, 1)])
            told = Told(requests)
            loop = AllocateLoop(
                scheduler, requests, roles, told, longest_s=600.0, superseded=lambda why: None
            )
            relay.cut_at = cut_at
            loop.start()
            await eventually(lambda: "no answer from the" in caplog.text, "the loop has given up")
            relay.cut_at = None
            await eventually(lambda: told.granted == {"first", "last"}, "both are granted")
            assert told.refused_requests == [2]
            await loop.stop()
            await scheduler.finish("SUCCEEDED")
            await scheduler.close()

    asyncio.run(test())
