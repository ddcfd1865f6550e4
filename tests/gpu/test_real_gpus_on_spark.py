"""A real GPU in Spark's accounting: given to the training task alone by a resource profile."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.howdah import howdah, until
from tests.spark.programs import run_program, start_program, wait_ended
from tests.spark.servers import Standalone

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        find_spec("pyspark") is None or shutil.which("java") is None, reason="no Spark or no Java"
    ),
]
ROOT = str(Path(__file__).parents[2])

TRAIN = """
import json
from howdah.spark import Cluster
from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

def train(args, ctx):
    import os, time
    import torch
    held = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    a = torch.randn(4096, 4096, device="cuda")
    model = torch.nn.Linear(2, 1).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    loader = ctx.feed().torch_loader(512, columns="x", label="y", pin=True, device="cuda")
    for epoch in range(10):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x)[:, 0], y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    end = time.monotonic() + 8
    while time.monotonic() < end:
        for _ in range(50):
            a @ a
        torch.cuda.synchronize()
    seen = [os.environ[name] for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")]
    return [torch.cuda.device_count(), str(x.device), losses[0], losses[-1], *seen]

one = ResourceProfileBuilder().require(TaskResourceRequests().cpus(1).resource("gpu", 1)).build
rows = spark.range(0, 20000, 1, 2).selectExpr(
    "array(cast(id % 7 as float), cast(id % 3 as float)) as x",
    "cast(id % 7 + 2 * (id % 3) as float) as y",
)
"""

FEEDS = """
with Cluster.start(spark, train, workers=1, gpus=1, resources=one) as cluster:
    cluster.train(rows, epochs=10, cache=True)
    print("seen=" + json.dumps(cluster.results()[0]), flush=True)
    print("job=" + cluster.job_id, flush=True)
"""

HOLDS = """
def hold(args, ctx):
    import os, time
    import torch
    held = torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
    print("holds", os.getpid(), flush=True)
    time.sleep(600)

with Cluster.start(spark, hold, workers=1, gpus=1, resources=one) as cluster:
    for line in cluster.logs(follow=True):
        print("log=" + line.text, flush=True)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    """A worker of two cores that has this machine's devices, found as Spark's own script does."""
    found = tmp_path / "devices"
    found.write_text(
        "#!/bin/sh\n"
        "ids=$(nvidia-smi --query-gpu=index --format=csv,noheader | sed 's/.*/\"&\"/' | paste -sd,)\n"
        'echo "{\\"name\\": \\"gpu\\", \\"addresses\\": [$ids]}"\n'
    )
    found.chmod(0o700)
    options = "-Dspark.worker.resource.gpu.amount=1 -Dspark.worker.resource.gpu.discoveryScript="
    env = {"SPARK_WORKER_OPTS": f"{options}{found}"}
    with Standalone(tmp_path / "standalone", workers=1, cores=2, env=env) as standalone:
        yield standalone


def settings(cluster: Standalone) -> dict[str, str]:
    return {"spark.executor.resource.gpu.amount": "1", "spark.cores.max": "2"}


def used_mb() -> int:
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return sum(map(int, subprocess.check_output(command, text=True).split()))


def test_a_fed_program_trains_on_the_device_of_its_task_and_its_use_is_measured(
    cluster: Standalone, tmp_path: Path
) -> None:
    done = run_program(
        TRAIN + FEEDS,
        tmp_path / "program",
        spark=cluster,
        conf=settings(cluster),
        env={"PYTHONPATH": ROOT},
        timeout_s=200,
    )
    count, device, first, last, visible, order = json.loads(done.told("seen"))
    assert (count, device, visible, order) == (1, "cuda:0", "0", "PCI_BUS_ID")
    assert last < first / 2
    used = json.dumps(howdah("metrics", done.told("job"), "--json").documents())
    shares = [float(found) for found in re.findall(r'"gpu": ([\d.]+)', used)]
    memories = [float(found) for found in re.findall(r'"gpu_memory_mb": ([\d.]+)', used)]
    assert shares and max(shares) > 0.3, used
    assert memories and max(memories) > 1024, used


def test_a_killed_executor_leaves_nothing_on_the_device(
    cluster: Standalone, tmp_path: Path
) -> None:
    before = used_mb()
    program = start_program(
        TRAIN + HOLDS,
        tmp_path / "program",
        spark=cluster,
        conf=settings(cluster),
        env={"PYTHONPATH": ROOT},
    )
    try:
        pid = int(program.wait_line(r"log=holds (\d+)", 120))
        assert used_mb() > before + 8000
        for executor in cluster.executors():
            executor.kill()
        assert not wait_ended([pid])
        until(lambda: used_mb() < before + 1000, "a device that nobody uses")
    finally:
        program.end()
