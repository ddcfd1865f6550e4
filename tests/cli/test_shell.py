"""What a shell adds: completion, and job files through a pipe."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.cli.finished import Finished
from tests.cli.howdah import HOWDAH, newest
from tests.cli.inside import howdah


def completed(*words: str) -> list[str]:
    """What bash is offered for the last word."""
    env = {
        **os.environ,
        "_HOWDAH_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["howdah", *words]),
        "COMP_CWORD": str(len(words)),
    }
    code = "import sys; from howdah.cli.main import main; sys.exit(main())"
    asked = subprocess.run(
        [HOWDAH[0], "-c", code], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    assert asked.stderr == ""
    return [line.partition(",")[2] for line in asked.stdout.splitlines() if line]


def test_a_shell_completes_commands_options_jobs_and_tasks(looking: Finished) -> None:
    assert completed("st") == ["status", "stack", "stop"]
    assert "--timestamps" in completed("logs", "--t")
    assert completed("logs", "x") == []
    job_id = looking.digits.job_id
    assert completed("status", "d") == ["digits", job_id]
    assert completed("rm", "@") == ["@last"]
    assert completed("logs", job_id, "w") == ["worker", "worker:0", "worker:1"]
    for shell in ("bash", "zsh", "fish"):
        assert f"_HOWDAH_COMPLETE={shell}_complete" in howdah("completion", shell).text
    script = 'eval "$(cat)"; complete -p howdah'
    loaded = subprocess.run(
        ["bash", "-c", script],
        input=howdah("completion", "bash").text,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "howdah" in loaded.stdout


def piped(text: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HOWDAH, *arguments],
        input=text,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_job_file_comes_through_a_pipe(tmp_path: Path) -> None:
    folder = tmp_path / "piped"
    folder.mkdir()
    (folder / "train.py").write_text("print('from the folder')")
    text = 'command = ["python3", "train.py"]\n'
    ran = piped(text, "run", "-", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert "worker:0 | from the folder" in ran.stdout
    assert newest().job_id.startswith("piped-")
    document = json.dumps({"command": ["python3", "train.py"], "roles": {"ps": {"instances": 3}}})
    dry = piped(document, "submit", "-", "--dry-run", "--json", "--tensorboard", cwd=folder)
    assert dry.returncode == 0, dry.stderr
    assert json.loads(dry.stdout)["roles"][0]["role"] == "ps"
    wrong = piped('comand = "true"\n', "submit", "-", cwd=folder)
    assert wrong.returncode == 2
    assert "standard input:1" in wrong.stderr and "command" in wrong.stderr
    assert len(json.loads(howdah("list", "--json").text)) == 1
