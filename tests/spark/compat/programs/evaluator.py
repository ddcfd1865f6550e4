# ruff: noqa: PTH103, PTH104, PTH208, SIM115
"""A chief that trains and an evaluator that scores each of its checkpoints: InputMode.TENSORFLOW."""

import argparse
import os

from pyspark import SparkContext
from tensorflowonspark import TFCluster


def main_fun(args, ctx):
    import time

    import numpy as np
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    mixed = np.random.RandomState(4).permutation(len(y))
    x, y = x[mixed], y[mixed]
    x = np.hstack([x / 16.0, np.ones((len(x), 1))])

    if ctx.job_name == "evaluator":
        seen = set()
        while True:
            for name in sorted(set(os.listdir(args.model_dir)) - seen):
                if name.endswith(".npy"):
                    seen.add(name)
                    weights = np.load(os.path.join(args.model_dir, name))
                    accuracy = float(((x[1440:] @ weights).argmax(1) == y[1440:]).mean())
                    with open(os.path.join(args.model_dir, "eval"), "a") as file:
                        file.write(f"{name} {accuracy:.4f}\n")
            time.sleep(0.1)

    weights = np.zeros((65, 10))
    for step in range(1, args.train_steps + 1):
        scores = np.exp(x[:1440] @ weights)
        scores /= scores.sum(1, keepdims=True)
        scores[np.arange(1440), y[:1440]] -= 1
        weights -= 2.0 * x[:1440].T @ scores / 1440
        if step % 50 == 0:
            temporary = os.path.join(args.model_dir, f"tmp-{step}")
            with open(temporary, "wb") as file:
                np.save(file, weights)
            os.rename(temporary, os.path.join(args.model_dir, f"model-{step:05d}.npy"))
    # The last checkpoint is evaluated before the cluster ends.
    last = f"model-{args.train_steps:05d}"
    results = os.path.join(args.model_dir, "eval")
    while not (os.path.exists(results) and last in open(results).read()):
        time.sleep(0.1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cluster_size", type=int, default=2)
    parser.add_argument("--train_steps", type=int, default=200)
    parser.add_argument("--model_dir")
    args = parser.parse_args()
    os.makedirs(args.model_dir)

    sc = SparkContext.getOrCreate()
    cluster = TFCluster.run(
        sc,
        main_fun,
        args,
        args.cluster_size,
        num_ps=0,
        input_mode=TFCluster.InputMode.TENSORFLOW,
        master_node="chief",
        eval_node=True,
    )
    cluster.shutdown(timeout=120)
    print("accuracy " + open(args.model_dir + "/eval").read().split()[-1])
