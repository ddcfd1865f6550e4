"""``howdah score``: files in, files with answers out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from howdah.cli.main import main
from howdah.client.errors import ExitCode
from howdah.spark.tfrecord import read_tfrecords, write_tfrecords
from tests.spark.versions import environment

PROGRAM = """
import json

def make(path):
    factor = json.load(open(path))["factor"]
    return lambda batch: {"y": batch["x"] * factor, "size": batch["x"].astype("int32") * 0 + len(batch["x"])}

def broken(path):
    def predict(batch):
        raise ArithmeticError("no answer today")
    return predict

def module():
    raise AssertionError
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a model and the module that loads it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "scoring_program.py").write_text(PROGRAM)
    (tmp_path / "model.json").write_text('{"factor": 3.0}')
    return tmp_path


@pytest.fixture
def parquet(spark: Any, folder: Path) -> str:
    place = str(folder / "rows.parquet")
    frame = spark.createDataFrame([(i, float(i)) for i in range(20)], "id long, x double")
    frame.coalesce(2).write.parquet(place)
    return place


MODEL = ("--model", "model.json", "--predict", "scoring_program:make")


def test_parquet_becomes_json_with_all_columns(
    spark: Any, folder: Path, parquet: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "score",
        *MODEL,
        "--input",
        parquet,
        "--mapping",
        "x=x",
        "--output-mapping",
        "y=answer",
    ]
    words += ["--output", str(folder / "out"), "--output-format", "json"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rows"] == 20
    assert told["columns"] == {"id": "bigint", "x": "double", "answer": "double"}
    rows = [
        json.loads(line)
        for file in (folder / "out").glob("*.json")
        for line in file.read_text().splitlines()
    ]
    assert sorted(row["id"] for row in rows) == list(range(20))
    assert all(row["answer"] == 3 * row["x"] for row in rows)
    # there already
    assert main(words) == ExitCode.BAD_INPUT
    assert "already exists" in capsys.readouterr().err
    assert main([*words, "--mode", "overwrite", "--keep", "id", "--batch-size", "7"]) == 0
    assert "Scored 20 rows" in capsys.readouterr().out
    assert spark.read.json(str(folder / "out")).columns == ["answer", "id"]


@pytest.mark.nightly
def test_csv_becomes_tfrecords_which_are_scored_again(spark: Any, folder: Path) -> None:
    (folder / "rows.csv").write_text("name,x\na,1.5\nb,2.5\n")
    first = str(folder / "first")
    words = ["score", *MODEL, "--mapping", '{"x": "x"}', "--output-mapping", "y=y"]
    words += ["--input", str(folder / "rows.csv"), "--format", "csv"]
    assert main([*words, "--output", first, "--output-format", "tfrecord"]) == 0
    back = read_tfrecords(spark, first, "name string, x double, y double").collect()
    assert sorted(map(tuple, back)) == [("a", 1.5, 4.5), ("b", 2.5, 7.5)]
    second = str(folder / "second")
    words = ["score", *MODEL, "--mapping", "y=x", "--output-mapping", "y=z", "--keep", "name"]
    words += ["--input", first, "--format", "tfrecord", "--schema", "struct<name:string,y:float>"]
    assert main([*words, "--output-schema", "z float", "--output", second]) == 0
    assert sorted(map(tuple, spark.read.parquet(second).collect())) == [("a", 13.5), ("b", 22.5)]


@pytest.mark.nightly
def test_options_of_tfrecord_files_count(
    spark: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = spark.createDataFrame([(1.0,), (2.0,)], "x float")
    write_tfrecords(frame.coalesce(1), str(folder / "in"))
    [file] = (folder / "in").glob("part-*")
    file.write_bytes(file.read_bytes()[:-1] + b"?")  # of a checksum
    words = ["score", *MODEL, "--input", str(folder / "in"), "--format", "tfrecord", "--keep-none"]
    words += ["--output-mapping", "y=y", "--output", str(folder / "out")]
    assert main(words) == ExitCode.BAD_INPUT
    assert "checksum" in capsys.readouterr().err
    assert main([*words, "--option", "verify=false"]) == 0
    assert sorted(row["y"] for row in spark.read.parquet(str(folder / "out")).collect()) == [3, 6]
    assert main([*words, "--option", "verified=false"]) == ExitCode.BAD_INPUT
    assert "unknown option 'verified' of tfrecord" in capsys.readouterr().err


def test_what_is_wrong_is_said_in_words(
    spark: Any, folder: Path, parquet: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--output", str(folder / "out")]
    (folder / "refuses_to_load.py").write_text('raise RuntimeError("no licence")')
    cases: list[tuple[list[str], ExitCode, str]] = [
        (["--input", parquet], ExitCode.BAD_INPUT, "which model? Give --model PATH"),
        (["--input", "nowhere", *MODEL], ExitCode.BAD_INPUT, "nowhere"),
        (
            ["--input", parquet, *MODEL, "--mapping", "z=x"],
            ExitCode.BAD_INPUT,
            "the rows have no column 'z'",
        ),
        (
            ["--input", parquet, *MODEL, "--mapping", "z"],
            ExitCode.BAD_INPUT,
            "'z' is not NAME=NAME",
        ),
        (
            ["--input", parquet, "--predict", "scoring_program:nothing"],
            ExitCode.BAD_INPUT,
            "'scoring_program:nothing' cannot be imported",
        ),
        (
            ["--input", parquet, "--predict", "refuses_to_load:make"],
            ExitCode.BAD_INPUT,
            "'refuses_to_load:make' cannot be imported: RuntimeError: no licence",
        ),
        (
            ["--input", parquet, "--model", "model.json", "--predict", "scoring_program:broken"],
            ExitCode.FAILED,
            "no answer today",
        ),
    ]
    for words, code, text in cases:
        assert main(["score", *words, *out]) == code
        told = capsys.readouterr().err
        assert text in told and "Traceback" not in told


@pytest.mark.nightly
def test_it_starts_spark_where_there_is_none(folder: Path, parquet: str) -> None:
    words = ["score", *MODEL, "--input", parquet, "--output", "out", "--master", "local[1]"]
    words += ["--mapping", "x=x", "--output-mapping", "y=y"]
    words += ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.memory=512m"]
    done = subprocess.run(
        [sys.executable, "-m", "howdah", *words],
        env={**os.environ, **environment()},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert "Scored 20 rows" in done.stdout
    assert "  y  double" in done.stdout
