"""The howdah command in this process: what costs a third of a second less than an interpreter of its own.

For signals, terminals and closed streams `tests.cli.howdah.start` starts a real one.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from howdah.cli.main import main


class Ended(NamedTuple):
    """What a command line has written, by lines."""

    code: int
    out: list[str]
    err: list[str]

    @property
    def text(self) -> str:
        return "\n".join(self.out)

    @property
    def told(self) -> str:
        return "\n".join(self.err)

    def documents(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out]


def howdah(*arguments: str, cwd: Path | None = None, code: int | None = 0) -> Ended:
    """Run a command line to its end, which must be that exit code, unless that is None."""
    with tempfile.TemporaryFile("w+b") as out, tempfile.TemporaryFile("w+b") as err:
        with contextlib.chdir(cwd or "."), _writing_to(out, err):
            ended = main(arguments)
        found = Ended(ended, _lines(out), _lines(err))
    assert code in (None, ended), f"exit code {ended}: {found.text}\n{found.told}"
    return found


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return file.read().decode().splitlines()


@contextlib.contextmanager
def _writing_to(out: IO[bytes], err: IO[bytes]) -> Iterator[None]:
    """Have both streams written there; `run` and its like write to the descriptors themselves."""
    with contextlib.ExitStack() as stack:
        for number, name, file in ((1, "stdout", out), (2, "stderr", err)):
            stack.callback(setattr, sys, name, getattr(sys, name))
            before = os.dup(number)
            stack.callback(os.close, before)
            stack.callback(os.dup2, before, number)
            os.dup2(file.fileno(), number)
            setattr(sys, name, stack.enter_context(open(number, "w", closefd=False)))
        yield
