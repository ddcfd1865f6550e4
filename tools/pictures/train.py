"""Logistic regression by gradient descent on points drawn at random: the program of the pictures. It
trains in no time, so it waits after each epoch; standard library only."""

import argparse
import json
import math
import os
import random
import time
from pathlib import Path

from howdah import task

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=12)
parser.add_argument("--rate", type=float, default=0.05)
parser.add_argument("--pause", type=float, default=0.5)
parser.add_argument("--save", type=int, default=1, help="epochs between two checkpoints")
parser.add_argument("--bad-label", type=int, help="the epoch in which rank 1 finds one")
asked = parser.parse_args()
rank = int(os.environ["RANK"])

chance = random.Random(1)
true = [chance.gauss(0, 1) for _ in range(16)]
weights = [0.0] * len(true)
chance.seed(rank)


def draw():
    point = [chance.gauss(0, 1) for _ in true]
    score = sum(a * b for a, b in zip(true, point, strict=True)) + chance.gauss(0, 0.5)
    return point, score > 0


def guess(point):
    return 1 / (1 + math.exp(-sum(a * b for a, b in zip(weights, point, strict=True))))


first = 1
checkpoints = Path(os.environ["HOWDAH_CHECKPOINT_DIR"])
saved = sorted(checkpoints.glob("epoch-*.json"))
if saved:
    weights = json.loads(saved[-1].read_text())
    first = int(saved[-1].stem.partition("-")[2]) + 1
    print(f"going on from {saved[-1].name}", flush=True)
task.joined()

for epoch in range(first, asked.epochs + 1):
    loss = right = 0.0
    for _ in range(2000):
        point, label = draw()
        found = guess(point)
        loss -= math.log(found if label else 1 - found) / 2000
        right += (found > 0.5) == label
        step = asked.rate * (label - found)
        weights = [a + step * b for a, b in zip(weights, point, strict=True)]
    task.report(step=epoch, total=asked.epochs, loss=loss, accuracy=right / 2000)
    print(f"epoch {epoch}: loss {loss:.4f} accuracy {right / 2000:.3f}", flush=True)
    if rank == 0 and epoch % asked.save == 0:
        file = checkpoints / f"epoch-{epoch:03d}.json"
        file.with_suffix(".tmp").write_text(json.dumps(weights))
        file.with_suffix(".tmp").rename(file)
    if rank == 1 and epoch == asked.bad_label:
        raise ValueError("label 11 is not in 0..9")
    time.sleep(asked.pause)
