"""Each framework's own way to start, unchanged: the usual call, the usual command."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.howdah import howdah, start

pytestmark = pytest.mark.nightly

TORCH = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} has {total.item():g}", flush=True)
dist.destroy_process_group()
"""

TORCHRUN = {
    "plain": "torchrun train.py",
    "module": "python -m torch.distributed.run train.py",
    "c10d": "torchrun --rdzv-backend=c10d train.py",
    "processes": "torchrun --nnodes=2 --nproc-per-node=2 train.py",
    "elastic": "torchrun --nnodes=1:2 --rdzv-backend=c10d train.py",
    "static": "torchrun --nnodes=2 --node-rank=$PET_NODE_RANK --master-addr=$MASTER_ADDR "
    "--master-port=$MASTER_PORT train.py",
}

JAX = """
import jax

jax.distributed.initialize()
import jax.numpy as jnp
from jax.experimental import multihost_utils

every = multihost_utils.process_allgather(jnp.array([jax.process_index() + 1.0]))
print(f"rank {jax.process_index()} of {jax.process_count()} has {every.sum():g}", flush=True)
"""


def ranks(folder: Path, script: str, command: str, framework: str, **env: str) -> list[str]:
    """What the ranks of two tasks say, sorted."""
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(script)
    (folder / "job.json").write_text(
        json.dumps(
            {
                "name": "quick",
                "framework": framework,
                "command": command,
                "env": env,
                "roles": {"worker": {"instances": 2}},
                "environment": {"python": sys.executable},
            }
        )
    )
    run = start("run", str(folder / "job.json"))
    assert run.end(within_s=150) == 0, run.told
    return sorted(re.findall(r"rank \d+ of \d+ has \d+", run.text))


@pytest.mark.program(
    "PyTorch",
    "torch",
    "`torchrun train.py`; `python -m torch.distributed.run`; `--rdzv-backend=c10d`; `--nnodes=1:2`; `--nnodes=2 --nproc-per-node=2`; static",
    "the sum over all ranks",
)
@pytest.mark.timeout(180)
@pytest.mark.parametrize("form", TORCHRUN)
def test_torchrun_in_its_documented_forms(tmp_path: Path, form: str) -> None:
    found = ranks(tmp_path / "job", TORCH, TORCHRUN[form], "pytorch")
    world = 4 if form == "processes" else 2
    total = world * (world + 1) // 2
    assert found == [f"rank {rank} of {world} has {total}" for rank in range(world)]


def test_torchrun_standalone_in_two_tasks_is_refused_with_what_to_change(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        'framework = "pytorch"\ncommand = "torchrun --standalone train.py"\n'
        "[roles.worker]\ninstances = 2\n"
    )
    told = howdah("check", str(file), code=2).told
    assert "job.toml:2: command: torchrun --standalone" in told
    assert "remove --standalone" in told


@pytest.mark.program(
    "JAX", "jax", "`python train.py`: `jax.distributed.initialize()`", "the sum over both processes"
)
@pytest.mark.timeout(180)
def test_jax_initializes_without_arguments(tmp_path: Path) -> None:
    found = ranks(tmp_path / "job", JAX, "python train.py", "jax", JAX_PLATFORMS="cpu")
    assert found == ["rank 0 of 2 has 3", "rank 1 of 2 has 3"]
