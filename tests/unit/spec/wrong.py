"""What a user reads about a wrong job file, for tables of such files."""

from __future__ import annotations

from pathlib import Path

from howdah.spec.load import load
from howdah.spec.problems import JobFileError

FRAMEWORKS = ("command", "tensorflow", "pytorch", "jax")
ENV = {"HOME": "/home/me", "WHO": "me", "HOWDAH_SITE": ""}

RUN = 'command = "python train.py"\n'
ROLE = RUN + "[roles.worker]\n"
"""The least that runs: what a table adds begins on line 3."""

Wrong = dict[str, tuple[str, str, list[str]]]
"""What is wrong: the file's name, its text, and the problems as they are printed."""


def problems(folder: Path, name: str, text: str) -> list[str]:
    """The printed problems of a file of that text; none if it loads."""
    (folder / "src").mkdir()
    (folder / "requirements.txt").touch()
    file = folder / name
    file.write_text(text)
    try:
        load(file, env=ENV, frameworks=FRAMEWORKS)
    except JobFileError as error:
        return [str(problem).replace(f"{folder}/", "") for problem in error.problems]
    return []
