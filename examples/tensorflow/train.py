"""Synchronous training with MultiWorkerMirroredStrategy and a training loop of its own.

TF_CONFIG says who the others are; without it this trains alone. (`model.fit` is not used: Keras 3
cannot run it with this strategy.)
"""

import json
import os
import tempfile

import digits
import numpy as np
import tensorflow as tf

options = digits.options()
config = json.loads(os.environ.get("TF_CONFIG", "{}"))
task = config.get("task", {"type": "worker", "index": 0})
has_chief = "chief" in config.get("cluster", {})
is_chief = task["type"] == "chief" or (not has_chief and task["index"] == 0)

if config:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
else:
    strategy = tf.distribute.get_strategy()
world = strategy.num_replicas_in_sync
(x_train, y_train), (x_test, y_test) = digits.load()
seen = {}  # replica → sample ids of the epoch


def logits(weights, x):
    return tf.nn.relu(x @ weights[0] + weights[1]) @ weights[2] + weights[3]


def accuracy():
    guesses = logits([w.numpy() for w in weights], x_test).numpy().argmax(1)
    return float((guesses == y_test).mean())


generator = np.random.RandomState(1)
initial = [
    generator.normal(0, 0.1, (64, 64)).astype("float32"),
    np.zeros(64, "float32"),
    generator.normal(0, 0.1, (64, 10)).astype("float32"),
    np.zeros(10, "float32"),
]
with strategy.scope():
    weights = [tf.Variable(value) for value in initial]
    momenta = [tf.Variable(np.zeros_like(value)) for value in initial]
epoch = tf.Variable(0, dtype=tf.int64)

# Saving is collective: every task must call save, and only the chief's copy is wanted.
unwanted = tempfile.TemporaryDirectory()
place = digits.checkpoints() if is_chief else unwanted.name
checkpoint = tf.train.Checkpoint(weights=weights, momenta=momenta, epoch=epoch)
manager = tf.train.CheckpointManager(checkpoint, str(place), max_to_keep=2)
complete = [
    data
    for data in digits.checkpoints().glob("ckpt-*.data-00000-of-00001")
    if data.with_suffix(".index").exists()
]
if complete:
    latest = max(complete, key=lambda data: int(data.stem.split("-")[1]))
    checkpoint.restore(str(latest.with_suffix(""))).assert_consumed()
    digits.resumed(latest, int(epoch))


@tf.function(autograph=False)  # there is no Python control flow to convert
def update(x, y):
    def one(x, y):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits(weights, x))
            loss = tf.reduce_sum(losses) / digits.BATCH
        gradients = tape.gradient(loss, weights)
        gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
        for weight, momentum, gradient in zip(weights, momenta, gradients):
            momentum.assign(0.9 * momentum + gradient)
            weight.assign_sub(0.1 * momentum)
        return loss

    return strategy.reduce("sum", strategy.run(one, (x, y)), axis=None)


def share(values):
    """Each replica's part of a batch, as the strategy wants it."""
    return strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(values[context.replica_id_in_sync_group :: world])
    )


def note(batch):
    """Remember which samples the replicas of this task are given."""

    def remember(context):
        replica = context.replica_id_in_sync_group
        seen.setdefault(replica, []).extend(batch[replica::world])
        return tf.constant(0)

    strategy.experimental_distribute_values_from_function(remember)


writer = tf.summary.create_file_writer(digits.summaries())
while int(epoch) < options.epochs:
    number = int(epoch) + 1
    order = digits.order(number, len(x_train))
    seen.clear()
    for start in range(0, len(order), digits.BATCH):
        batch = order[start : start + digits.BATCH]
        note(batch)
        loss = update(share(x_train[batch]), share(y_train[batch]))
    epoch.assign(number)
    manager.save(checkpoint_number=number)
    with writer.as_default():
        tf.summary.scalar("loss", float(loss), step=number)
        tf.summary.scalar("accuracy", accuracy(), step=number)
    writer.flush()
    digits.stepped(number, float(loss), accuracy(), options.sleep)

digits.finished(accuracy(), [w.numpy() for w in weights])
for replica, ids in seen.items():
    digits.saw(replica, world, ids)
