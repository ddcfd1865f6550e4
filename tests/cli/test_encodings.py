"""Texts of Howdah's are UTF-8 whatever the locale's encoding is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = """\
command = ["sh", "-c", "echo grüße"]
source = "."
"""


@pytest.mark.timeout(180)
def test_a_job_and_its_pages_read_nothing_by_the_locale(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB, "utf-8")
    env = {
        **os.environ,
        "PYTHONWARNDEFAULTENCODING": "1",
        "PYTHONWARNINGS": "always::EncodingWarning",
    }

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    said = run("-m", "howdah", "run", "job.toml")
    assert "grüße" in said
    pages = "from howdah.coordinator.web.page_texts import environment; import howdah.portal.app; "
    said += run("-c", pages + "environment(); environment('howdah.portal')")
    ours = [line for line in said.splitlines() if "EncodingWarning" in line and "/howdah/" in line]
    assert ours == []
