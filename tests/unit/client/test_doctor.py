"""The doctor names what is wrong with a machine and what to do, and survives its own looks."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from howdah.backends.findings import fine
from howdah.backends.gpus import Device, GpuError
from howdah.client import doctor
from howdah.client.doctor import DoctorFinding, Health
from howdah.client.errors import Refused
from howdah.client.removal import remove
from howdah.storage.jobdir import base_folder
from tests.unit.client.coordinators import FINAL, job_directory


def examine(**kwargs: str) -> dict[str, DoctorFinding]:
    return {finding.what: finding for finding in doctor.examine(**kwargs)}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_sound_machine_has_no_problems(home: Path) -> None:
    found = examine()
    assert not [f for f in found.values() if f.health is Health.PROBLEM]
    assert not home.exists(), "nothing is changed"


def test_a_look_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[Device]:
        raise ZeroDivisionError("in the driver")

    monkeypatch.setattr(doctor, "nvml_devices", broken)
    found = examine()
    assert found["gpus"].text == "could not be looked at: ZeroDivisionError: in the driver"
    assert "packages" in found, "the other looks go on"


def test_a_folder_that_cannot_be_made_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "file"))
    found = examine()["job directories"]
    assert found.health is Health.PROBLEM
    assert found.hint == "set HOWDAH_HOME to a folder of your own"


def test_a_store_that_is_no_folder_is_a_problem() -> None:
    assert examine(store="s3://bucket/x")["job directories"].health is Health.PROBLEM


def test_gpus_are_named_and_hidden_ones_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(uuid="GPU-1", index="0", name="H200", memory_mb=143 * 1024, busy=True)
    monkeypatch.setattr(doctor, "nvml_devices", lambda: [device])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert examine()["GPUs"].text == "H200, 143 GiB, GPU-1, in use by some program"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert examine()["GPUs"].text == "none; CUDA_VISIBLE_DEVICES hides 1"


def test_a_gpu_that_cannot_be_used_is_a_warning_and_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sound = Device(uuid="GPU-1", index="1", name="NVIDIA GB10")
    lost = Device(uuid="", index="0", problem="GPU is lost")
    monkeypatch.setattr(doctor, "nvml_devices", lambda: [lost, sound])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = examine()
    assert found["GPUs"].text == "NVIDIA GB10, GPU-1"
    assert found["GPU 0"].health is Health.WARNING
    assert found["GPU 0"].text == "can't be used: GPU is lost"


def test_stacks_are_tried_of_an_interpreter_that_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """py-spy cannot look into one before that, as on a slow file system; that is no lack of rights."""
    begun = tmp_path / "begun"
    scripts = {
        "python": f'sleep 0.5\ntouch {begun}\nexec {sys.executable} "$@"\n',
        "py-spy": f"test -e {begun}\n",
    }
    for name, script in scripts.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert examine()["py-spy"].health is Health.FINE


def test_uv_is_looked_for_where_environments_would_be_built_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = examine()["uv"]
    assert missing.health is Health.WARNING and "[environment]" in missing.text
    assert missing.hint is not None and "pip install uv" in missing.hint
    (tmp_path / "uv").touch(mode=0o755)
    assert examine()["uv"] == fine("uv", str(tmp_path / "uv"))


def test_a_driver_that_cannot_be_asked_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses() -> list[Device]:
        raise GpuError("install it with `pip install 'howdah[gpu]'`")

    monkeypatch.setattr(doctor, "nvml_devices", refuses)
    found = examine()["GPUs"]
    assert (found.health, "howdah[gpu]" in found.text) == (Health.WARNING, True)


def test_a_job_that_nobody_runs_is_named() -> None:
    directory = job_directory(base_folder())
    (directory.path / "node.json").write_text('{"pid": 1, "start": 1, "socket": ""}')
    found = examine()[f"job {directory.job_id}"]
    assert "has no coordinator any more" in found.text
    assert f"howdah attach --revive {directory.job_id}" in (found.hint or "")
    assert f"howdah rm {directory.job_id}" in (found.hint or "")


@contextlib.contextmanager
def process_of(job_id: str) -> Iterator[int]:
    """One that carries the job's marker and has no agent."""
    stray = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env={**os.environ, "HOWDAH_CONTAINER": f"{job_id}/c1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert stray.stdout is not None
        stray.stdout.readline()
        yield stray.pid
    finally:
        stray.communicate(b"\n")


def test_processes_of_a_job_that_is_over_are_named() -> None:
    directory = job_directory(base_folder())
    directory.write_final(FINAL)
    with process_of(directory.job_id) as pid:
        found = examine()[f"job {directory.job_id}"]
    assert found.text.startswith("is over, but has processes")
    assert found.hint == f"end them: kill {pid}"


def test_a_lost_job_is_not_removed_while_processes_of_it_run_without_an_agent() -> None:
    directory = job_directory(base_folder())
    (directory.path / "node.json").write_text('{"pid": 1, "start": 1, "socket": ""}')
    with process_of(directory.job_id) as pid, pytest.raises(Refused, match=f"kill {pid}\\."):
        remove(directory)
    remove(directory)


def test_nobody_is_told_to_kill_processes_of_a_job_that_may_be_running_elsewhere() -> None:
    """Of another store, or of a cluster whose node this machine is."""
    with process_of("ghost-20270115-080000-aaaa") as pid:
        found = examine()["job ghost-20270115-080000-aaaa"]
    assert str(pid) in found.text and "is over" not in found.text
    assert found.hint is not None and f"is not in {base_folder()}" in found.hint
    assert f"kill {pid}" not in found.hint
