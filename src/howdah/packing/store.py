"""Archives on the cluster: uploaded once, under a name that says what is in them.

``<base>/.howdah/cache/<kind>-<digest>.tar.gz``, readable by its owner alone. A file appears there
whole, by a rename, and never changes afterwards: YARN compares size and time of change of what it
brings to a node with what it was told. Beside each file an empty ``<name>.used`` has the time of its
last use, to the day, for those who clean up.

Jobs run what is in the archives, so the folder is taken only if it is the user's and nobody else may write to
it, and an archive only if it is the user's. Not guaranteed: whose the folders above are is not looked at.
"""

from __future__ import annotations

import contextlib
import posixpath
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from howdah.packing import tarball
from howdah.packing.archives import Archive, PackingError, Progress, quantity, quiet

if TYPE_CHECKING:
    from howdah.storage.hdfs.files import Hdfs, HdfsStat

FOLDER = ".howdah/cache"
DAY_S = 86400.0
UNUSED_S = 90 * DAY_S
"""What has not been used for so long may be cleaned away. A job that runs longer needs its archives
for as long as it starts containers, so not sooner."""
_USED = ".used"


class Uploaded(msgspec.Struct, frozen=True, kw_only=True):
    """An archive on the cluster, as YARN wants to know it."""

    url: str
    size: int
    mtime_ms: int
    """Its time of change."""
    uploaded_bytes: int
    """0 where it was there already."""


class ArchiveStore:
    """Archives of one user on one file system. Several threads may bring some at once."""

    def __init__(
        self,
        file_system: Callable[[str], Hdfs],
        base_url: str,
        whole: Callable[[str], str] = lambda url: url,
        *,
        user: str,
    ) -> None:
        """``file_system`` gives that of a URL on HDFS, ``whole`` the URL on HDFS of what a job file names by
        another one; ``user`` is the user's name there."""
        self._file_system = file_system
        self._whole = whole
        self._user = user
        self.folder: str = f"{base_url.rstrip('/')}/{FOLDER}"
        self.hdfs: Hdfs = file_system(base_url)
        self._seen: dict[str, HdfsStat] | None = None
        self._failure: OSError | None = None
        self._looking = threading.Lock()

    def url(self, archive: Archive) -> str:
        """Where it is, or would be."""
        return archive.url or self.hdfs.url(f"{self.folder}/{archive.name}")

    def find(self, archive: Archive) -> Uploaded | None:
        """The archive if it is there already.

        Raises:
            PackingError: the folder may have been filled by somebody else.
            OSError: HDFS does not answer, or denies it.
        """
        if archive.url is not None:
            return self._elsewhere(archive.url)
        status = self._files().get(archive.name)
        if status is None or (status.size, status.owner) != (archive.size, self._user):
            return None
        return Uploaded(
            url=self.url(archive), size=status.size, mtime_ms=status.mtime_ms, uploaded_bytes=0
        )

    def ensure(self, archive: Archive, progress: Progress = quiet) -> Uploaded:
        """The archive on the cluster, uploaded if it is not there yet.

        Raises:
            PackingError: the local archive is damaged; it is removed and made anew the next time. Or
                somebody else may have filled the folder.
            OSError: HDFS does not take it, with what to do.
        """
        found = self.find(archive)
        if found is None:
            found = self._upload(archive, progress)
        if archive.url is None:
            self._note_use(archive.name)
        return found

    def prune(self, unused_s: float = UNUSED_S) -> list[HdfsStat]:
        """Remove what has not been used for that long; returns what it was.

        Raises:
            OSError: HDFS does not answer, or denies it.
        """
        files = self._files()
        now = time.time()
        gone: list[HdfsStat] = []
        for name, status in files.items():
            if name.endswith(_USED):
                continue
            used = files.get(name + _USED, status)
            hidden = name.startswith(".")  # an upload whose client died
            if now - max(used.mtime_ms, status.mtime_ms) / 1000 > (DAY_S if hidden else unused_s):
                self.hdfs.remove(status.path)
                self.hdfs.remove(status.path + _USED)
                gone.append(status)
        self._seen = None
        return gone

    def inside(self, url: str) -> list[str] | None:
        """The files of a folder at a URL; None if it is a file.

        Raises:
            PackingError: it is not on HDFS.
            OSError: it is not there, or cannot be looked at.
        """
        url = self._whole(url)
        hdfs = self._of(url)
        if not hdfs.stat(url).is_dir:
            return None
        names = [each.path.rpartition("/")[2] for each in hdfs.list(url) if not each.is_dir]
        return [f"{url.rstrip('/')}/{name}" for name in sorted(names)]

    def head(self, archive: Archive, length: int) -> bytes:
        """The first bytes of an archive, wherever it is.

        Raises:
            OSError: it is not there, or cannot be read.
        """
        if archive.url is not None:
            url = self._whole(archive.url)
            return self._of(url).read_range(url, 0, length)
        assert archive.path is not None
        with archive.path.open("rb") as file:
            return file.read(length)

    def _of(self, url: str) -> Hdfs:
        from howdah.storage.hdfs.files import is_hdfs

        if not is_hdfs(url):
            scheme = url.partition("://")[0]
            raise PackingError(f"{url}: of what lies on {scheme}:// nothing can be told to YARN")
        return self._file_system(url)

    def _elsewhere(self, url: str) -> Uploaded:
        url = self._whole(url)
        status = self._of(url).stat(url)
        if status.is_dir:
            raise PackingError(f"{url} is a folder; YARN brings files to its nodes: archive it")
        return Uploaded(url=url, size=status.size, mtime_ms=status.mtime_ms, uploaded_bytes=0)

    def _upload(self, archive: Archive, progress: Progress) -> Uploaded:
        from howdah.storage.hdfs.errors import AlreadyThere

        path = archive.path
        assert path is not None
        if tarball.sha256(path) != archive.digest:
            if not archive.cached:
                raise PackingError(f"{path} has changed since it was looked at; submit again")
            path.unlink(missing_ok=True)
            raise PackingError(
                f"{path} is damaged: it is not what was packed. It has been removed; submit again, "
                "and it is packed anew"
            )
        what = f"uploading {archive.kind.value}, {quantity(archive.size)}"
        progress(what, 0, archive.size)
        self.hdfs.mkdirs(self.folder)
        uploaded = archive.size
        try:
            status = self.hdfs.put(
                path,
                f"{self.folder}/{archive.name}",
                lambda done, total: progress(what, done, total),
                overwrite=archive.name in self._files(),  # damaged, or somebody else's
            )
        except AlreadyThere:
            # Another client was faster: the bytes are the same, their time of change is not.
            status = self.hdfs.stat(f"{self.folder}/{archive.name}")
            uploaded = 0
        self._files()[archive.name] = status
        return Uploaded(
            url=self.url(archive),
            size=status.size,
            mtime_ms=status.mtime_ms,
            uploaded_bytes=uploaded,
        )

    def _check_owner(self, folder: HdfsStat) -> None:
        if folder.owner == self._user and not folder.permission & 0o022:
            return
        raise PackingError(
            f"The archives in {self.folder} can't be trusted: {folder.path} belongs to {folder.owner} and has "
            f"the mode {folder.permission & 0o777:o}, so that somebody else than {self._user} could put programs "
            f"there that run as you. Remove it, or have it made yours: `hdfs dfs -chown {self._user}` and "
            "`hdfs dfs -chmod go-w`"
        )

    def _note_use(self, name: str) -> None:
        used = self._files().get(name + _USED)
        if used is None or time.time() - used.mtime_ms / 1000 > DAY_S:
            self.hdfs.write(f"{self.folder}/{name}{_USED}", b"")

    def _files(self) -> dict[str, HdfsStat]:
        """What is there, looked at once: one call for all archives of a submission, also where it fails,
        which may take a minute."""
        with self._looking:
            if self._failure is not None:
                raise self._failure
            if self._seen is None:
                from howdah.storage.hdfs.errors import NotFound

                try:
                    found: Sequence[HdfsStat] = self.hdfs.list(self.folder)
                except NotFound:
                    found = ()
                except OSError as error:
                    self._failure = error
                    raise
                with contextlib.suppress(NotFound):
                    for folder in (posixpath.dirname(self.folder), self.folder):
                        self._check_owner(self.hdfs.stat(folder))
                self._seen = {posixpath.basename(status.path): status for status in found}
            return self._seen
