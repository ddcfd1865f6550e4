"""Step 2: the same, distributed. Four lines are new; it still reads its own data.

    howdah run -n 2 --framework pytorch -- python examples/spark/steps/step2_distributed.py

or, in a Spark program, `Cluster.start(spark, train, workers=2, framework="pytorch",
mode="foreground")` with `main` as the function.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn


def load():
    x, y = load_digits(return_X_y=True)
    mixed = np.random.RandomState(4).permutation(len(y))
    return torch.tensor(x[mixed] / 16.0, dtype=torch.float32), torch.tensor(y[mixed])


def main(args=None, ctx=None):
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo")  # new
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()  # new
    x, y = load()
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model = nn.parallel.DistributedDataParallel(network)  # new
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for epoch in range(10):
        order = torch.randperm(1440, generator=torch.Generator().manual_seed(epoch)) + 357
        for batch in order[rank::world].split(60 // world):  # a share of them
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.distributed.destroy_process_group()
    accuracy = float((network(x[:357]).argmax(1) == y[:357]).float().mean())
    print(f"final accuracy {accuracy:.4f}")
    return accuracy


if __name__ == "__main__":
    main()
