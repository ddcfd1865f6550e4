from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pytest

from howdah.storage.outputs import Copied, OutputSpec, copy, main


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for name, text in {
        "results/a.csv": "1,2",
        "results/deep/b.csv": "3",
        "results/.hidden": "h",
        "model.onnx": "weights",
        "other/c": "not asked for",
    }.items():
        path = tmp_path / "task" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "task"


def spec(base: Path, store: Any, *folders: str) -> OutputSpec:
    return OutputSpec(base=str(base), folders=folders or ("results",), store=str(store))


def test_folders_and_files_are_copied_under_their_own_names(base: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert copy(spec(base, store, "results", "model.onnx", "./results/")) == Copied(
        files=4, bytes=12
    )
    assert (store / "results" / "deep" / "b.csv").read_text() == "3"
    assert (store / "model.onnx").read_text() == "weights"
    assert not (store / "other").exists()


def test_a_url_is_a_store_too(base: Path) -> None:
    assert copy(spec(base, "memory://outputs/worker-0", "results")).files == 3
    memory = fsspec.filesystem("memory")
    assert memory.cat_file("/outputs/worker-0/results/a.csv") == b"1,2"


def test_a_folder_that_was_never_made_is_no_problem(base: Path, tmp_path: Path) -> None:
    assert copy(spec(base, tmp_path / "store", "plots")) == Copied(files=0, bytes=0)


def test_a_later_attempts_files_replace_the_earlier_ones(base: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    copy(spec(base, store))
    (base / "results" / "a.csv").write_text("new")
    (base / "results" / "deep" / "b.csv").unlink()
    copy(spec(base, store))
    assert (store / "results" / "a.csv").read_text() == "new"
    assert (store / "results" / "deep" / "b.csv").read_text() == "3"


def test_one_file_that_cannot_be_copied_does_not_cost_the_others(
    base: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    (store / "results" / "a.csv").mkdir(parents=True)  # in the way
    result = copy(spec(base, store))
    assert result.files == 2
    (problem,) = result.problems
    assert problem.startswith("results/a.csv: ")
    assert not list((store / "results").glob("*.tmp"))


@pytest.mark.parametrize("folder", ["/etc", "..", "../x", "a/../../x"])
def test_nothing_outside_the_working_folder_is_copied(
    folder: str, base: Path, tmp_path: Path
) -> None:
    with pytest.raises(OSError, match="not inside the task's working folder"):
        copy(spec(base, tmp_path / "store", folder))


def test_as_a_process_it_prints_its_result(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.json"
    path.write_bytes(msgspec.json.encode(spec(base, tmp_path / "store")))
    assert main([str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == {"files": 3, "bytes": 5, "problems": []}
    path.write_bytes(msgspec.json.encode(spec(base, "nosuch://store")))
    assert main([str(path)]) == 1
    assert "nosuch" in json.loads(capsys.readouterr().out)["problem"]
    assert main([]) == 2
