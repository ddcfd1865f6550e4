"""The stores a job names: tried before it starts, through every command that starts or checks one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from howdah.storage.jobdir import base_folder, list_jobs
from tests.cli.inside import howdah

COMMANDS = (("check",), ("run",), ("run", "--dry-run"), ("submit",))


def job_file(folder: Path, table: str, store: str) -> Path:
    """A job file whose line 5 names the store."""
    path = folder / "job.toml"
    lines = [
        'name = "digits"',
        'command = "true"',
        "",
        f"[{table}]",
        f"store = {json.dumps(store)}",
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("table", ["checkpoint", "outputs"])
def test_a_store_that_cannot_be_written_refuses_the_job_with_its_line(
    tmp_path: Path, table: str
) -> None:
    file = job_file(tmp_path, table, "/proc/nowhere")
    for command in COMMANDS:
        told = howdah(*command, str(file), code=2).told
        assert f'{file}:5: {table}.store: "/proc/nowhere" can\'t be written: ' in told
        assert "no folder can be made in /proc" in told
    (document,) = howdah("check", "--json", str(file), code=2).documents()
    (problem,) = document["problems"]
    assert (problem["key"], problem["line"]) == (f"{table}.store", 5)
    assert problem["value"] == '"/proc/nowhere"'
    assert list_jobs(base_folder()) == []


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    told = howdah("check", str(job_file(tmp_path, "checkpoint", "file/below")), code=2).told
    assert f"{tmp_path}/file is not a folder" in told
    assert (tmp_path / "file").read_text() == "mine"
    told = howdah("check", str(job_file(tmp_path, "outputs", "file/${job.id}")), code=2).told
    assert f"{tmp_path}/file is not a folder" in told


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    told = howdah("check", str(job_file(tmp_path, "outputs", "closed")), code=2).told
    assert "Permission denied" in told


def test_nothing_of_the_trial_is_left(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    howdah("check", str(job_file(tmp_path, "checkpoint", "there")))
    howdah("check", str(job_file(tmp_path, "checkpoint", "not/yet/there")))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.toml", "there"]
    assert list((tmp_path / "there").iterdir()) == []


def test_a_path_on_a_clusters_machines_is_said_not_to_have_been_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOWDAH_BACKEND", "yarn")
    file = str(job_file(tmp_path, "checkpoint", "/proc/nowhere"))
    note = 'checkpoint.store: "/proc/nowhere" was not tried: it is a path on the machines'
    assert note in howdah("check", file).text
    assert note in howdah("run", "--dry-run", file).text
    (document,) = howdah("check", "--json", file).documents()
    assert document["ok"] is True
    assert note in document["notes"][0]


def test_a_store_that_this_machine_cannot_reach_refuses_no_job_of_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(job_file(tmp_path, "checkpoint", "hdfs://127.0.0.1:1/checkpoints"))
    assert "no active NameNode" in howdah("check", "--probe", file, code=2).told
    monkeypatch.setenv("HOWDAH_BACKEND", "yarn")
    assert "could not be tried from this machine: " in howdah("check", "--probe", file).text
