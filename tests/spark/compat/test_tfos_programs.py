"""Programs written for TensorFlowOnSpark, run with nothing changed but the import.

They are run as main programs, one after the other, in a session on a Standalone master with two workers
of one core. What several need is written once, for whichever comes first.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
OURS = "howdah.compat.tensorflowonspark"

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(500)]

Run = Callable[..., str]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What programs read and write."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture
def run(standalone_spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a program with these arguments; what it printed."""

    def run(name: str, **arguments: object) -> str:
        text = (PROGRAMS / f"{name}.py").read_text()
        changed = re.sub(r"^( *)from tensorflowonspark\b", rf"\1from {OURS}", text, flags=re.M)
        assert changed != text and "tensorflowonspark" not in changed.replace(OURS, "")
        file = tmp_path / f"{name}.py"
        file.write_text(changed)
        words = [f"--{key}={value}" for key, value in arguments.items()]
        monkeypatch.setattr(sys, "argv", [str(file), *words])
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            runpy.run_path(str(file), run_name="__main__")
        return printed.getvalue()

    return run


def once(run: Run, place: Path, name: str, **arguments: object) -> Path:
    """What a program writes there; beside it, as text, what it printed."""
    printed = place.with_suffix(".txt")
    if not printed.exists():
        shutil.rmtree(place, ignore_errors=True)  # of one that failed half-way
        printed.write_text(run(name, **arguments))
    return place


@pytest.fixture
def digits(run: Run, data: Path) -> Path:
    return once(run, data / "digits", "data_setup", output=data / "digits")


@pytest.fixture
def model(run: Run, data: Path, digits: Path) -> Path:
    place = data / "model"
    return once(run, place, "keras_spark", images_labels=digits / "csv" / "train", export_dir=place)


def accuracy(printed: str) -> float:
    found = re.search(r"accuracy ([\d.]+)", printed)
    assert found, printed
    return float(found[1])


@pytest.mark.tfos("example: data set-up as CSV and TFRecords", "dfutil: round trip")
def test_the_digits_are_written_as_csv_and_tfrecords(digits: Path, standalone_spark: Any) -> None:
    from howdah.compat.tensorflowonspark import dfutil

    assert "loaded 357 of 357 known True" in digits.with_suffix(".txt").read_text()
    again = dfutil.loadTFRecords(standalone_spark.sparkContext, str(digits / "tfr" / "test"))
    row = again.first()
    assert len(row.image) == 64 and 0 <= row.label < 10
    assert dict(again.dtypes)["label"] == "bigint"


@pytest.mark.tfos(
    "example: Keras fed by Spark",
    "compat: export_saved_model, disable_auto_shard, is_gpu_available",
)
def test_keras_is_fed_by_spark_and_exports_its_model(model: Path) -> None:
    assert "nodes chief,worker" in model.with_suffix(".txt").read_text()
    assert (model / "saved_model.pb").is_file()


@pytest.mark.tfos("example: parallel inference")
def test_the_exported_model_scores_files_in_parallel(
    run: Run, data: Path, digits: Path, model: Path
) -> None:
    printed = run(
        "parallel_inference",
        images_labels=digits / "csv" / "test",
        export_dir=model,
        output=data / "scored",
    )
    assert "scored 357" in printed and accuracy(printed) > 0.9


@pytest.mark.tfos("example: Keras that reads its own data")
def test_keras_reads_its_own_data(run: Run, data: Path, digits: Path) -> None:
    printed = run(
        "keras_tensorflow",
        images_labels=digits / "csv" / "train",
        test=digits / "csv" / "test",
        output=data / "accuracy",
    )
    assert accuracy(printed) > 0.9


@pytest.mark.tfos("example: training from TFRecords")
def test_tfrecords_of_spark_are_read_by_tensorflow(run: Run, data: Path, digits: Path) -> None:
    printed = run("keras_tfrecords", images_labels=digits / "tfr" / "train", output=data / "rows")
    assert "read 1440 rows by 2 workers" in printed


@pytest.mark.tfos("example: pipeline", "pipeline: transform keeps columns when asked")
def test_a_pipeline_trains_and_scores(run: Run, data: Path, digits: Path) -> None:
    printed = run(
        "pipeline",
        images_labels=digits / "tfr" / "train",
        test=digits / "tfr" / "test",
        export_dir=data / "pipeline-model",
    )
    assert accuracy(printed) > 0.9


@pytest.mark.tfos("example: training with an evaluator")
def test_an_evaluator_scores_the_chiefs_checkpoints(run: Run, data: Path) -> None:
    assert accuracy(run("evaluator", model_dir=data / "checkpoints")) > 0.85


@pytest.mark.tfos("example: streaming with a parameter server")
def test_a_stream_feeds_a_cluster_with_a_parameter_server(run: Run, data: Path) -> None:
    printed = run("streaming", output=data / "stream")
    assert f"rows 300 total {sum(range(300))}" in printed


@pytest.mark.tfos("example: stop a stream")
def test_a_function_that_has_enough_stops_the_stream(run: Run, data: Path) -> None:
    assert "rows 150" in run("stop_streaming", output=data / "stopped")


@pytest.mark.tfos("example: scoring an RDD")
def test_a_cluster_scores_an_rdd(run: Run, data: Path) -> None:
    printed = run("inference", weights=data / "means.npy", output=data / "answers")
    assert "scored 357" in printed and accuracy(printed) > 0.85
