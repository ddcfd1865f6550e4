"""The program reads its own data; Spark gives it slots: foreground mode.

    python examples/spark/foreground.py

Each of two ranks trains on its share of the digits and the ranks average their gradients by
torch.distributed. Nothing is fed.
"""

import argparse

import digits_frames

from howdah.spark import Cluster


def train(args, ctx):
    import numpy as np
    import torch
    from sklearn.datasets import load_digits

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    x, y = load_digits(return_X_y=True)
    mixed = np.random.RandomState(4).permutation(len(y))
    x = torch.tensor(x[mixed] / 16.0, dtype=torch.float32)
    y = torch.tensor(y[mixed])
    mine = slice(357 + ctx.rank, None, ctx.world_size)
    weights = torch.zeros(64, 10, requires_grad=True)
    bias = torch.zeros(10, requires_grad=True)
    for step in range(args["steps"]):
        loss = torch.nn.functional.cross_entropy(x[mine] @ weights + bias, y[mine])
        for value, gradient in zip((weights, bias), torch.autograd.grad(loss, (weights, bias))):
            torch.distributed.all_reduce(gradient)
            value.data -= 2.0 * gradient / ctx.world_size
        if step % 50 == 0:
            ctx.report(step=step, loss=float(loss))
    torch.distributed.destroy_process_group()
    guesses = (x[:357] @ weights + bias).argmax(1)
    return float((guesses == y[:357]).float().mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()
    spark = digits_frames.session("foreground")
    with Cluster.start(
        spark,
        train,
        {"steps": options.steps},
        workers=options.workers,
        framework="pytorch",
        mode="foreground",
    ) as cluster:
        accuracies = cluster.results()
    print(f"final accuracy {accuracies[0]:.4f}")
    spark.stop()


if __name__ == "__main__":
    main()
