"""What surrounds a job: the interpreter, stores and folders it names, and the home of jobs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from howdah.storage.jobdir import base_folder, list_jobs
from tests.cli.howdah import newest
from tests.cli.inside import howdah

SAYS_ITSELF = """
command = "python -c 'import sys; print(sys.executable)'; python3 -c 'print(3)'"
[roles.worker]
"""


def test_python_is_the_jobs_interpreter_whatever_its_file_is_called(tmp_path: Path) -> None:
    python = tmp_path / "it's here" / "python-of-mine"
    python.parent.mkdir()
    python.symlink_to(Path(sys.executable).resolve())
    file = tmp_path / "job.toml"
    file.write_text(SAYS_ITSELF + f'[environment]\npython = "{python}"\n')
    shown = howdah("run", str(file)).out
    assert f"worker:0 | {python}" in shown
    assert "worker:0 | 3" in shown


def test_a_job_whose_interpreter_is_missing_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    file = tmp_path / "job.toml"
    before = len(list(list_jobs(base_folder())))
    for python, why in (
        ("/nowhere/bin/python", "/nowhere/bin/python is not there"),
        ("venv/bin/python", "venv/bin/python is not there; a path is absolute or relative to"),
        ("python9.99", "there is no program 'python9.99' on PATH"),
        (".", "on PATH"),
    ):
        file.write_text(SAYS_ITSELF + f'[environment]\npython = "{python}"\n')
        refused = howdah("run", str(file), code=3).told
        assert "environment.python" in refused and why in refused
    assert len(list(list_jobs(base_folder()))) == before


@pytest.mark.parametrize("home", ["/proc/howdah", "file/below", "x" * 300])
def test_a_home_that_cannot_be_used_is_no_defect(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / home))
    refused = howdah("run", "--", "true", code=3)
    assert "the job directory" in refused.told
    assert "cannot be made" in refused.told
    assert "HOWDAH_HOME" in refused.told
    assert "Traceback" not in refused.told


def test_a_current_folder_that_is_gone_is_no_defect(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"cd '{gone}' && rmdir '{gone}' && exec '{sys.executable}' -m howdah run -- true"
    told = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True)
    assert told.returncode == 3
    assert told.stderr == "howdah: the current folder is gone; go to one that is there\n"


def test_a_store_relative_to_the_job_file_outlives_the_job_and_is_resumed_from(
    tmp_path: Path,
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(
        "command = 'echo had=$(cat checkpoints/state); echo 1 > checkpoints/state'\n"
        '[checkpoint]\nstore = "saved"\n[roles.worker]\n'
    )
    howdah("run", str(file))
    assert list((tmp_path / "saved").glob("*/*/manifest.json"))
    again = howdah("rerun", newest().job_id, "--resume", cwd=Path("/"))
    assert "worker:0 | had=1" in again.out
