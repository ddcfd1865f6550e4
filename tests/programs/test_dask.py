"""Dask programs as its quick starts have them: in a job, and from Python with workers that come and go."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.programs import succeeds

pytestmark = pytest.mark.nightly

QUICK_START = """
from dask.distributed import Client

client = Client()
print("workers", len(client.scheduler_info()["workers"]), flush=True)
print("sum", sum(client.gather(client.map(lambda x: x * x, range(10)))), flush=True)
client.restart()
print("again", len(client.scheduler_info()["workers"]), client.submit(sum, range(5)).result(), flush=True)
"""

SLOW = "import os, time; time.sleep(int(os.environ['HOWDAH_INDEX']))"
"""Loaded by each worker before its scheduler knows it: the second one comes a second after its nanny."""

SCALING = """
import time
from howdah.integrations.dask import HowdahCluster

def workers():
    return len(client.scheduler_info()["workers"])

if __name__ == "__main__":
    with HowdahCluster(1) as cluster:
        client = cluster.get_client()
        client.wait_for_workers(1)
        print("sum", client.submit(sum, range(5)).result(), flush=True)
        cluster.scale(2)
        client.wait_for_workers(2)
        print("scaled to", workers(), flush=True)
        cluster.adapt(minimum=0, maximum=1, interval="100ms", wait_count=2)
        while workers():
            time.sleep(0.05)
        print("back from none", client.submit(sum, range(6)).result(), flush=True)
"""

LOSING = """
import os
import signal
import time
from howdah.integrations.dask import HowdahCluster

def pids():
    return list(client.run(os.getpid, on_error="ignore").values())

if __name__ == "__main__":
    with HowdahCluster(1) as cluster:
        client = cluster.get_client()
        client.wait_for_workers(1)
        [lost] = pids()
        os.kill(lost, signal.SIGKILL)
        while not (found := pids()) or found == [lost]:
            time.sleep(0.05)
        print("sum", client.submit(sum, range(5)).result(), len(cluster.workers), flush=True)
"""


@pytest.mark.program(
    "Dask",
    "distributed",
    "`python train.py` in the role `client`",
    "two workers at its start, the sum, both workers again after `client.restart()`, no traceback",
)
@pytest.mark.timeout(180)
def test_a_client_starts_with_all_workers_restarts_them_and_ends_quietly(tmp_path: Path) -> None:
    env = {"DASK_DISTRIBUTED__WORKER__PRELOAD": SLOW}
    roles = {"client": {}, "worker": {"instances": 2, "env": env}}
    run = succeeds(
        tmp_path / "job",
        {"train.py": QUICK_START},
        framework="dask",
        command="python train.py",
        roles=roles,
    )
    said = [line.partition("| ")[2] for line in run.out if line.startswith("client:0")]
    assert said == ["workers 2", "sum 285", "again 2 10"]
    assert "Traceback" not in run.text and "SIGKILL" not in run.text + run.told, run.text


@pytest.mark.program(
    "Dask",
    "distributed",
    "`python scale.py`, without a job: `HowdahCluster`",
    "`scale` and `adapt`, to none and back",
)
@pytest.mark.timeout(180)
def test_a_program_scales_its_cluster(tmp_path: Path) -> None:
    (tmp_path / "scale.py").write_text(SCALING)
    done = subprocess.run(
        [sys.executable, "scale.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:3] == ["sum 10", "scaled to 2", "back from none 15"]


@pytest.mark.timeout(180)
def test_a_worker_that_is_lost_comes_back_however_soon_dask_gives_it_up(tmp_path: Path) -> None:
    (tmp_path / "lose.py").write_text(LOSING)
    done = subprocess.run(
        [sys.executable, "lose.py"],
        cwd=tmp_path,
        env={**os.environ, "DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT": "10ms"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == "sum 10 1"
