"""PyTorch's own elasticity and sharded checkpoints, as its tutorials have them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.howdah import start
from tests.programs.programs import succeeds

pytestmark = pytest.mark.nightly

FAILS_ONCE = """
import os

rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
round = os.environ["TORCHELASTIC_RESTART_COUNT"]
if rank == "1" and round == "0":
    raise RuntimeError("once")
print(f"rank {rank} of {world} in round {round}\\n", end="", flush=True)
"""
"""Without a process group: in torch 2.15 gloo's addresses of the first try sometimes meet the ranks of the
second, with torchrun alone too (two of eight tries on a busy machine)."""

SHARDED = """
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from sklearn.datasets import load_digits
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)


def checksum():
    return sum(p.full_tensor().double().abs().sum().item() for p in model.parameters())


folder = Path(os.environ["HOWDAH_CHECKPOINT_DIR"]) / "state"
if folder.exists():
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    total = checksum()
    print(f"rank {rank} of {world} loaded {total:.6f}\\n", end="", flush=True)
x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
for step in range(60):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x[rank:1400:world]), y[rank:1400:world]).backward()
    optimizer.step()
weights, moments = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=folder)
total = checksum()  # before the model is used again, which gathers its shards
with torch.no_grad():
    right = (model(x[1400:]).argmax(1) == y[1400:]).float().mean().item()
print(f"rank {rank} of {world} saved {total:.6f} accuracy {right:.3f}\\n", end="", flush=True)
dist.barrier()  # gloo's threads sometimes abort a process that destroys a sharded model's group
"""


@pytest.mark.program(
    "PyTorch",
    "torch",
    "`torchrun --nproc-per-node=2 --max-restarts=1 train.py`",
    "both ranks in round 1, one generation",
)
@pytest.mark.timeout(180)
def test_torchrun_restarts_its_ranks_itself_where_it_is_told_to(tmp_path: Path) -> None:
    """In one task: PyTorch's agents on two nodes sometimes count one failure twice."""
    run = succeeds(
        tmp_path / "job",
        {"train.py": FAILS_ONCE},
        framework="pytorch",
        command="torchrun --nproc-per-node=2 --max-restarts=1 train.py",
        roles={"worker": {}},
    )
    found = sorted(re.findall(r"rank \d of 2 in round 1", run.text))
    assert found == ["rank 0 of 2 in round 1", "rank 1 of 2 in round 1"]
    assert "generation 2" not in run.told


@pytest.mark.program(
    "PyTorch, FSDP and DCP",
    "torch",
    "`torchrun --nproc-per-node=2 train.py`, then `howdah rerun --resume` with 3",
    "the same weights, accuracy above 0.8",
)
@pytest.mark.timeout(300)
def test_a_sharded_checkpoint_is_resumed_by_another_number_of_ranks(tmp_path: Path) -> None:
    first = succeeds(
        tmp_path / "job",
        {"train.py": SHARDED},
        framework="pytorch",
        command="torchrun --nproc-per-node=2 train.py",
        roles={"worker": {}},
        checkpoint={"folder": "checkpoints"},
    )
    saved = re.findall(r"rank \d of 2 saved ([\d.]+) accuracy ([\d.]+)", first.text)
    assert len(saved) == 2 and len(set(saved)) == 1, first.text
    assert float(saved[0][1]) > 0.8
    job_id = re.findall(r"^howdah +\| (\S+) submitted", first.told, re.M)[0]
    command = "command=torchrun --nproc-per-node=3 train.py"
    again = start("rerun", job_id, "--resume", "--set", command)
    assert again.end(within_s=140) == 0, again.text + again.told
    loaded = re.findall(r"rank \d of 3 loaded ([\d.]+)", again.text)
    assert len(loaded) == 3 and set(loaded) == {saved[0][0]}, again.text
