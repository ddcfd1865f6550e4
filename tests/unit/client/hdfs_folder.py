"""A folder in the place of HDFS: what howdah asks of a cluster's files, without a cluster."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Self

from howdah.storage.hdfs import split
from howdah.storage.hdfs.errors import AlreadyThere, NotFound
from howdah.storage.hdfs.files import HdfsStat

FS = "hdfs://nn.example:8020"


class FolderHdfs:
    """As `howdah.storage.hdfs.files.Hdfs`, as far as a client asks. A file belongs to whom its second
    folder is called after."""

    fs = FS

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.open: set[str] = set()
        """Paths of files that somebody writes: nothing of their last block is shown."""

    def patient(self, patience_s: float) -> Self:
        return self

    def path(self, place: str) -> str:
        return split(place)[1]

    def url(self, place: str) -> str:
        return f"{FS}{self.path(place)}"

    def stat(self, place: str) -> HdfsStat:
        return self._stat(self._here(place))

    def exists(self, place: str) -> bool:
        return (self.folder / self.path(place).lstrip("/")).exists()

    def list(self, place: str, *, recursive: bool = False) -> list[HdfsStat]:
        here = self._here(place)
        found = here.rglob("*") if recursive else here.iterdir()
        return sorted(map(self._stat, found), key=lambda stat: stat.path)

    def read(self, place: str) -> bytes:
        here = self._here(place)
        return b"" if self.path(place) in self.open else here.read_bytes()

    def get(self, place: str, local: Path | str, progress: Any = None) -> int:
        return Path(local).write_bytes(self.read(place))

    def put(
        self, local: Path, place: str, *, overwrite: bool = True, parents: bool = True
    ) -> HdfsStat:
        here = self.folder / self.path(place).lstrip("/")
        if here.exists() and not overwrite:
            raise AlreadyThere(f"{self.path(place)} is there")
        shutil.copy(local, here)
        return self._stat(here)

    def recover_lease(self, place: str, timeout_s: float) -> None:
        self.open.discard(self.path(place))

    def remove(self, place: str, *, recursive: bool = False) -> None:
        shutil.rmtree(self._here(place))

    def _here(self, place: str) -> Path:
        here = self.folder / self.path(place).lstrip("/")
        if not here.exists():
            raise NotFound(f"There is no {self.path(place)}")
        return here

    def _stat(self, here: Path) -> HdfsStat:
        found, parts = here.stat(), here.relative_to(self.folder).parts
        return HdfsStat(
            path="/" + "/".join(parts),
            size=0 if here.is_dir() else found.st_size,
            mtime_ms=found.st_mtime_ns // 1_000_000,
            is_dir=here.is_dir(),
            permission=found.st_mode & 0o777,
            owner=parts[1] if len(parts) > 1 else "hdfs",
        )
