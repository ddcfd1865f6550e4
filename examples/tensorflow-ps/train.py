"""ParameterServerStrategy: a chief hands out steps, workers compute, a parameter server holds the weights.

All roles run this file; TF_CONFIG says which one it is. Without it this trains alone.
"""

import json
import os
import signal
import sys
import threading

import digits
import numpy as np
import tensorflow as tf

options = digits.options()
task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {"type": "alone", "index": 0})
# The chief itself writes and reads checkpoints. By default the parameter servers would, each its own
# part, into a folder of that name on its own machine.
HERE = tf.train.CheckpointOptions(
    experimental_io_device="/job:chief" if task["type"] == "chief" else "/job:localhost"
)


def initial():
    generator = np.random.RandomState(1)
    return [
        generator.normal(0, 0.1, (64, 64)).astype("float32"),
        np.zeros(64, "float32"),
        generator.normal(0, 0.1, (64, 10)).astype("float32"),
        np.zeros(10, "float32"),
    ]


def logits(weights, x):
    return tf.nn.relu(x @ weights[0] + weights[1]) @ weights[2] + weights[3]


def accuracy(weights):
    x, y = digits.load()[1]
    return float((logits([w.numpy() for w in weights], x).numpy().argmax(1) == y).mean())


def serve():
    """A worker or parameter server: it serves until it is ended."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=task["type"], task_index=task["index"], protocol="grpc"
    )
    print(f"serving at {server.target}", flush=True)
    server.join()


def followed():
    """Where the chief's checkpoints can be followed: a folder all tasks see.

    None if TensorFlow can't write there: for ``hdfs://`` it needs tensorflow-io and libhdfs.
    """
    place = os.path.join(os.environ.get("HOWDAH_SHARED_DIR", "."), "followed")
    try:
        tf.io.gfile.makedirs(place)
    except tf.errors.OpError as error:
        print(f"no checkpoints for the evaluator: {error.message}", flush=True)
        return None
    return place


def evaluate():
    """Evaluate every checkpoint of the chief until told to end, and then the last one."""
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    weights = [tf.Variable(value) for value in initial()]
    step = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(weights=weights, step=step)
    writer = tf.summary.create_file_writer(digits.summaries())
    place = followed()
    if place is None:
        ending.wait()
        return
    done, last = None, False
    while not last:
        last = ending.wait(0.3)
        newest = tf.train.latest_checkpoint(place)
        if newest in (None, done):
            continue
        try:
            checkpoint.restore(newest).expect_partial()
        except (tf.errors.NotFoundError, tf.errors.DataLossError):
            continue  # the chief has just dropped it for a newer one
        done, score = newest, accuracy(weights)
        with writer.as_default():
            tf.summary.scalar("accuracy", score, step=int(step))
        writer.flush()
        print(f"evaluated step {int(step)} accuracy {score:.4f}", flush=True)
        if int(step) >= options.epochs:
            break


def train():
    if task["type"] == "alone":
        strategy, coordinator = tf.distribute.get_strategy(), None
    else:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    (x_train, y_train), _ = digits.load()
    with strategy.scope():
        weights = [tf.Variable(value) for value in initial()]
    step = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(weights=weights, step=step)
    saved = tf.train.CheckpointManager(checkpoint, str(digits.checkpoints()), max_to_keep=2)
    place = followed()
    shown = place and tf.train.CheckpointManager(checkpoint, place, max_to_keep=3)
    if indexes := list(digits.checkpoints().glob("ckpt-*.index")):
        latest = max(indexes, key=lambda index: int(index.stem.split("-")[1])).with_suffix("")
        checkpoint.restore(str(latest), options=HERE).assert_consumed()
        digits.resumed(max(latest.parent.glob(latest.name + ".data-*")), int(step))

    @tf.function(
        autograph=False,  # there is no Python control flow to convert
        input_signature=[
            tf.TensorSpec([None, 64]),
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([]),
        ],
    )
    def update(x, y, rate):
        """Run by one worker: move the shared weights, return the samples' mean loss."""
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits(weights, x))
            loss = tf.reduce_mean(losses)
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(rate * gradient)
        return loss

    writer = tf.summary.create_file_writer(digits.summaries())
    seen = []
    while int(step) < options.epochs:
        number = int(step) + 1
        order = digits.order(number, len(x_train))
        rate = tf.constant(0.3 / (1 + 0.2 * (number - 1)))
        seen, losses = [], []
        for start in range(0, len(order), 30):
            batch = order[start : start + 30]
            seen.extend(batch)
            arguments = (tf.constant(x_train[batch]), tf.constant(y_train[batch]), rate)
            if coordinator is None:
                losses.append(update(*arguments))
            else:
                losses.append(coordinator.schedule(update, args=arguments))
        if coordinator is not None:
            coordinator.join()
            losses = [value.fetch() for value in losses]
        step.assign(number)
        saved.save(checkpoint_number=number, options=HERE)
        if shown:
            shown.save(checkpoint_number=number, options=HERE)
        loss, score = float(np.mean(losses)), accuracy(weights)
        with writer.as_default():
            tf.summary.scalar("loss", loss, step=number)
            tf.summary.scalar("accuracy", score, step=number)
        writer.flush()
        digits.stepped(number, loss, score, options.sleep)
    digits.finished(accuracy(weights), [w.numpy() for w in weights])
    # The chief alone chooses the samples; which worker gets them is the coordinator's business.
    digits.saw(0, 1, seen)


if task["type"] in ("worker", "ps"):
    serve()
elif task["type"] == "evaluator":
    evaluate()
else:
    train()
    sys.stdout.flush()
    # The coordinator's own end would wait for a worker that is just away, and all is done.
    os._exit(0)
