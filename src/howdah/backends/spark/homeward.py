"""Files of a container brought into the job directory as they grow, where it is not seen there.

Holder's side: `Homeward` looks at the files of ``home`` and gives what is new as `Part`s. Files are
taken to grow at their end; one that is replaced is sent anew. Coordinator's side: `Intake` writes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from howdah.backends.spark.messages import Part
from howdah.storage import layout
from howdah.storage.beneath import LeadsOutside, open_beneath

FOLDERS = (
    layout.RESULTS,
    layout.LOGS,
    layout.STACKS,
    layout.OUTPUTS,
    layout.TENSORBOARD,
)
"""What comes home. Checkpoints do not: they go to the store that the job names."""
PART_BYTES = 256 * 1024
LARGEST = 1 << 30
"""Bytes of one container that come home; what is more stays away, and goes with the container."""


class Homeward:
    """What has been sent of each file."""

    def __init__(self, home: Path, largest: int = LARGEST) -> None:
        self._home = home
        self._sent: dict[str, tuple[int, int]] = {}
        """By path: the file's inode and the bytes sent of it."""
        self._largest = largest
        self._left = largest
        self.cut_short = False
        """Something stayed away: there was too much."""

    def forget(self) -> None:
        """The connection broke: what was sent may not have arrived. All of it is sent anew, over
        what has, and counts once."""
        self._sent.clear()
        self._left = self._largest
        self.cut_short = False

    def news(self) -> Iterator[Part]:
        """What is new, in parts; it may be stopped between two and begun again."""
        for folder in FOLDERS:
            for root, _, names in os.walk(self._home / folder):
                for name in sorted(names):
                    if not name.startswith("."):
                        yield from self._of(Path(root, name))

    def _of(self, path: Path) -> Iterator[Part]:
        relative = path.relative_to(self._home).as_posix()
        try:
            status = path.stat()
            if self._sent.get(relative) == (status.st_ino, status.st_size):
                return  # most of them, most of the time
            if not stat.S_ISREG(status.st_mode):
                return  # a pipe would be waited for
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                inode, sent = self._sent.get(relative, (status.st_ino, -1))
                if inode != status.st_ino or sent > status.st_size:
                    sent = -1
                file.seek(max(sent, 0))
                while True:
                    data = file.read(PART_BYTES)
                    if not data and sent >= 0:
                        return
                    if len(data) > self._left:
                        self.cut_short = True
                        return
                    self._left -= len(data)
                    offset = max(sent, 0)
                    sent = offset + len(data)
                    self._sent[relative] = status.st_ino, sent
                    yield Part(path=relative, offset=offset, data=data)
        except OSError:
            return  # it went away meanwhile


class Intake:
    """Writes what comes into the job directory, and nowhere else."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def take(self, part: Part) -> None:
        """Write it.

        Raises:
            ValueError: its path is none that containers may send.
            OSError: it cannot be written.
        """
        if part.path.partition("/")[0] not in FOLDERS:
            raise ValueError(f"{part.path!r} is no path of a container's files")
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if part.offset == 0 else 0)
        try:
            descriptor = open_beneath(self._directory, part.path, flags)
        except LeadsOutside as error:
            raise ValueError(str(error)) from error
        with open(descriptor, "wb") as file:
            file.seek(part.offset)
            file.write(part.data)
