import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(1)

x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
mine = torch.arange(rank, len(x), world)  # every rank has its own share of the samples

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

first = 1
folder = Path("checkpoints")
folder.mkdir(exist_ok=True)
saved = sorted(folder.glob("epoch-*.pt"))
if saved:  # Howdah has brought the newest checkpoint back, the same one to every rank
    state = torch.load(saved[-1])
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["epoch"] + 1
    print(f"going on from {saved[-1].name}")

trained = DistributedDataParallel(model)
for epoch in range(first, int(os.environ.get("EPOCHS", 20)) + 1):
    for batch in mine[torch.randperm(len(mine))].split(32):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(trained(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
    if rank == 0:
        path = folder / f"epoch-{epoch:03d}.pt"
        torch.save(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
            path.with_suffix(".tmp"),
        )
        path.with_suffix(".tmp").rename(path)  # the file is there completely, or not at all
        print(f"epoch {epoch}: loss {loss.item():.4f}")
    time.sleep(1)  # so that there is time to look

with torch.no_grad():
    accuracy = (model(x).argmax(1) == y).float().mean().item()
print(f"rank {rank} of {world}: accuracy {accuracy:.4f}")
dist.destroy_process_group()
