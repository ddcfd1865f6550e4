"""Step 3: fed by Spark. The loop stays; where the rows come from is what changes.

python examples/spark/steps/step3_spark.py
"""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).absolute().parents[1]))
import digits_frames

from howdah.spark import Cluster


def train(args, ctx):
    torch.manual_seed(1)
    torch.distributed.init_process_group("gloo")
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for batch in ctx.feed("train").batches(60 // ctx.world_size):  # instead of reading files
        images, labels = torch.tensor(batch["image"]), torch.tensor(batch["label"])
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.distributed.destroy_process_group()
    return {name: value.numpy() for name, value in network.state_dict().items()}


def main():
    spark = digits_frames.session("step3")
    rows, _ = digits_frames.frames(spark)
    with Cluster.start(spark, train, workers=2, framework="pytorch") as cluster:
        cluster.train(rows, epochs=10, cache=True, shuffle=1)  # instead of a loop over epochs
        state = cluster.results()[0]
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    _, (images, labels) = digits_frames.arrays()
    guesses = model(torch.from_numpy(images)).argmax(1).numpy()
    print(f"final accuracy {float((guesses == labels).mean()):.4f}")
    spark.stop()


if __name__ == "__main__":
    main()
