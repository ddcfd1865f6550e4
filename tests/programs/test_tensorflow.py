"""TensorFlow's strategies over several tasks, as its guides have them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs.programs import succeeds

pytestmark = pytest.mark.nightly

DATA = """
import os

import tensorflow as tf
from sklearn.datasets import load_digits

x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")


def compiled():
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential([tf.keras.Input((64,)), tf.keras.layers.Dense(10)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.Adam(0.02), loss=loss)
    return model


def accuracy(model):
    return (model(x[1400:]).numpy().argmax(1) == y[1400:]).mean()
"""

MULTI_WORKER = """
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

from digits import accuracy, compiled, x, y

with strategy.scope():
    model = compiled()
data = tf.data.Dataset.from_tensor_slices((x[:1400], y[:1400])).repeat().batch(100)
model.fit(data, epochs=5, steps_per_epoch=14, verbose=0)
rank = strategy.cluster_resolver.task_id
print(f"rank {rank} of {strategy.num_replicas_in_sync}: {accuracy(model):.3f}", flush=True)
"""

PARAMETER_SERVER = """
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id,
        protocol="grpc", start=True,
    )
    server.join()

from digits import accuracy, compiled, x, y

strategy = tf.distribute.ParameterServerStrategy(resolver)
with strategy.scope():
    model = compiled()


def data(context):
    found = tf.data.Dataset.from_tensor_slices((x[:1400], y[:1400]))
    return found.shuffle(1400, seed=1).repeat().batch(50)


model.fit(tf.keras.utils.experimental.DatasetCreator(data), epochs=5, steps_per_epoch=28, verbose=0)
print(f"the chief has {accuracy(model):.3f}", flush=True)
"""

# Keras 3 runs `fit` with neither strategy.
ENV = {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "TF_NUM_INTRAOP_THREADS": "1"}


@pytest.mark.program(
    "TensorFlow",
    "tensorflow tf-keras",
    "`python train.py`: `MultiWorkerMirroredStrategy`, `Model.fit`",
    "the same accuracy on both workers, above 0.8",
)
@pytest.mark.timeout(240)
def test_keras_fits_with_multi_worker_mirrored_strategy(tmp_path: Path) -> None:
    run = succeeds(
        tmp_path / "job",
        {"digits.py": DATA, "train.py": MULTI_WORKER},
        framework="tensorflow",
        command="python train.py",
        roles={"worker": {"instances": 2}},
        env=ENV,
        within_s=220,
    )
    found = re.findall(r"rank \d of 2: ([\d.]+)", run.text)
    assert len(found) == 2 and len(set(found)) == 1, run.text
    assert float(found[0]) > 0.8


@pytest.mark.program(
    "TensorFlow",
    "tensorflow tf-keras",
    "`python train.py` in `chief`, `worker` and `ps`: `ParameterServerStrategy`, `Model.fit`",
    "accuracy above 0.8",
)
@pytest.mark.timeout(240)
def test_keras_fits_with_parameter_servers(tmp_path: Path) -> None:
    run = succeeds(
        tmp_path / "job",
        {"digits.py": DATA, "train.py": PARAMETER_SERVER},
        framework="tensorflow",
        command="python train.py",
        roles={"chief": {}, "worker": {"instances": 2}, "ps": {}},
        env=ENV,
        within_s=220,
    )
    found = re.search(r"the chief has ([\d.]+)", run.text)
    assert found is not None and float(found[1]) > 0.8, run.text
