"""Jobs on this machine's own GPUs, by the command line."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from howdah.backends.gpus import DeviceLocks, nvml_devices
from tests.cli.howdah import Run, howdah, newest, start, until

pytestmark = pytest.mark.timeout(240)

BUSY = """
import sys
import time

import torch

device = torch.device("cuda")
print("devices", torch.cuda.device_count(), torch.cuda.get_device_name(), flush=True)
a = torch.randn(8192, 8192, device=device, dtype=torch.bfloat16)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for _ in range(50):
        b = a @ a
    torch.cuda.synchronize()
print("done", flush=True)
"""

DDP = """
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 10).cuda(), device_ids=[0])
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
x, y = torch.randn(512, 64, device="cuda"), torch.randint(0, 10, (512,), device="cuda")
first = None
for _ in range(200):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    first = first or loss.item()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
total = torch.ones(1, device="cuda")
dist.all_reduce(total)
print(f"ranks {total.item():.0f} on {total.device} loss {first:.3f} -> {loss.item():.3f}", flush=True)
dist.destroy_process_group()
"""

JAX = """
import jax

devices = jax.devices()
x = jax.numpy.ones((2048, 2048))
print("jax", devices[0].platform, len(devices), float((x @ x)[0, 0]), flush=True)
"""

TRIAL = """
import os

import torch
from howdah import task

share = float(os.environ["share"])
held = torch.full((int(share * 1024),), share, device="cuda")
task.report(summed=float(held.sum()))
"""

UNTIL = """
import os
import time

import torch

held = torch.ones(1 << 20, device="cuda")
print("holds", flush=True)
while not os.path.exists(os.environ["GATE"]):
    time.sleep(0.05)
print("still", float((held + 1).sum()), flush=True)
"""

HOLDS = """
import time

import torch

held = torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
print("holds", flush=True)
time.sleep(600)
"""


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., str]:
    """Write a job with one role of one GPU; its file."""

    def write(name: str, script: str, *arguments: str, **job: Any) -> str:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text(script)
        job = {"name": name, "environment": {"python": sys.executable}, **job}
        job.setdefault("command", ["python", "train.py", *arguments])
        job.setdefault("roles", {"worker": {"instances": 1, "gpus": 1}})
        (folder / "job.json").write_text(json.dumps(job))
        return str(folder / "job.json")

    return write


def ends(run: Run, code: int = 0) -> Run:
    assert run.end(within_s=200) == code, f"{run.text}\n{run.told}"
    return run


def test_doctor_names_the_devices() -> None:
    text = howdah("doctor").text
    for device in nvml_devices():
        assert device.name in text


def test_a_program_sees_its_device_and_its_use_is_measured(job: Callable[..., str]) -> None:
    run = ends(start("run", job("busy", BUSY, "12")))
    assert "devices 1" in run.text
    (status,) = howdah("status", "@last", "--json").documents()
    task = status["tasks"][0]
    metrics = howdah("metrics", "@last", "--json").documents()
    used = json.dumps([task, metrics])
    shares = [float(found) for found in re.findall(r'"gpu": ([\d.]+)', used)]
    memories = [float(found) for found in re.findall(r'"gpu_memory_mb": ([\d.]+)', used)]
    assert shares and max(shares) > 0.5, used
    assert memories and max(memories) > 128, used
    assert "gpu-idle" not in howdah("advice", "@last").text


def test_ddp_over_nccl(job: Callable[..., str]) -> None:
    run = ends(start("run", job("ddp", DDP, framework="pytorch")))
    before, after = re.findall(r"ranks 1 on cuda:0 loss ([\d.]+) -> ([\d.]+)", run.text)[0]
    assert float(after) < float(before)


def test_torchrun_gets_the_device(job: Callable[..., str]) -> None:
    command = "torchrun --nproc-per-node=1 train.py"
    run = ends(start("run", job("torchrun", DDP, framework="pytorch", command=command)))
    assert "ranks 1 on cuda:0" in run.text


def test_jax_gets_the_device(job: Callable[..., str]) -> None:
    run = ends(start("run", job("jax", JAX, framework="jax")))
    assert "jax gpu 1 2048.0" in run.text


def test_a_role_without_gpus_sees_none(job: Callable[..., str]) -> None:
    script = "import torch; print('seen', torch.cuda.device_count(), flush=True)"
    run = ends(start("run", job("none", script, roles={"worker": {"instances": 1}})))
    assert "seen 0" in run.text


def test_more_gpus_than_there_are_are_refused_at_once(job: Callable[..., str]) -> None:
    count = len(nvml_devices())
    path = job("many", BUSY, "1", roles={"worker": {"instances": count + 1, "gpus": 1}})
    run = ends(start("run", path), code=3)
    assert f"the roles need {count + 1} GPUs at the same time" in run.told


def test_a_second_job_waits_for_the_first_ones_device(job: Callable[..., str]) -> None:
    count = len(nvml_devices())
    roles = {"worker": {"instances": 1, "gpus": count}}
    first = start("run", job("first", HOLDS, roles=roles))
    first.until_line("holds")
    second = start("run", job("second", JAX, roles=roles))
    second.until_line(f"GPUs asked for: {count}, free: 0 of {count}")
    assert second.process.poll() is None
    howdah("stop", "first")
    ends(first, code=130)
    ends(second)
    assert "jax gpu" in second.text


def test_a_new_coordinator_leaves_the_devices_with_the_job(
    job: Callable[..., str], tmp_path: Path
) -> None:
    count = len(nvml_devices())
    roles = {"worker": {"instances": 1, "gpus": count}}
    gate = tmp_path / "gate"
    first = start("run", job("first", UNTIL, roles=roles, env={"GATE": str(gate)}))
    first.until_line("holds")
    directory = newest()
    os.kill(until(directory.coordinator, "a coordinator").pid, signal.SIGKILL)
    until(
        lambda: (now := directory.coordinator()) and now.incarnation == 2, "the second coordinator"
    )
    second = start("run", job("second", JAX, roles=roles))
    second.until_line(f"GPUs asked for: {count}, free: 0 of {count}")
    gate.touch()
    ends(first)
    assert f"still {2 << 20:.1f}" in first.text
    assert first.text.count("holds") == 1, "the program has gone on, and was not begun again"
    ends(second)
    assert "jax gpu" in second.text


def test_a_sweep_of_more_trials_than_devices(job: Callable[..., str]) -> None:
    count = len(nvml_devices())
    path = job("sweep", TRIAL, roles={"worker": {"instances": 1, "gpus": count}})
    run = ends(start("sweep", path, "--set", "share=1,2,3", "--at-once", "3"))
    trials = [line for line in run.out if "succeeded" in line]
    assert len(trials) == 3, run.text
    summed = [f"{1024 * share * share:.0f}" for share in (1, 2, 3)]
    assert all(any(each in line.split() for line in trials) for each in summed), run.text


def test_a_killed_program_leaves_no_memory_and_no_lock(job: Callable[..., str]) -> None:
    run = start("run", job("killed", HOLDS))
    run.until_line("holds")
    howdah("stop", "killed")
    ends(run, code=130)

    def free() -> bool:
        devices = nvml_devices()
        taken = DeviceLocks().take(devices, lambda count: count) or []
        for _, descriptor in taken:
            os.close(descriptor)
        return len(taken) == len(devices) and used_bytes() < 4 << 30

    until(free, "devices whose memory is free and that nobody has locked")


def used_bytes() -> int:
    """Memory in use on all devices; tests beside this one have a little."""
    import pynvml

    pynvml.nvmlInit()
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return sum(int(pynvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles)
    finally:
        pynvml.nvmlShutdown()
