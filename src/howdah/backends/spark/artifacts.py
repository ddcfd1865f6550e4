"""Artifact upload: files of a container, into the job directory, where its host does not see that.

Container's side: `ArtifactUploader` looks for changes in the container's own job directory and gives
them as `FilePart`s. Files are taken to grow at their end; one that is replaced is sent again.
Coordinator's side: `ArtifactWriter`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from howdah.backends.spark.messages import FilePart
from howdah.storage import layout
from howdah.storage.confined_paths import LeadsOutside, open_beneath

FOLDERS = (
    layout.RESULTS,
    layout.LOGS,
    layout.STACKS,
    layout.OUTPUTS,
    layout.TENSORBOARD,
)
"""What is uploaded. Checkpoints are not: they go to the store that the job names."""
PART_BYTES = 256 * 1024
LARGEST = 1 << 30
"""Bytes of one container that are uploaded; what is more goes with the container."""


class ArtifactUploader:
    """What has been sent of each file."""

    def __init__(self, folder: Path, largest: int = LARGEST) -> None:
        self._folder = folder
        self._sent: dict[str, tuple[int, int]] = {}
        """By path: the file's inode and the bytes sent of it."""
        self._largest = largest
        self._left = largest
        self.truncated: bool = False
        """Something was not sent: there was too much."""

    def restart(self) -> None:
        """The connection broke: what was sent may not have arrived. All of it is sent again, over
        what has, and counts once."""
        self._sent.clear()
        self._left = self._largest
        self.truncated = False

    def changes(self) -> Iterator[FilePart]:
        """What was not sent yet, in parts; the caller may stop after any part and call again."""
        for folder in FOLDERS:
            for root, _, names in os.walk(self._folder / folder):
                for name in sorted(names):
                    if not name.startswith("."):
                        yield from self._changes_of(Path(root, name))

    def _changes_of(self, path: Path) -> Iterator[FilePart]:
        relative = path.relative_to(self._folder).as_posix()
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
                        self.truncated = True
                        return
                    self._left -= len(data)
                    offset = max(sent, 0)
                    sent = offset + len(data)
                    self._sent[relative] = status.st_ino, sent
                    yield FilePart(path=relative, offset=offset, data=data)
        except OSError:
            return  # it was removed meanwhile


class ArtifactWriter:
    """Writes what arrives into the job directory, and nowhere else."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, part: FilePart) -> None:
        """Write one part.

        Raises:
            ValueError: containers may not send a file of that path.
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
