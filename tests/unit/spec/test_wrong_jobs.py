"""What a user reads about a wrong job file, with the line it is on.

The files are in ``wrong_*.txt`` here: after its title each has its text, in which ``{run}`` and ``{role}`` stand for
the least that runs, and what is printed. A file is ``job.toml`` unless its title ends with another name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from howdah.spec.load import load
from howdah.spec.problems import JobFileError

FRAMEWORKS = ("command", "tensorflow", "pytorch", "jax")
ENV = {"HOME": "/home/me", "WHO": "me", "HOWDAH_SITE": ""}
RUN = 'command = "python train.py"\n'
BEGINNINGS = {"{run}\n": RUN, "{role}\n": RUN + "[roles.worker]\n"}


def cases(kind: str) -> Iterator[tuple[str, str, list[str]]]:
    """Of each: its title, the file's text, and the lines that are printed."""
    text = Path(__file__).with_name(f"wrong_{kind}.txt").read_text(encoding="utf-8")
    for part in re.split(r"\n*^== ", text.rstrip("\n"), flags=re.MULTILINE)[1:]:
        title, _, rest = part.partition("\n")
        written, *told = re.split(r"^>> ", rest, flags=re.MULTILINE)
        for name, beginning in BEGINNINGS.items():
            written = written.replace(name, beginning)
        yield title, written, [line.rstrip("\n") for line in told]


@pytest.mark.parametrize(
    ("title", "text", "expected"),
    [
        pytest.param(*case, id=case[0])
        for kind in ("values", "syntax", "jobs")
        for case in cases(kind)
    ],
)
def test_a_wrong_file_is_told_where_and_what_to_write(
    title: str, text: str, expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "requirements.txt").touch()
    named = re.search(r"\[(job\.\w+)\]$", title)
    file = tmp_path / (named[1] if named else "job.toml")
    file.write_text(text.rstrip("\n") if file.suffix == ".json" else text)
    with pytest.raises(JobFileError) as error:
        load(file, env=ENV, frameworks=FRAMEWORKS)
    told = [str(problem).replace(f"{tmp_path}/", "") for problem in error.value.problems]
    assert told == expected
