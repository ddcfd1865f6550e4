from __future__ import annotations

import errno
import json
import os
import runpy
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import pytest

from howdah.storage.checkpoints.versions import CheckpointProblem
from howdah.storage.errors import Outdated
from howdah.storage.helper import main
from howdah.storage.outputs import Copied, OutputSpec, copy
from howdah.storage.stores.destinations import open_destination


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


def change(spec: OutputSpec, **fields: Any) -> OutputSpec:
    return msgspec.structs.replace(spec, **fields)


def content(place: str, name: str) -> str:
    return open_destination(place).read(name, 0, 1000).decode()


def test_folders_and_files_are_copied_under_their_own_names(base: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert copy(spec(base, store, "results", "model.onnx", "./results/")) == Copied(
        files=4, kept=0, bytes=12
    )
    assert (store / "results" / "deep" / "b.csv").read_text() == "3"
    assert (store / "model.onnx").read_text() == "weights"
    assert not (store / "other").exists()


def test_a_url_is_a_store_too(base: Path) -> None:
    assert copy(spec(base, "memory://outputs/worker-0", "results")).files == 3
    memory = fsspec.filesystem("memory")
    assert memory.cat_file("/outputs/worker-0/results/a.csv") == b"1,2"


def test_a_folder_that_was_never_made_is_no_problem(base: Path, tmp_path: Path) -> None:
    assert copy(spec(base, tmp_path / "store", "plots")) == Copied(files=0, kept=0, bytes=0)


def test_a_later_attempts_files_replace_the_earlier_ones(base: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    copy(spec(base, store))
    (base / "results" / "a.csv").write_text("new")
    (base / "results" / "deep" / "b.csv").unlink()
    copy(spec(base, store))
    assert (store / "results" / "a.csv").read_text() == "new"
    assert (store / "results" / "deep" / "b.csv").read_text() == "3"


def test_an_older_attempt_never_replaces_what_a_newer_one_has_copied(
    base: Path, tmp_path: Path, place: str
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        shutil.copytree(base, folder)
        (folder / "results/a.csv").write_text(folder.name)
    first, second = (change(spec(each, place), attempt=n) for n, each in ((1, old), (2, new)))
    assert copy(first).files == 3
    assert copy(second).files == 3
    with pytest.raises(Outdated, match="later attempt"):
        copy(first)
    assert content(place, "results/a.csv") == "new"


def test_an_attempt_that_was_frozen_while_it_copied_replaces_nothing_more(
    base: Path, tmp_path: Path, place: str
) -> None:
    frozen = open_destination(place, attempt=1)
    frozen.put(base / "results/a.csv", "results/a.csv")
    later = tmp_path / "later"
    later.write_text("later")
    open_destination(place, attempt=2).put(later, "results/a.csv")
    with pytest.raises(Outdated):
        frozen.put(base / "results/a.csv", "results/a.csv")
    assert content(place, "results/a.csv") == "later"


def test_an_attempt_is_cut_off_though_its_folder_in_the_store_cannot_be_removed(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when it makes a file there just then, or where NFS keeps one that it has open."""
    store = str(tmp_path / "store")
    frozen = open_destination(store, attempt=1)
    later = tmp_path / "later"
    later.write_text("later")

    def not_empty(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", not_empty)
        open_destination(store, attempt=2).put(later, "results/a.csv")
    with pytest.raises(Outdated):
        frozen.put(base / "results/a.csv", "results/a.csv")
    assert content(store, "results/a.csv") == "later"
    open_destination(store, attempt=3)
    assert {path.name for path in Path(store).iterdir()} == {".attempt-3", "results"}


def test_a_store_that_comes_back_gets_what_it_did_not_take(base: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.write_text("a file where the store should be")
    told: list[CheckpointProblem] = []

    def heard(problem: CheckpointProblem) -> None:
        told.append(problem)
        store.unlink()

    assert copy(change(spec(base, store), limit_s=30.0), heard) == Copied(files=3, kept=0, bytes=5)
    (problem,) = told
    assert problem.transient
    assert f"results: 3 of 3 files not copied to {store}" in problem.problem


def test_a_store_that_does_not_come_back_in_time_is_said(base: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.write_text("in the way")
    result = copy(change(spec(base, store), limit_s=0.3))
    assert result.files == 0
    assert "not copied to" in result.problems[0]


@pytest.mark.nightly
def test_all_are_listed_while_others_come_and_an_older_attempts_are_removed(
    base: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    copy(spec(base, store))
    stop = threading.Event()

    def write() -> None:
        attempt = 1
        while not stop.is_set():
            writer = open_destination(str(store), attempt=attempt)
            for number in range(20):
                writer.put(base / "model.onnx", f"more/{number}")
            attempt += 1

    with ThreadPoolExecutor() as pool:
        writing = pool.submit(write)
        try:
            for _ in range(500):
                assert {"results/a.csv", "results/deep/b.csv"} <= open_destination(
                    str(store)
                ).files().keys()
        finally:
            stop.set()
        writing.result()


def test_one_file_that_cannot_be_copied_does_not_cost_the_others(
    base: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    (store / "results" / "a.csv").mkdir(parents=True)  # in the way
    result = copy(spec(base, store))
    assert result.files == 2
    (problem,) = result.problems
    assert problem.startswith(f"results: 1 of 3 files not copied to {store}: results/a.csv: ")
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
    assert main(["copy-outputs", str(path)]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "files": 3,
        "kept": 0,
        "bytes": 5,
        "problems": [],
    }
    path.write_bytes(msgspec.json.encode(spec(base, "nosuch://store")))
    assert main(["copy-outputs", str(path)]) == 0
    assert "nosuch" in json.loads(capsys.readouterr().out)["problems"][0]
    path.write_text("{")
    assert main(["copy-outputs", str(path)]) == 1
    assert "problem" in json.loads(capsys.readouterr().out)
    assert main([]) == 2


def test_an_attempt_frozen_just_before_its_file_appears_replaces_nothing(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, later = str(tmp_path / "store"), tmp_path / "later"
    later.write_text("later")
    frozen = open_destination(store, attempt=1)
    copy2 = shutil.copy2

    def copy_and_freeze(source: Path, target: Path) -> None:
        copy2(source, target)
        monkeypatch.setattr(shutil, "copy2", copy2)
        open_destination(store, attempt=2).put(later, "results/a.csv")

    monkeypatch.setattr(shutil, "copy2", copy_and_freeze)
    with pytest.raises(Outdated):
        frozen.put(base / "results/a.csv", "results/a.csv")
    assert content(store, "results/a.csv") == "later"


@pytest.mark.parametrize("name", ["outputs", "folder_sync", "checkpoints.helper"])
def test_agents_that_began_before_an_upgrade_find_their_helpers(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A module that can be run and does nothing would be taken for work that is done."""
    monkeypatch.setattr(sys, "argv", [name])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"howdah.storage.{name}", run_name="__main__")
    assert ended.value.code == 2
    assert "usage: python -m howdah.storage.helper" in capsys.readouterr().err
