"""Scoring by saved models of TensorFlow, Keras and PyTorch."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from howdah.spark.errors import ScoringError
from howdah.spark.scoring import Keras, SavedModel, Torch, predict_udf, score, worker
from howdah.spark.scoring.files import FilesAccess, ModelFiles

BEGIN = """
import sys
import numpy as np

folder = sys.argv[1]
weights = np.array([[3.14], [1.618]], "float32")
"""

SAVE_TENSORFLOW = """
import tensorflow as tf, keras


class Linear(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec((None, 2), tf.float32, name="features")])
    def score(self, features):
        return {"sum": features @ weights, "first": features[:, 0]}


module = Linear()
tf.saved_model.save(module, f"{folder}/saved", signatures={"serving_default": module.score})
model = keras.Sequential([keras.Input((2,), name="features"), keras.layers.Dense(1, name="out")])
model.layers[0].set_weights([weights, np.zeros(1, "float32")])
model.save(f"{folder}/model.keras")
model.save(f"{folder}/model.h5")
"""

SAVE_TORCH = """
import torch

net = torch.nn.Linear(2, 1, bias=False)
net.weight.data = torch.tensor(weights.T)
torch.save(net.state_dict(), f"{folder}/state.pt")
torch.jit.script(net).save(f"{folder}/script.pt")
batch = torch.export.Dim("batch")
program = torch.export.export(net, (torch.zeros(3, 2),), dynamic_shapes=({0: batch},))
torch.export.save(program, f"{folder}/exported.pt2")
"""


def test_modules_of_torch_score_batches_as_they_are_saved_and_a_state_dict_wants_its_module(
    tmp_path: Path,
) -> None:
    import torch

    net = factory()
    net.weight.data = torch.tensor([[3.14, 1.618]])
    torch.save(net.state_dict(), tmp_path / "state.pt")
    torch.jit.script(net).save(str(tmp_path / "script.pt"))
    features = pa.array([[float(i), 1.0] for i in range(40)])

    def scored(name: str, how: Any = None) -> list[float]:
        plan = worker.ScoringPlan(
            predictor=pickle.dumps(Torch(str(tmp_path / name), factory=how)),
            files=ModelFiles(FilesAccess.SEEN, str(tmp_path / name)),
            inputs=(("features", "input"),),
            outputs=(("", "y"),),
            batch_size=7,
            schema=pa.schema([("y", pa.float32())]),
        )
        batches = worker.score_batches(plan, iter([pa.record_batch({"features": features})]))
        return [value for batch in batches for value in batch["y"].to_pylist()]

    np.testing.assert_allclose(scored("script.pt"), expected(), rtol=1e-5)
    np.testing.assert_allclose(scored("state.pt", factory), expected(), rtol=1e-5)
    with pytest.raises(ScoringError, match="say what makes the module"):
        scored("state.pt")
    with pytest.raises(ScoringError, match="is neither on the driver's machine nor on"):
        scored("nothing.pt")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One linear function, saved in every way. By a process for each framework: both together end
    in LLVM's refusal to be loaded twice."""
    folder = tmp_path_factory.mktemp("models")
    saving = [
        subprocess.Popen([sys.executable, "-c", BEGIN + program, str(folder)])
        for program in (SAVE_TENSORFLOW, SAVE_TORCH)
    ]
    assert [process.wait(200) for process in saving] == [0, 0]
    return folder


@pytest.fixture(scope="module")
def pairs(spark: Any) -> Any:
    """Doubles, as most tables have them, though the models take floats."""
    frame = spark.range(0, 40, 1, 2)
    return frame.withColumn("features", F.array(F.col("id").cast("double"), F.lit(1.0)))


def expected(rows: int = 40) -> Any:
    return np.arange(rows) * 3.14 + 1.618


def factory() -> Any:
    import torch

    return torch.nn.Linear(2, 1, bias=False)


@pytest.mark.nightly
def test_a_saved_model_scores_by_its_signature(pairs: Any, models: Path) -> None:
    frame = score(pairs, SavedModel(str(models / "saved")))
    types = {field.name: field.dataType.simpleString() for field in frame.schema}
    assert types == {
        "id": "bigint",
        "features": "array<double>",
        "sum": "array<float>",
        "first": "float",
    }
    rows = frame.collect()
    assert [row.id for row in rows] == list(range(40))
    np.testing.assert_allclose([row.sum[0] for row in rows], expected(), rtol=1e-5)
    renamed = score(
        pairs.select("id", F.lit(1.0).alias("one")),
        str(models / "saved"),
        inputs={"id": "features", "one": "features"},
        outputs={"sum": "prediction"},
        schema="prediction double",
    )
    np.testing.assert_allclose([row.prediction for row in renamed.collect()], expected(), rtol=1e-5)
    nothing = score(pairs.where("id < 0"), str(models / "saved"), outputs={"sum": "y"})
    assert nothing.schema["y"].dataType.simpleString() == "array<float>"
    of_columns = predict_udf(pairs.sparkSession, str(models / "saved"), "sum array<float>")
    values = pairs.select(of_columns("features")[0].alias("y")).collect()
    np.testing.assert_allclose([row.y for row in values], expected(), rtol=1e-5)
    with pytest.raises(Exception, match="has no signature 'other'; it has 'serving_default'"):
        score(pairs, SavedModel(str(models / "saved"), signature="other")).collect()
    with pytest.raises(Exception, match="the model takes 'features', not 'x'"):
        score(pairs, str(models / "saved"), inputs={"features": "x"}).collect()


@pytest.mark.nightly
@pytest.mark.parametrize("file", ["model.keras", "model.h5"])
def test_a_keras_file_scores(pairs: Any, models: Path, file: str) -> None:
    frame = score(pairs, Keras(str(models / file)), outputs={"out": "y"}, schema="y float")
    np.testing.assert_allclose([row.y for row in frame.collect()], expected(), rtol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("file", ["script.pt", "exported.pt2", "state.pt"])
def test_a_torch_file_scores(pairs: Any, models: Path, file: str) -> None:
    how = factory if file == "state.pt" else None
    frame = score(
        pairs,
        Torch(str(models / file), factory=how),
        inputs={"features": "input"},
        schema="prediction float",
        batch_size=7,
    )
    np.testing.assert_allclose([row.prediction for row in frame.collect()], expected(), rtol=1e-5)
