"""What is wrong with a job file, said so that it can be mended: where, which value, what to do."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Sequence, Set

import msgspec

from howdah.spec.values import is_list, is_table, kind_of

KeyPath = tuple[str | int, ...]
"""Where a value is in a document: table keys and list positions from the top."""

MAX_PROBLEMS = 100
"""No more are collected: a file with a hundred mistakes is not a job file."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_SHOWN = 60


class JobFileProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong."""

    file: str | None = None
    """The file, or the command-line option, it was written in."""
    line: int | None = None
    key: str = ""
    """Dotted key, such as ``roles.worker.memory``; empty for the file as a whole."""
    value: str | None = None
    """The value as text, where there is one to show."""
    message: str
    """What is wrong, the value included."""
    hint: str | None = None
    """What is allowed, or what was probably meant."""

    def __str__(self) -> str:
        place = self.file or ""
        if self.line is not None:
            place += f":{self.line}"
        words = [part for part in (place, self.key, self.message) if part]
        # File names and other people's messages may hold anything.
        return printable(": ".join(words) + (f"; {self.hint}" if self.hint else ""))


class JobFileError(ValueError):
    """A job that cannot be run as written: at least one problem; ``str()`` is the full text."""

    def __init__(self, problems: Sequence[JobFileProblem]) -> None:
        self.problems: tuple[JobFileProblem, ...] = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.problems]
        if len(lines) == 1:
            return lines[0]
        number = f"{len(lines)}" if len(lines) < MAX_PROBLEMS else f"{MAX_PROBLEMS} or more"
        files = {problem.file for problem in self.problems}
        # Without a line it may be an option of the command line.
        one = len(files) == 1 and any(problem.line is not None for problem in self.problems)
        what = printable(files.pop() or "") if one else ""
        return "\n".join([f"{what or 'the job'} has {number} problems:", *lines])


class ValueOrigin(msgspec.Struct, frozen=True):
    """Where a value was written: a file and a line, or a command-line option."""

    file: str | None
    line: int | None = None


class Origins:
    """Origins by key path. What has none of its own has that of what is around it."""

    def __init__(self, file: str | None = None) -> None:
        self._whole = ValueOrigin(file)
        self._known: dict[KeyPath, ValueOrigin] = {}
        self.empty: Set[KeyPath] = frozenset()
        """Keys with nothing behind them: no value, and no null either."""

    @classmethod
    def of_lines(
        cls, file: str | None, lines: dict[KeyPath, int], empty: Set[KeyPath] = frozenset()
    ) -> Origins:
        """The origins of everything in one file."""
        origins = cls(file)
        origins.empty = empty
        origins._known = {path: ValueOrigin(file, line) for path, line in lines.items()}
        return origins

    def put(self, path: KeyPath, origin: ValueOrigin) -> None:
        """Say where the value at ``path`` comes from; what is below it comes from there too."""
        for known in [known for known in self._known if known[: len(path)] == path]:
            del self._known[known]
        self._known[path] = origin

    def take(self, other: Origins, path: KeyPath) -> None:
        """Take what another document knows of ``path`` and of what is below it."""
        self.put(path, other.at(path))
        for known, origin in other._known.items():
            if known[: len(path)] == path:
                self._known[known] = origin

    def share(self, path: KeyPath, other: KeyPath) -> None:
        """Say that the value at ``other`` was written where the one at ``path`` was."""
        self._known[other] = self.at(path)
        for known in [known for known in self._known if known[: len(path)] == path]:
            self._known[(*other, *known[len(path) :])] = self._known[known]

    def at(self, path: KeyPath) -> ValueOrigin:
        """Origin of the value at ``path``, or of the nearest table around it."""
        for length in range(len(path), 0, -1):
            if (origin := self._known.get(path[:length])) is not None:
                return origin
        return self._whole


class Problems:
    """Collects problems and the places they were found at."""

    def __init__(self, origins: Origins | None = None) -> None:
        self.origins: Origins = origins or Origins()
        self.table: object = None
        """The document the problems are of, once there is one: a problem shows its value."""
        self._found: list[JobFileProblem] = []
        self._doubtful: set[KeyPath] = set()

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def full(self) -> bool:
        """Enough has been found; looking for more is a waste."""
        return len(self._found) >= MAX_PROBLEMS

    def add(
        self,
        path: KeyPath,
        message: str,
        hint: str | None = None,
        *,
        value: object = None,
        origin: ValueOrigin | None = None,
    ) -> None:
        """Note a problem of the value at ``path``. Past `MAX_PROBLEMS` it is forgotten."""
        if path:
            self.doubt(path)
        if self.full:
            return
        origin = origin or self.origins.at(path)
        self._found.append(
            JobFileProblem(
                file=origin.file,
                line=origin.line,
                key=dotted(path),
                value=self._shown_at(path) if value is None else shown(value),
                message=message,
                hint=hint,
            )
        )

    def _shown_at(self, path: KeyPath) -> str | None:
        value = self.table
        for part in path:
            # What an environment holds may be a secret.
            if part in ("env", "secrets"):
                return None
            if is_table(value):
                value = value.get(str(part))
            elif is_list(value) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                return None
        return None if value is None or is_table(value) else shown(value)

    def doubt(self, path: KeyPath) -> None:
        """The value at ``path`` is not what the user meant: draw no conclusions from it."""
        self._doubtful.add(path)

    def doubt_as(self, other: Problems) -> None:
        """Doubt what ``other`` does, without its problems."""
        self._doubtful |= other._doubtful

    def share(self, path: KeyPath, other: KeyPath, keys: Iterable[str]) -> None:
        """Take these keys of the table at ``path`` as keys of the one at ``other`` as well: written there,
        and as wrong."""
        for key in keys:
            self.origins.share((*path, key), (*other, key))
            below = len(path) + 1
            for doubtful in [d for d in self._doubtful if d[:below] == (*path, key)]:
                self.doubt((*other, *doubtful[len(path) :]))

    def known_wrong(self, path: KeyPath) -> bool:
        """Whether a problem of exactly the value at ``path`` is known."""
        return path in self._doubtful

    def doubted(self, path: KeyPath) -> bool:
        """Whether the value at ``path`` or something around it is known to be wrong."""
        return any(path[:length] in self._doubtful for length in range(1, len(path) + 1))

    def doubted_within(self, path: KeyPath) -> bool:
        """Whether the value at ``path``, or anything around it or in it, is known to be wrong."""
        return self.doubted(path) or any(d[: len(path)] == path for d in self._doubtful)

    def raise_any(self) -> None:
        """Raise what was found, in the order of the file.

        Raises:
            JobFileError: there is at least one problem.
        """
        if self._found:
            raise JobFileError(sorted(self._found, key=_reading_order))


def _reading_order(problem: JobFileProblem) -> tuple[bool, str, int]:
    return problem.line is None, problem.file or "", problem.line or 0


def dotted(path: KeyPath) -> str:
    """The path as a user would write it: ``roles.worker.env."A B"``, ``after[1]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            bare = len(part) <= _LONGEST_SHOWN and _BARE_KEY.fullmatch(part)
            key = part if bare else shown(part)
            text += f".{key}" if text else key
    return text


def printable(text: str) -> str:
    """The text with everything a terminal would act on made visible instead."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def shown(value: object) -> str:
    """A value as short text for a message; nothing in it can move a terminal's cursor."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            short = value if len(value) <= _LONGEST_SHOWN else value[: _LONGEST_SHOWN - 1] + "…"
            quoted = short.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{printable(quoted)}"'
        case int() if value.bit_length() > 128:
            # Python refuses to print numbers of thousands of digits.
            return "a number of more than 38 digits"
        case int() | float():
            return str(value)
        case datetime.date() | datetime.time():
            return value.isoformat()
        case dict():
            return "a table"
        case _ if is_list(value):
            if any(is_list(item) or is_table(item) for item in value):
                return "a list"
            items = ", ".join(shown(item) for item in value[:4])
            text = f"[{items}, …]" if len(value) > 4 else f"[{items}]"
            return text if len(text) <= _LONGEST_SHOWN else "a list"
        case _:
            return kind_of(value)


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, if any is near."""
    import difflib

    if len(word) > _LONGEST_SHOWN:
        return None
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def listed(words: Iterable[str]) -> str:
    """``a, b, c``, but not too many of them."""
    known = list(words)
    more = f" and {len(known) - 12} more" if len(known) > 12 else ""
    return ", ".join(known[:12]) + more


def one_of(words: Iterable[str]) -> str:
    """``a, b or c``."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
