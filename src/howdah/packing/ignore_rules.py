"""Which files of a source folder are left out.

As Git does: a ``.gitignore`` counts for its own folder and those below, the last pattern that
matches decides, a deeper file's patterns come after those of higher ones, and nothing below a
folder that is left out can be taken in again. ``.howdahignore`` has the same syntax and comes after
the ``.gitignore`` beside it, so it can leave out more, and with ``!`` take in what Git ignores.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pathspec import GitIgnoreSpec
from pathspec.patterns.gitignore.base import GitIgnorePatternError

from howdah.packing.archives import PackingError

FILES = (".gitignore", ".howdahignore")

ALWAYS = (
    ".git",
    ".hg",
    ".svn",
    ".bzr",
    "__pycache__/",
    "*.py[co]",
    ".venv/",
    ".tox/",
    ".nox/",
    ".eggs/",
    "node_modules/",
    ".ipynb_checkpoints/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".hypothesis/",
    ".howdah/",
    ".DS_Store",
    ".#*",
    "*~",
)
"""Left out unless an ignore file takes it in: caches, histories, environments, editors' locks."""


MOST_STARS = 16
"""In one pattern: the time that matching takes grows with each."""
_STARS = re.compile(r"\*{3,}")


class Rules:
    """The patterns in force in one folder."""

    def __init__(self, specs: Sequence[tuple[Path, GitIgnoreSpec]], *, fixed: bool = False) -> None:
        self._specs = specs
        self._fixed = fixed  # ignore files do not count

    def below(self, folder: Path) -> Rules:
        """Those in force in a folder below, with the ignore files in it."""
        if self._fixed:
            return self
        found = [(folder, spec) for name in FILES if (spec := _read(folder / name))]
        return Rules([*self._specs, *found]) if found else self

    def with_(self, folder: Path, spec: GitIgnoreSpec) -> Rules:
        """The same, and patterns that come after them."""
        return Rules([*self._specs, (folder, spec)])

    def leave_out(self, path: Path, *, is_folder: bool) -> bool:
        """Whether it, or with it all that is in it, is left out."""
        for folder, spec in reversed(self._specs):
            if not path.is_relative_to(folder):
                continue
            name = path.relative_to(folder).as_posix() + ("/" if is_folder else "")
            decision = spec.check_file(name).include
            if decision is not None:
                return decision
        return False


def rules(folder: Path, ignore: Sequence[str] = ()) -> Rules:
    """The patterns in force in a source folder; ``ignore`` are the job file's, which come last.

    Raises:
        PackingError: an ignore file cannot be read, or a pattern means nothing.
    """
    always = Rules([(folder, GitIgnoreSpec.from_lines(ALWAYS))])
    found = always
    above = _repository(folder)
    for parent, child in zip(above, [*above[1:], folder]):
        found = found.below(parent)
        if found.leave_out(child, is_folder=True):
            found = always  # Git ignores the folder as a whole, and it was named all the same
            break
    found = found.below(folder)
    return found.with_(folder, _understood(ignore, "ignore")) if ignore else found


def only(folder: Path, ignore: Sequence[str]) -> Rules:
    """The job file's patterns alone.

    Raises:
        PackingError: a pattern means nothing.
    """
    return Rules([(folder, _understood(ignore, "ignore"))], fixed=True)


def only_caches(folder: Path) -> Rules:
    """For folders that are shipped as they are: ignore files do not count."""
    return Rules([(folder, GitIgnoreSpec.from_lines(("__pycache__/", "*.py[co]")))], fixed=True)


def _repository(folder: Path) -> list[Path]:
    """Folders above, from the root of the Git repository on, if it is in one."""
    if (folder / ".git").exists():
        return []
    above: list[Path] = []
    for parent in folder.parents:
        above.append(parent)
        if (parent / ".git").exists():
            return above[::-1]
    return []


def _read(path: Path) -> GitIgnoreSpec | None:
    try:
        text = path.read_text("utf-8", "surrogateescape")
    except (FileNotFoundError, IsADirectoryError):
        return None
    except OSError as error:
        raise PackingError(f"{path} cannot be read: {error.strerror or error}") from error
    return _understood(text.splitlines(), path)


def _understood(patterns: Sequence[str], where: object) -> GitIgnoreSpec:
    # To Git three stars are one. To the library they are three, which take for ever to match.
    lines = [_STARS.sub("*", line) for line in patterns]
    if crowded := next((line for line in lines if line.count("*") > MOST_STARS), None):
        raise PackingError(f"{where}: {crowded[:80]!r} has more than {MOST_STARS} stars")
    try:
        return GitIgnoreSpec.from_lines(lines)
    except (GitIgnorePatternError, re.error) as error:
        raise PackingError(f"{where}: {error}") from error
