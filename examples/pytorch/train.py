"""DistributedDataParallel over gloo. Without RANK and the like in the environment it trains alone."""

import os

import digits
import torch
import torch.distributed as dist
from tensorboardX import SummaryWriter  # torch.utils.tensorboard would import TensorFlow
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

options = digits.options()
torch.set_num_threads(1)
torch.manual_seed(1)
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
if world > 1:
    dist.init_process_group("gloo")

(x_train, y_train), (x_test, y_test) = digits.load()
x_train, y_train, x_test, y_test = map(torch.from_numpy, (x_train, y_train, x_test, y_test))
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

# Rank 0's checkpoint is everybody's: no two ranks can go on from different steps.
first, state = 1, None
if rank == 0 and (path := digits.newest("step-*.pt")):
    state = torch.load(path, map_location="cpu")
    digits.resumed(path, state["step"])
if world > 1:
    box = [state]
    dist.broadcast_object_list(box)
    state = box[0]
if state is not None:
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"] + 1
trained = DistributedDataParallel(model) if world > 1 else model


def accuracy():
    with torch.no_grad():
        return (model(x_test).argmax(1) == y_test).float().mean().item()


def write(path):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, path)


writer = SummaryWriter(digits.summaries())
seen = []
for step in range(first, options.epochs + 1):
    order = digits.order(step, len(x_train))
    seen = []
    for start in range(0, len(order), digits.BATCH):
        batch = order[start : start + digits.BATCH]
        mine = batch[rank::world]
        seen.extend(mine)
        losses = functional.cross_entropy(trained(x_train[mine]), y_train[mine], reduction="sum")
        # Ranks' gradients are averaged, so scale each to its share of the whole batch.
        loss = losses * world / len(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        digits.save(f"step-{step:06d}.pt", write)
    writer.add_scalar("loss", loss.item(), step)
    writer.add_scalar("accuracy", accuracy(), step)
    writer.flush()
    digits.stepped(step, loss.item(), accuracy(), options.sleep)

digits.finished(accuracy(), [p.detach().numpy() for p in model.parameters()])
digits.saw(rank, world, seen)
if world > 1:
    dist.destroy_process_group()
