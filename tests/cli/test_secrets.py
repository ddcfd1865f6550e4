"""[secrets] through the command line: programs get the values, and nothing else does."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from howdah.cli.main import main
from tests.cli.howdah import HOWDAH, WAIT_S

SECRET = "hf_5151secret"
JOB = (
    'name = "digits"\ncommand = "test -n \\"$HF_TOKEN\\" && echo ${HF_TOKEN#hf_}"\n'
    '[roles.worker]\n[env]\nMODE = "fast"\n[secrets]\nHF_TOKEN = "${env:TOKEN}"\n'
)


def test_a_dry_run_shows_no_secret_and_nothing_of_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(JOB)
    monkeypatch.setenv("TOKEN", SECRET)
    monkeypatch.setenv("OF_THE_SHELL", "aws_5252secret")
    assert main(["run", "--dry-run", "--json", str(file)]) == 0
    text = capsys.readouterr().out
    assert SECRET not in text and "5252" not in text
    [task] = json.loads(text)["tasks"]
    environment = task["programs"][0]["environment"]
    assert (environment["HF_TOKEN"], environment["MODE"]) == ("(secret)", "fast")
    assert "PATH" in environment and "TOKEN" not in environment
    assert main(["run", "--dry-run", str(file)]) == 0
    text = capsys.readouterr().out
    assert "HF_TOKEN=(secret)" in text and SECRET not in text


def test_check_says_which_secret_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(JOB)
    monkeypatch.delenv("TOKEN", raising=False)
    assert main(["check", "--json", str(file)]) == 2
    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert problem["key"] == "secrets.HF_TOKEN" and "TOKEN is not set" in problem["message"]


@pytest.mark.nightly
def test_a_programs_secret_is_in_one_file_of_its_owner_and_a_rerun_has_it_still(
    tmp_path: Path,
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(JOB)
    env = {**os.environ, "HOWDAH_HOME": str(tmp_path / "home")}

    def howdah(*arguments: str, **more: str) -> str:
        done = subprocess.run(
            [*HOWDAH, *arguments],
            env={**env, **more},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert "5151secret" in howdah("run", str(file), TOKEN=SECRET)
    found = [
        path
        for path in (tmp_path / "home").rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]
    assert [path.relative_to(path.parents[1]).as_posix() for path in found] == [
        "secrets/variables.json"
    ]
    assert found[0].stat().st_mode & 0o777 == 0o600
    assert "5151secret" in howdah("rerun", "@last")
