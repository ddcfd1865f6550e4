"""Artifact upload: files of a container, into the job directory, where its host does not see that.

Container's side: `ArtifactUploader` looks for changes in the container's own job directory and gives
them as `FilePart`s. Files are taken to grow at their end; one that is replaced, or written anew in
place, is sent again.
Coordinator's side: `ArtifactWriter`.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from howdah.backends.spark.messages import FilePart
from howdah.storage import layout
from howdah.storage.confined_paths import LeadsOutside, open_beneath

FOLDERS = (
    layout.RESULTS,
    layout.LOGS,
    layout.STACKS,
    layout.OUTPUTS,
    layout.SHARED,
    layout.TENSORBOARD,
)
"""What is uploaded. Checkpoints are not: they go to the store that the job names."""
OWNERS = "spark-shared.jsonl"
PART_BYTES = 256 * 1024
LARGEST = 1 << 30
"""Bytes of one folder that are uploaded; what is more goes with the container. What ranks return is
always uploaded."""
COMPARED_BYTES = 1 << 20
"""So much of a file that has changed is compared with what was sent of it; of a longer one only once its
container has ended: to read all of it after each change would cost the programs their disk."""

_TAKEN = "another task has left a file of that name, which is kept"


class SentFile(msgspec.Struct, frozen=True):
    """What has been sent of one file."""

    inode: int
    size: int
    modified: int
    """In nanoseconds, as it was before the last part was read."""
    checksum: int
    """CRC-32 of the bytes sent."""


class ArtifactUploader:
    """What has been sent of each file."""

    def __init__(self, folder: Path, largest: int = LARGEST) -> None:
        self._folder = folder
        self._sent: dict[str, SentFile] = {}
        """By path."""
        self._largest = largest
        self._left = self._budgets()
        self._compared: set[str] = set()
        """Of an ended container: files that are as they were sent."""
        self.truncated: list[str] = []
        """Folders of which something was not sent when all were looked through last: there was too much."""
        self.latest: str = ""
        """Path of the last part."""

    def _budgets(self) -> dict[str, float]:
        """Bytes that may still be sent, by folder."""
        return dict.fromkeys(FOLDERS, float(self._largest)) | {layout.RESULTS: math.inf}

    def restart(self) -> None:
        """The connection broke: what was sent may not have arrived. All of it is sent again, over
        what has, and counts once."""
        self._sent.clear()
        self._left = self._budgets()
        self._compared.clear()
        self.truncated = []

    def changes(self, *, ended: bool = False) -> Iterator[FilePart]:
        """What was not sent yet, in parts; the caller may stop after any part and call again.

        ``ended``: no program writes any more, and every file is compared with what was sent of it."""
        self.truncated = []
        for folder in FOLDERS:
            for root, _, names in os.walk(self._folder / folder):
                for name in sorted(names):
                    if not name.startswith("."):
                        yield from self._changes_of(Path(root, name), folder, ended=ended)

    def _changes_of(self, path: Path, folder: str, *, ended: bool) -> Iterator[FilePart]:
        relative = path.relative_to(self._folder).as_posix()
        # Logs only grow, and may be long.
        due = ended and folder != layout.LOGS and relative not in self._compared
        try:
            status = path.stat()
            sent = self._sent.get(relative)
            if sent is not None and not due:
                now = (status.st_ino, status.st_size, status.st_mtime_ns)
                if now == (sent.inode, sent.size, sent.modified):
                    return  # most of them, most of the time
            if not stat.S_ISREG(status.st_mode):
                return  # a pipe would be waited for
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                compare = due or (
                    sent is not None and folder != layout.LOGS and sent.size <= COMPARED_BYTES
                )
                if sent is not None and not _goes_on(file, status, sent, compare=compare):
                    self._left[folder] += sent.size  # its place is taken by what is sent now
                    del self._sent[relative]
                if due:
                    self._compared.add(relative)
                yield from self._parts(file, status, relative, folder)
        except OSError:
            return  # it was removed meanwhile

    def _parts(
        self, file: BinaryIO, status: os.stat_result, path: str, folder: str
    ) -> Iterator[FilePart]:
        sent = self._sent.get(path)
        size, checksum = (0, 0) if sent is None else (sent.size, sent.checksum)
        file.seek(size)
        while True:
            data = file.read(PART_BYTES)
            if len(data) > self._left[folder]:
                if folder not in self.truncated:
                    self.truncated.append(folder)
                return
            self._left[folder] -= len(data)
            offset, size = size, size + len(data)
            checksum = zlib.crc32(data, checksum)
            new = path not in self._sent
            self._sent[path] = SentFile(status.st_ino, size, status.st_mtime_ns, checksum)
            if not data and not new:
                return
            self.latest = path
            yield FilePart(path=path, offset=offset, data=data)


def _goes_on(file: BinaryIO, status: os.stat_result, sent: SentFile, *, compare: bool) -> bool:
    """Whether the file still begins with what was sent of it; ``compare``: also its bytes are looked at."""
    if sent.inode != status.st_ino or sent.size > status.st_size:
        return False
    checksum, left = 0, sent.size if compare else 0
    while left:
        data = file.read(min(left, PART_BYTES))
        if not data:
            return False
        checksum, left = zlib.crc32(data, checksum), left - len(data)
    return not compare or checksum == sent.checksum


class ArtifactWriter:
    """Writes what arrives into the job directory, and nowhere else.

    Containers, and tasks that see the job directory, have names of their own in all folders but the shared
    one. There a container's file replaces only its own, or one of a container that has ended: a task that
    is started again leaves the same names. Whose each file is, is in ``spark-shared.jsonl``.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._owners = _read_owners(directory)
        """Containers of the files in the shared folder, by path."""

    def write(self, part: FilePart, container_id: str = "", running: Collection[str] = ()) -> None:
        """Write one part.

        Args:
            container_id: of the container that sent it.
            running: ids of all containers that have not ended.

        Raises:
            ValueError: containers may not send a file of that path, or it is another task's.
            OSError: it cannot be written.
        """
        folder = part.path.partition("/")[0]
        if folder not in FOLDERS:
            raise ValueError(f"{part.path!r} is no path of a container's files")
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if part.offset == 0 else 0)
        if folder == layout.SHARED:
            owner = self._owners.get(part.path)
            if owner != container_id and (part.offset or owner in running):
                raise ValueError(_TAKEN)
            if owner is None:
                flags |= os.O_EXCL
        try:
            descriptor = open_beneath(self._directory, part.path, flags)
        except LeadsOutside as error:
            raise ValueError(str(error)) from error
        except FileExistsError:
            raise ValueError(_TAKEN) from None
        with open(descriptor, "wb") as file:
            if folder == layout.SHARED:
                self._own(part.path, container_id)
            file.seek(part.offset)
            file.write(part.data)

    def _own(self, path: str, container_id: str) -> None:
        if self._owners.get(path) == container_id:
            return
        self._owners[path] = container_id
        line = msgspec.json.encode((path, container_id))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with open(open_beneath(self._directory, OWNERS, flags), "ab") as file:
            file.write(b"\n" + line)  # first: the line before may be torn


def _read_owners(directory: Path) -> dict[str, str]:
    owners: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in (directory / OWNERS).read_bytes().split(b"\n"):
            with contextlib.suppress(msgspec.DecodeError):
                path, owner = msgspec.json.decode(line, type=tuple[str, str])
                owners[path] = owner
    return owners
