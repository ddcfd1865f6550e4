"""Keep a folder and a place elsewhere alike while files in it grow.

For programs that can only write local files (or read them) where the job's folder is on HDFS:
TensorBoard's event files, above all. In a helper process (`howdah.storage.helper`) it looks every
``every_s`` until its standard input ends or SIGTERM comes, and once more then. It tells when something
does not work, and goes on trying; once a later attempt of the task writes there, it ends. A line
``finish <seconds>`` before the end of its input says how long what fails at the end may be tried again.

Files only grow or are replaced; one that is removed here stays there. Hidden files and ``*.tmp``
are left out.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

import msgspec

from howdah.storage.checkpoints.versions import CheckpointProblem
from howdah.storage.confined_paths import open_beneath
from howdah.storage.errors import Outdated, in_words, is_transient
from howdah.storage.files import PRIVATE_FOLDER
from howdah.storage.folders import files_below
from howdah.storage.stores.destinations import Destination, is_hidden, open_destination

_PIECE_BYTES = 4 << 20
_COMPARED_BYTES = 4096
_LAST_PAUSE_S = (0.25, 5.0)
"""First and longest pause before what failed at the end is tried again."""


class FollowSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to keep like what."""

    folder: str
    """Local; it need not exist yet."""
    place: str
    """Path or URL."""
    attempt: int = 0
    """Whose folder is pushed; see `howdah.storage.stores.destinations`."""
    job_dir: str | None = None
    """The job directory if the place is in it; it is not made again if it was removed."""
    every_s: float = 3.0


class Pusher:
    """Takes what comes to a local folder to a place."""

    def __init__(self, folder: Path, place: Destination, patterns: Sequence[str] = ()) -> None:
        """``patterns`` are those of `Path.glob`; without any, all files below are taken."""
        self._folder = folder
        self._place = place
        self._patterns = patterns
        self._sent: dict[str, tuple[int, int]] = {}
        """Inode and size of what is there."""
        self._there: dict[str, int] | None = None
        """What was there before us."""

    def push(self) -> int:
        """Do it once; returns how many bytes were sent.

        Raises:
            OSError: something was not sent; what could be was.
        """
        sent = 0
        problem: OSError | None = None
        for name, stat in self._files():
            before = self._sent.get(name)
            if before == (stat.st_ino, stat.st_size):
                continue
            try:
                sent += self._send(name, stat, before)
            except OSError as error:
                # One that has gone since it was listed needs no place there.
                if not isinstance(error, FileNotFoundError) or (self._folder / name).exists():
                    problem = error
        if problem is not None:
            raise problem
        return sent

    def _send(self, name: str, stat: os.stat_result, before: tuple[int, int] | None) -> int:
        source = self._folder / name
        if before is None:
            size = self._begun(name, stat.st_size)
        else:
            inode, size = before
            if inode != stat.st_ino or size > stat.st_size:
                size = 0
        # What comes while it is sent is sent again, or behind: the size there is what counts.
        self._sent.pop(name, None)
        self._there = None
        if size:
            self._place.append(source, name, size)
        else:
            self._place.put(source, name)
        self._sent[name] = stat.st_ino, stat.st_size
        return stat.st_size - size

    def _begun(self, name: str, size: int) -> int:
        """Bytes of this very file that are there already."""
        if self._there is None:
            self._there = self._place.files()
        there = self._there.get(name, 0)
        if not 0 < there <= size:
            return 0
        start = max(0, there - _COMPARED_BYTES)
        with (self._folder / name).open("rb") as file:
            file.seek(start)
            same = file.read(there - start) == self._place.read(name, start, there - start)
        return there if same else 0

    def _files(self) -> list[tuple[str, os.stat_result]]:
        found: dict[str, os.stat_result] = {}
        if self._patterns:
            paths = chain.from_iterable(map(self._folder.glob, self._patterns))
        else:
            paths = files_below(self._folder)
        for path in paths:
            name = path.relative_to(self._folder).as_posix()
            with contextlib.suppress(OSError):
                if not is_hidden(name) and path.is_file():
                    found[name] = path.stat()
        return sorted(found.items())


class Puller:
    """Brings what comes to a place into a local folder."""

    def __init__(self, place: Destination, folder: Path) -> None:
        self._place = place
        self._folder = folder

    def pull(self) -> int:
        """Do it once; returns how many bytes came.

        Raises:
            OSError: something could not be read or written.
        """
        came = 0
        for name, size in sorted(self._place.files().items()):
            if is_hidden(name):
                continue
            target = self._folder / name
            have = target.stat().st_size if target.exists() else -1
            if have > size:
                target.unlink()  # another one now, as it seems: begin anew
                have = -1
            if have < size:
                came += self._bring(name, max(have, 0), size)
        return came

    def _bring(self, name: str, have: int, size: int) -> int:
        self._folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with open(open_beneath(self._folder, name, flags), "wb") as file:
            at = have
            while at < size:
                data = self._place.read(name, at, min(size - at, _PIECE_BYTES))
                if not data:
                    break
                file.write(data)
                at += len(data)
        return at - have


def follow(way: str, spec: FollowSpec, report: Callable[[CheckpointProblem], None]) -> None:
    """``push`` or ``pull`` again and again until standard input ends or SIGTERM comes, then once more.

    What does not work goes to ``report`` once, and an empty problem when it works again.

    Raises:
        Exception: what kept the last push from being whole.
    """
    folder, pusher = Path(spec.folder), None
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    signal.signal(signal.SIGTERM, lambda *_: None)
    reported = ""
    over, limit_s = False, 0.0
    deadline, pause_s = 0.0, _LAST_PAUSE_S[0]
    while True:
        failed: Exception | None = None
        try:
            if way == "pull":
                Puller(open_destination(spec.place), folder).pull()
            else:
                pusher = pusher or Pusher(
                    folder, open_destination(spec.place, attempt=spec.attempt, within=spec.job_dir)
                )
                pusher.push()
        except Outdated as error:
            report(CheckpointProblem(problem=str(error)))
            return
        except Exception as error:
            # fsspec's stores raise what they like; whatever it is, the next time it may work.
            failed = error
        text = in_words(failed) if failed is not None else ""
        if text != reported:
            report(CheckpointProblem(problem=text))
        reported = text
        if not over:
            ready, _, _ = select.select([sys.stdin, reader], [], [], spec.every_s)
            if reader in ready:
                over, limit_s = True, 0.0
            elif ready and not (line := os.read(sys.stdin.fileno(), 4096)):
                over = True
            elif ready:
                with contextlib.suppress(ValueError, IndexError):
                    limit_s = float(line.split()[-1])
            deadline = time.monotonic() + limit_s
        elif failed is None or way == "pull":
            return
        elif not is_transient(failed) or time.monotonic() + pause_s > deadline:
            raise failed
        else:
            if select.select([reader], [], [], pause_s)[0]:
                raise failed
            pause_s = min(2 * pause_s, _LAST_PAUSE_S[1])


if __name__ == "__main__":  # agents that began before an upgrade start it by this name
    import runpy

    runpy.run_module("howdah.storage.helper", run_name="__main__")
