"""The client of a Dask cluster: it asks the workers for gradients and adds them up.

The scheduler is found by DASK_SCHEDULER_ADDRESS; without it a small cluster starts in this process.
"""

import json
import os

import digits
import numpy as np
from dask.distributed import Client, get_worker
from tensorboardX import SummaryWriter

PARTS = 2
"""Into how many tasks a batch is split."""


def gradients(weights, x, y):
    """Run by a worker: its name, the summed loss and gradients of some samples."""
    hidden = np.maximum(x @ weights[0] + weights[1], 0)
    scores = hidden @ weights[2] + weights[3]
    chances = np.exp(scores - scores.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(chances[rows, y]).sum()
    chances[rows, y] -= 1
    back = (chances @ weights[2].T) * (hidden > 0)
    return (
        str(get_worker().name),
        loss,
        [x.T @ back, back.sum(0), hidden.T @ chances, chances.sum(0)],
    )


def accuracy(weights):
    hidden = np.maximum(x_test @ weights[0] + weights[1], 0)
    return float(((hidden @ weights[2] + weights[3]).argmax(1) == y_test).mean())


def write(path):
    with open(path, "wb") as file:
        np.savez(file, step=step, **{f"a{i}": a for i, a in enumerate((*weights, *momenta))})


if __name__ == "__main__":
    options = digits.options()
    if "DASK_SCHEDULER_ADDRESS" in os.environ:
        client = Client()
        count = len(json.loads(os.environ.get("HOWDAH_CLUSTER", "{}")).get("worker", [1]))
        client.wait_for_workers(count)
    else:
        client = Client(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None)

    (x_train, y_train), (x_test, y_test) = digits.load()
    generator = np.random.RandomState(1)
    weights = [
        generator.normal(0, 0.1, (64, 64)),
        np.zeros(64),
        generator.normal(0, 0.1, (64, 10)),
        np.zeros(10),
    ]
    momenta = [np.zeros_like(w) for w in weights]
    first = 1
    if path := digits.newest("step-*.npz"):
        with np.load(path) as saved:
            arrays = [saved[f"a{i}"] for i in range(8)]
            weights, momenta, first = arrays[:4], arrays[4:], int(saved["step"]) + 1
        digits.resumed(path, first - 1)

    writer = SummaryWriter(digits.summaries())
    seen = {}  # worker → sample ids of the epoch
    for step in range(first, options.epochs + 1):
        order = digits.order(step, len(x_train))
        seen = {}
        for start in range(0, len(order), digits.BATCH):
            batch = order[start : start + digits.BATCH]
            parts = [batch[part::PARTS] for part in range(PARTS)]
            # The samples travel with the task: whichever worker is alive can compute it.
            futures = [
                client.submit(gradients, weights, x_train[part], y_train[part], pure=False)
                for part in parts
            ]
            loss, total = 0.0, [np.zeros_like(w) for w in weights]
            for part, (worker, its_loss, its) in zip(parts, client.gather(futures)):
                seen.setdefault(worker, []).extend(part)
                loss += its_loss / len(batch)
                total = [t + g / len(batch) for t, g in zip(total, its)]
            momenta = [0.9 * m + g for m, g in zip(momenta, total)]
            weights = [w - 0.1 * m for w, m in zip(weights, momenta)]
        digits.save(f"step-{step:06d}.npz", write)
        writer.add_scalar("loss", loss, step)
        writer.add_scalar("accuracy", accuracy(weights), step)
        writer.flush()
        digits.stepped(step, loss, accuracy(weights), options.sleep)

    digits.finished(accuracy(weights), weights)
    for number, worker in enumerate(sorted(seen)):
        digits.saw(number, len(seen), seen[worker])
    client.close()
