"""Files on HDFS, without a JVM: a thin layer over `hdfs_native` (Rust).

Called directly, never through fsspec: `hdfs_native` registers itself for fsspec's ``hdfs://`` where
it is installed. It is imported at the first call, so that who only might need HDFS pays nothing.

**Configuration.** `hdfs_native` reads ``core-site.xml`` and ``hdfs-site.xml`` of ``conf_dir`` if
given, else of ``$HADOOP_CONF_DIR``, else of ``$HADOOP_HOME/etc/hadoop``; without any of these only
URLs with host and port work. Of the defaults built into Hadoop it knows what it needs.

**Identity.** Of the whole process, since `hdfs_native` looks when it connects: on a cluster without
Kerberos ``HADOOP_USER_NAME``, else the account's name; tokens come from the file named by
``HADOOP_TOKEN_FILE_LOCATION``, Kerberos tickets from the usual cache.

**Threads.** Calls block and release the interpreter's lock; an `Hdfs` may be used by many threads,
but not on both sides of a fork.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from howdah.storage.hdfs import is_hdfs, split
from howdah.storage.hdfs.calls import Appender, close, opened, soon
from howdah.storage.hdfs.errors import NotClosedInTime, NotFound
from howdah.storage.hdfs.session import HdfsSession

__all__ = ["Hdfs", "HdfsStat", "is_hdfs", "split"]

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700

_CHUNK_BYTES = 4 * 1024 * 1024


class HdfsStat(msgspec.Struct, frozen=True, kw_only=True):
    """What HDFS knows of a file or folder."""

    path: str
    """Absolute, without scheme and host."""
    size: int
    mtime_ms: int
    """Of a file's last close; YARN compares it (and the size) before it localises."""
    is_dir: bool
    permission: int
    owner: str

    @property
    def name(self) -> str:
        return posixpath.basename(self.path)


class Hdfs(HdfsSession):
    """One file system. Nothing is connected before the first call.

    Paths may be given alone or as URLs of this file system. Errors are those of
    `howdah.storage.hdfs.errors`, all of them `OSError`s.
    """

    # -- looking ---------------------------------------------------------------------------------

    def stat(self, place: str) -> HdfsStat:
        """Raises: NotFound."""
        path = self.path(place)
        return self.call("look at", path, lambda c: soon(_look, c, path))

    def exists(self, place: str) -> bool:
        try:
            self.stat(place)
        except NotFound:
            return False
        return True

    def list(self, place: str, *, recursive: bool = False) -> list[HdfsStat]:
        """What is in a folder, by path; with ``recursive`` also in all folders below. Of a file,
        itself.

        Raises:
            NotFound: there is no such folder.
        """
        path = self.path(place)

        found = self.call("list", path, lambda c: soon(_found, c, path, recursive))
        return sorted(found, key=lambda stat: stat.path)

    # -- reading ---------------------------------------------------------------------------------

    def read(self, place: str) -> bytes:
        """A file's content.

        Of a file that is still open nothing after its last full block is seen.
        """
        return self.read_range(place, 0, None)

    def read_range(self, place: str, offset: int, length: int | None) -> bytes:
        """At most ``length`` bytes from ``offset`` on; empty at the end and past it."""
        path = self.path(place)

        return self.call("read", path, lambda c: soon(_read, c, path, offset, length))

    def get(
        self,
        place: str,
        local: Path | str,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Copy a file to a local one, which appears whole (0600); returns its size.

        Args:
            progress: told bytes done and in all.
        """
        path, target = self.path(place), Path(local)

        def get(client: Any) -> int:
            reader = soon(client.read, path)
            size, done = len(reader), 0
            temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
            try:
                with open(descriptor, "wb") as file:
                    stream = iter(reader.read_range_stream(0, size)) if size else None
                    while stream is not None and done < size:
                        chunk: bytes = soon(next, stream)
                        file.write(chunk)
                        done += len(chunk)
                        if progress is not None:
                            progress(done, size)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
            return size

        return self.call("read", path, get)

    # -- writing ---------------------------------------------------------------------------------

    def write(self, place: str, data: bytes, *, parents: bool = True) -> None:
        """Make a file with that content, 0600. Readers see the old one or the new one, never a part.

        Missing folders above are made, as open as the one they are made in.

        Raises:
            NotFound: there is no such folder, and ``parents`` is false.
        """
        options = _options(parents=parents)
        self._put(self.path(place), lambda: iter((data,)), len(data), options, True, None)

    def write_new(self, place: str, data: bytes) -> None:
        """Make a new file with that content, 0600, without a temporary name: sooner done than `write`,
        and while it lasts a reader sees an empty file.

        Raises:
            AlreadyThere: it exists.
        """
        path = self.path(place)

        def write(client: Any) -> None:
            close(client, soon(_write_new, client, path, data), path, len(data))

        self.create_new(path, write)

    def put(
        self,
        local: Path | str,
        place: str,
        progress: Callable[[int, int], None] | None = None,
        *,
        overwrite: bool = True,
        parents: bool = True,
    ) -> HdfsStat:
        """Copy a local file there as by `write`; returns what HDFS knows of the copy.

        Raises:
            NotFound: there is no such folder, and ``parents`` is false.
            AlreadyThere: it exists and ``overwrite`` is false.
            OSError: the local file can't be read, or shrinks meanwhile.
        """
        path = self.path(place)
        size = Path(local).stat().st_size
        options = _options(parents=parents)
        self._put(path, lambda: _chunks(Path(local), size), size, options, overwrite, progress)
        return self.stat(path)

    def create(self, place: str, *, permission: int = PRIVATE_FILE) -> Appender:
        """Begin a new file in a folder that is there, and keep it open for writing.

        Raises:
            AlreadyThere: it exists.
            NotFound: there is no such folder.
        """
        path = self.path(place)

        def create(client: Any) -> Appender:
            writer = soon(opened, client.create, path, _options(permission, parents=False))
            return Appender(client, self.fs, path, writer, 0)

        return self.create_new(path, create)

    def append(self, place: str) -> Appender:
        """Go on writing at the end of a closed file.

        Raises:
            NotFound: there is none.
            BeingWritten: it is open; see `recover_lease`.
        """
        path = self.path(place)

        def append(client: Any) -> Appender:
            writer = soon(opened, client.append, path)
            return Appender(client, self.fs, path, writer, soon(_look, client, path).size)

        return self.call("append to", path, append, wait_for_writer=False)

    def recover_lease(self, place: str, timeout_s: float = 0.0) -> bool:
        """Take the right to write a file away from whoever has it, and have it closed.

        From the first call on the former writer's `Appender.hsync` fails. What it had synchronised
        stays. Takes up to the DataNodes' heartbeat (3 s by default), for it is they who agree on
        the last block's length. Returns whether it is closed now.

        Raises:
            NotClosedInTime: it is still open after ``timeout_s``, if that is more than 0.
        """
        path = self.path(place)
        deadline = time.monotonic() + timeout_s
        pause_s = 0.01
        while True:
            closed = self.call(
                "recover", path, lambda c: bool(soon(c.recover_lease, path)), wait_for_writer=False
            )
            if closed or timeout_s <= 0:
                return closed
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise NotClosedInTime(
                    f"{self.url(path)} is still open after {timeout_s:g} s: its DataNodes have not"
                    " agreed on its last block. Are they up? See `hdfs fsck <path> -openforwrite`"
                )
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.5, 0.2)

    # -- arranging -------------------------------------------------------------------------------

    def mkdirs(
        self, place: str, permission: int = PRIVATE_FOLDER, *, within: str | None = None
    ) -> None:
        """Make the folder, and those above it that are missing, with that permission. One that
        exists is left as it is.

        Args:
            within: a folder above, which is not made: whoever removes it meanwhile has removed it.

        Raises:
            NotFound: ``within`` is not there.
            AlreadyThere, NotAFolder: there is a file of that name, or above.
        """
        path = self.path(place)
        if within is None:
            self.call("make the folder", path, lambda c: soon(c.mkdirs, path, permission, True))
            return
        root = self.path(within)
        if path == root:
            self.stat(root)
            return

        def make(client: Any) -> None:
            soon(client.mkdirs, path, permission, False)

        try:
            self.call("make the folder", path, make)
        except NotFound:
            self.mkdirs(posixpath.dirname(path), permission, within=root)
            self.call("make the folder", path, make)

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Move a file or folder; at no moment is there half of it.

        Raises:
            NotFound: there is no source.
            AlreadyThere: the target exists and ``overwrite`` is false.
        """
        old, new = self.path(source), self.path(target)
        tries = 0

        def rename(client: Any) -> None:
            nonlocal tries
            tries += 1
            try:
                soon(client.rename, old, new, overwrite)
            except FileNotFoundError:
                if tries == 1:
                    raise
                # The answer to an earlier try may have been lost with its connection.
                soon(client.get_file_info, new)

        self.call(f"rename to {new}", old, rename)

    def remove(self, place: str, *, recursive: bool = False) -> bool:
        """Remove a file or folder; False if there was none.

        Raises:
            NotEmpty: a folder with something in it, and ``recursive`` is false.
        """
        path = self.path(place)
        return self.call("remove", path, lambda c: bool(soon(c.delete, path, recursive)))

    def set_permission(self, place: str, permission: int) -> None:
        """Raises: NotFound."""
        path = self.path(place)
        self.call("set the permission of", path, lambda c: soon(c.set_permission, path, permission))

    # -- inside ----------------------------------------------------------------------------------

    def _put(
        self,
        path: str,
        chunks: Callable[[], Iterator[bytes]],
        size: int,
        options: Any,
        overwrite: bool,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        folder, name = posixpath.split(path)

        def put(client: Any) -> None:
            if not overwrite and self.exists(path):
                raise FileExistsError(path)
            temporary = f"{folder.rstrip('/')}/.{name}.{secrets.token_hex(4)}.tmp"
            try:
                writer = soon(opened, client.create, temporary, options)
                done = 0
                for chunk in chunks():
                    soon(writer.write, chunk)
                    done += len(chunk)
                    if progress is not None:
                        progress(done, size)
                close(client, writer, temporary, done)
                soon(client.rename, temporary, path, overwrite)
            except BaseException:
                with contextlib.suppress(Exception):
                    soon(client.delete, temporary, False)
                raise

        self.call("write", path, put)


# -- inside --------------------------------------------------------------------------------------


def _found(client: Any, path: str, recursive: bool) -> list[HdfsStat]:
    return [_stat(each, each.path) for each in client.list_status(path, recursive)]


def _read(client: Any, path: str, offset: int, length: int | None) -> bytes:
    reader = client.read(path)
    rest = len(reader) - offset
    rest = rest if length is None else min(length, rest)
    return bytes(reader.read_range(offset, rest)) if rest > 0 else b""


def _write_new(client: Any, path: str, data: bytes) -> Any:
    writer = opened(client.create, path, _options())
    writer.write(data)
    return writer


def _look(client: Any, path: str) -> HdfsStat:
    return _stat(client.get_file_info(path), path)


def _options(permission: int = PRIVATE_FILE, *, parents: bool = True) -> Any:
    from hdfs_native import WriteOptions

    return WriteOptions(permission=permission, overwrite=False, create_parent=parents)


def _stat(status: Any, path: str) -> HdfsStat:
    return HdfsStat(
        path=split(str(status.path or path))[1],
        size=status.length,
        mtime_ms=status.modification_time,
        is_dir=status.isdir,
        permission=status.permission & 0o7777,
        owner=status.owner,
    )


def _chunks(path: Path, size: int) -> Iterator[bytes]:
    left = size
    with path.open("rb", buffering=0) as file:
        while left > 0:
            chunk = file.read(min(_CHUNK_BYTES, left))
            if not chunk:
                raise OSError(errno.EIO, "became shorter while it was copied", str(path))
            left -= len(chunk)
            yield chunk
