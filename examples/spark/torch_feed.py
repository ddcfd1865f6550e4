"""PyTorch, fed by Spark: two ranks train one model with DistributedDataParallel.

    python examples/spark/torch_feed.py

All ranks have the same number of batches in each epoch (``align="drop"``), so none waits in vain for
another's gradients, however Spark's partitions fell.
"""

import argparse

import digits_frames

from howdah.spark import Cluster


def train(args, ctx):
    import torch
    from torch import nn

    torch.manual_seed(1)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    for number, epoch in enumerate(ctx.feed("train"), 1):
        for batch in epoch.batches(args["batch"], drop_last=True):
            images = torch.from_numpy(batch["image"].copy())
            labels = torch.from_numpy(batch["label"].copy())
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        ctx.report(step=number, loss=float(loss))
    torch.distributed.destroy_process_group()
    return {name: value.numpy() for name, value in network.state_dict().items()}


def main():
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    spark = digits_frames.session("torch-feed")
    rows, _ = digits_frames.frames(spark)
    with Cluster.start(
        spark, train, {"batch": 30}, workers=options.workers, framework="pytorch"
    ) as cluster:
        report = cluster.train(rows, epochs=options.epochs, cache=True, shuffle=1)
        print(f"fed {report.rows} rows, dropped {report.dropped}")
        states = cluster.results()
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    network.load_state_dict({name: torch.from_numpy(value) for name, value in states[0].items()})
    _, (images, labels) = digits_frames.arrays()
    guesses = network(torch.from_numpy(images)).argmax(1).numpy()
    print(f"final accuracy {float((guesses == labels).mean()):.4f}")
    spark.stop()


if __name__ == "__main__":
    main()
