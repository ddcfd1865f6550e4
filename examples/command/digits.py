"""What the examples share: the data, and how a run tells what it did.

A copy lies in every example's folder, because a job ships only its own source folder. Nothing here
is needed to run under Howdah; without it everything works too, and folders are local ones.
"""

import argparse
import hashlib
import json
import os
import time
from pathlib import Path

import numpy as np

try:
    from howdah import task  # optional: lets `howdah status` and the job page show the numbers
except ImportError:
    task = None

BATCH = 60
"""Samples of one update, over all ranks: 24 batches an epoch, divisible by 2, 3, 4, 5 and 6."""


def options(epochs=10):
    """The command line of every example."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--sleep", type=float, default=0.0, help="seconds to wait after each epoch")
    return parser.parse_args()


def load(test=357):
    """scikit-learn's digits, 8x8 images of 10 classes: 1440 to train with, the rest to test with."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    mixed = np.random.RandomState(4).permutation(len(y))
    x, y = (x[mixed] / 16.0).astype("float32"), y[mixed].astype("int64")
    return (x[test:], y[test:]), (x[:test], y[:test])


def order(epoch, count):
    """The order samples are seen in: a matter of the epoch alone, so a resumed run sees the same."""
    return np.random.RandomState(epoch).permutation(count)


def folder(variable, default):
    """A folder Howdah names, or a local one."""
    path = Path(os.environ.get(variable) or default)
    path.mkdir(parents=True, exist_ok=True)
    return path


def checkpoints():
    return folder("HOWDAH_CHECKPOINT_DIR", "checkpoints")


def summaries():
    """Where this task writes what TensorBoard shows; may be a URL."""
    role, index = os.environ.get("HOWDAH_ROLE", "local"), os.environ.get("HOWDAH_INDEX", "0")
    return os.path.join(os.environ.get("HOWDAH_TENSORBOARD_DIR", "tensorboard"), f"{role}-{index}")


def save(name, write, keep=2):
    """Write a checkpoint so that it is there completely or not at all, and drop old ones.

    ``write`` gets the path of a temporary file (named ``*.tmp``) to fill.
    """
    target = checkpoints() / name
    temporary = target.with_name(target.name + ".tmp")
    write(temporary)
    temporary.replace(target)
    for old in sorted(target.parent.glob(f"*{target.suffix}"))[:-keep]:
        old.unlink()


def newest(pattern):
    """The newest checkpoint, or None."""
    found = sorted(checkpoints().glob(pattern))
    return found[-1] if found else None


def resumed(path, step):
    """Say what the run goes on from."""
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    print(f"resumed from {path.name} step {step} checksum {checksum}", flush=True)


def stepped(step, loss, accuracy, sleep=0.0):
    """Say how far the run is."""
    print(f"step {step} loss {loss:.4f} accuracy {accuracy:.4f}", flush=True)
    if task is not None:
        task.report(step=step, loss=float(loss), accuracy=float(accuracy))
    time.sleep(sleep)


def finished(accuracy, weights=None):
    """Say how it ended. Ranks that trained together end with the same weights."""
    print(f"final accuracy {accuracy:.4f}", flush=True)
    if weights is not None:
        digest = hashlib.sha256()
        for part in weights:  # arrays, or bytes of a saved model
            digest.update(part if isinstance(part, bytes) else np.ascontiguousarray(part))
        same = "the same on ranks that train together"
        print(f"checksum of the weights {digest.hexdigest()[:12]} ({same})", flush=True)


def saw(rank, world, ids):
    """Say how many samples this rank trained on in the last epoch, and write down which."""
    ids = sorted(int(i) for i in ids)
    if not ids:  # nothing was left to do
        return
    print(f"rank {rank} of {world} trained on {len(ids)} samples in the last epoch", flush=True)
    place = os.environ.get("HOWDAH_SHARED_DIR", "")
    if not place or "://" in place:  # on a cluster it is a URL, which open() can't write to
        place = os.environ.get("HOWDAH_OUTPUT_DIR")
    if place:
        path = Path(place) / f"samples-{rank}.json"
        path.write_text(json.dumps({"rank": rank, "world": world, "ids": ids}))
