"""Real containers on the shared cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.hadoop import applications
from tests.hadoop.cluster import Cluster
from tests.hadoop.leftovers import leftovers, processes, wait_same
from tests.hadoop.polling import wait

pytestmark = pytest.mark.nightly


@pytest.fixture
def submitted(hadoop: Cluster) -> Iterator[list[str]]:
    """Applications to be killed at the test's end."""
    found: list[str] = []
    yield found
    for application in found:
        applications.kill(hadoop, application)
        applications.wait_final(hadoop, application)


def test_an_application_runs_its_command_and_leaves_nothing(hadoop: Cluster) -> None:
    application = applications.submit(hadoop, "echo hello; exit 7")
    told = applications.wait_final(hadoop, application)
    assert "exitCode: 7" in told["diagnostics"]
    assert wait_same(hadoop, frozenset(), application) == frozenset()


def test_a_running_application_is_seen_in_all_it_has(hadoop: Cluster, submitted: list[str]) -> None:
    application = applications.submit(hadoop, "sleep 600")
    submitted.append(application)
    applications.wait_running(hadoop, application)
    number = application.removeprefix("application_")
    container = f"container_{number}_01_000001"
    wanted = {
        f"{application} is ACCEPTED",
        f"{container} is RUNNING on",
        f"of {container}: sleep 600",
        f"appcache/{application}",
    }

    def all_seen() -> bool:
        seen = leftovers(hadoop, application)
        return all(any(part in each for each in seen) for part in wanted)

    wait("all that the application has", all_seen)
    assert hadoop.containers_running() >= 1
    applications.kill(hadoop, application)
    assert wait_same(hadoop, frozenset(), application) == frozenset()


def test_logs_are_aggregated_on_hdfs(hadoop: Cluster) -> None:
    application = applications.submit(hadoop, "echo hello")
    applications.wait_final(hadoop, application)
    number = int(application[-4:])
    folder = f"/app-logs/{hadoop.site.user}/bucket-logs-tfile/{number:04}/{application}"
    applications.wait_logs(hadoop, application)
    files = hadoop.hdfs(folder, "LISTSTATUS", "GET")["FileStatuses"]["FileStatus"]
    assert [each["type"] for each in files] == ["FILE"]


def test_a_label_leads_to_the_node_that_has_it(hadoop: Cluster, submitted: list[str]) -> None:
    application = applications.submit(hadoop, "sleep 600", queue="gpu", label="gpu")
    submitted.append(application)
    container = applications.wait_running(hadoop, application)
    gpu_node = next(each for each in hadoop.nodes() if each.get("nodeLabels"))
    assert container["nodeId"] == gpu_node["id"]


def test_a_queue_that_is_full_makes_the_next_one_wait(
    hadoop: Cluster, submitted: list[str]
) -> None:
    first = applications.submit(hadoop, "sleep 600", queue="small", memory_mib=1024)
    submitted.append(first)
    applications.wait_running(hadoop, first)
    second = applications.submit(hadoop, "sleep 600", queue="small", memory_mib=1024)
    submitted.append(second)
    reason = "limit exceeded"
    wait(reason, lambda: reason in hadoop.rm(f"apps/{second}")["app"]["diagnostics"])
    assert applications.state(hadoop, second) == "ACCEPTED"


def test_a_container_over_its_memory_is_killed(hadoop: Cluster) -> None:
    greedy = "python3 -c 'x=bytearray(300000000); import time; time.sleep(60)'"
    application = applications.submit(hadoop, greedy, memory_mib=128)
    told = applications.wait_final(hadoop, application)
    assert "exitCode: -104" in told["diagnostics"]


def test_containers_carry_the_cluster_they_belong_to(
    hadoop: Cluster, submitted: list[str], tmp_path: Path
) -> None:
    application = applications.submit(hadoop, f"touch {tmp_path}/up; setsid sleep 600")
    submitted.append(application)
    wait("the container", (tmp_path / "up").exists)
    number = application.removeprefix("application_")

    def of_it(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):  # another test's, and ended since
            return number in process.environ().get("CONTAINER_ID", "")
        return False

    assert any(map(of_it, processes(hadoop)))
