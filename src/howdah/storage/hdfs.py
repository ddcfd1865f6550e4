"""Files on HDFS, without a JVM: a thin layer over `hdfs_native` (Rust).

Called directly, never through fsspec: `hdfs_native` registers itself for fsspec's ``hdfs://`` where
it is installed. It is imported at the first call, so that who only might need HDFS pays nothing.

**Configuration.** `hdfs_native` reads ``core-site.xml`` and ``hdfs-site.xml`` of ``conf_dir`` if
given, else of ``$HADOOP_CONF_DIR``, else of ``$HADOOP_HOME/etc/hadoop``; without any of these only
URLs with host and port work. Of the defaults built into Hadoop it knows what it needs.

**Identity.** Of the whole process, since `hdfs_native` looks when it connects: on a cluster without
Kerberos ``HADOOP_USER_NAME``, else the account's name; tokens come from the file named by
``HADOOP_TOKEN_FILE_LOCATION``, Kerberos tickets from the usual cache.

**Threads.** Calls block and release the interpreter's lock; an `Hdfs` may be used by many threads.

Not guaranteed: that a call returns soon. `hdfs_native` has no time-out for a NameNode that takes
connections and does not answer.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import posixpath
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from howdah.storage.hdfs_errors import (
    BeingWritten,
    HdfsError,
    NotClosedInTime,
    NotFound,
    translate,
)

SCHEMES = ("hdfs", "viewfs")

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700

_CHUNK_BYTES = 4 * 1024 * 1024
_CONFIG = {
    # The client's own retries (15 with up to 15 s between) know no deadline; ours do.
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "20",
    "dfs.client.failover.sleep.max.millis": "100",
}
_CLOSE_RETRY_S = 0.5
"""How long `hdfs_native` sleeps when it closes a file a moment before the NameNode knows that its
last block is stored, which is most of the time."""

_T = TypeVar("_T")


class Stat(msgspec.Struct, frozen=True, kw_only=True):
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


def is_hdfs(place: str) -> bool:
    """Whether a path or URL is for this module."""
    return place.startswith("hdfs://")


def split(url: str) -> tuple[str, str]:
    """File system and path of a URL: ``("hdfs://nn:8020", "/a/b")``; the first is empty for a path
    or for ``hdfs:///a/b``, which stand for the default file system.

    Raises:
        ValueError: it is a URL of something else, or a relative path.
    """
    if "://" not in url:
        if not url.startswith("/"):
            raise ValueError(f"{url!r} is neither an absolute path nor an hdfs:// URL")
        return "", posixpath.normpath(url)
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ValueError(f"{url!r} is no URL of HDFS: it begins with {parts.scheme}://")
    fs = f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""
    path = unquote(parts.path) if "%" in parts.path else parts.path
    return fs, posixpath.normpath(path or "/")


class Hdfs:
    """One file system. Nothing is connected before the first call.

    Paths may be given alone or as URLs of this file system. Errors are those of
    `howdah.storage.hdfs_errors`, all of them `OSError`s.
    """

    def __init__(
        self,
        url_or_fs: str | None = None,
        *,
        conf_dir: str | None = None,
        user: str | None = None,
        patience_s: float = 0.0,
    ) -> None:
        """
        Args:
            url_or_fs: any URL of the file system; None, or one without a host, is the default.
            conf_dir: folder of the cluster's XML; see the module's text for what is used without.
            user: who to be on a cluster without Kerberos, for the whole process.
            patience_s: how long each call waits for a NameNode that is down, restarts or is in
                safe mode before it raises.

        Raises:
            ValueError: no URL of HDFS, or the process is somebody else on HDFS already.
        """
        self.fs = split(url_or_fs)[0] if url_or_fs else ""
        self.patience_s = patience_s
        self._conf_dir = conf_dir
        self._made: list[Any] = []
        self._lock = threading.Lock()
        if user is not None:
            _be(user)

    def __repr__(self) -> str:
        return f"Hdfs({self.fs!r})"

    def patient(self, patience_s: float) -> Hdfs:
        """The same connection with another patience."""
        other = Hdfs(None, conf_dir=self._conf_dir, patience_s=patience_s)
        other.fs, other._made, other._lock = self.fs, self._made, self._lock
        return other

    def path(self, place: str) -> str:
        """The path of a path or URL.

        Raises:
            ValueError: it is on another file system.
        """
        fs, path = split(place)
        if fs and self.fs and fs != self.fs:
            raise ValueError(f"{place} is not on {self.fs}")
        return path

    def url(self, place: str) -> str:
        """The URL of a path."""
        return f"{self.fs or 'hdfs://'}{self.path(place)}"

    # -- looking ---------------------------------------------------------------------------------

    def stat(self, place: str) -> Stat:
        """Raises: NotFound."""
        path = self.path(place)
        return _stat(self._call("look at", path, lambda c: c.get_file_info(path)), path)

    def exists(self, place: str) -> bool:
        """Whether there is a file or folder."""
        try:
            self.stat(place)
        except NotFound:
            return False
        return True

    def list(self, place: str, *, recursive: bool = False) -> list[Stat]:
        """What is in a folder, by name; with ``recursive`` also in all folders below. Of a file,
        itself.

        Raises:
            NotFound: there is no such folder.
        """
        path = self.path(place)
        found = self._call("list", path, lambda c: list(c.list_status(path, recursive)))
        return sorted((_stat(each, each.path) for each in found), key=lambda stat: stat.path)

    # -- reading ---------------------------------------------------------------------------------

    def read(self, place: str) -> bytes:
        """A file's content.

        Of a file that is still open nothing after its last full block is seen.
        """
        path = self.path(place)
        return self._call("read", path, lambda c: bytes(c.read(path).read()))

    def read_range(self, place: str, offset: int, length: int) -> bytes:
        """At most ``length`` bytes from ``offset`` on; empty at the end and past it."""
        path = self.path(place)

        def read(client: Any) -> bytes:
            reader = client.read(path)
            rest = min(length, len(reader) - offset)
            return bytes(reader.read_range(offset, rest)) if rest > 0 else b""

        return self._call("read", path, read)

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
            reader = client.read(path)
            size, done = len(reader), 0
            temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
            try:
                with open(descriptor, "wb") as file:
                    for chunk in reader.read_range_stream(0, size) if size else ():
                        file.write(chunk)
                        done += len(chunk)
                        if progress is not None:
                            progress(done, size)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
            return size

        return self._call("read", path, get)

    # -- writing ---------------------------------------------------------------------------------

    def write(
        self, place: str, data: bytes, *, permission: int = PRIVATE_FILE, overwrite: bool = True
    ) -> None:
        """Make a file with that content. Readers see the old one or the new one, never a part.

        Missing folders above are made, as open as the one they are made in.

        Raises:
            AlreadyThere: it exists and ``overwrite`` is false.
        """
        self._put(self.path(place), lambda: iter((data,)), len(data), permission, overwrite, None)

    def write_new(self, place: str, data: bytes, *, permission: int = PRIVATE_FILE) -> None:
        """Make a new file with that content, without a temporary name: sooner done than `write`,
        and while it lasts a reader sees an empty file.

        Raises:
            AlreadyThere: it exists.
        """
        path = self.path(place)

        def write(client: Any) -> None:
            writer = client.create(path, _options(permission, False))
            writer.write(data)
            close(client, writer, path, len(data))

        self._call("create", path, write)

    def put(
        self,
        local: Path | str,
        place: str,
        progress: Callable[[int, int], None] | None = None,
        *,
        permission: int = PRIVATE_FILE,
        overwrite: bool = True,
    ) -> Stat:
        """Copy a local file there as by `write`; returns what HDFS knows of the copy.

        Raises:
            AlreadyThere: it exists and ``overwrite`` is false.
            OSError: the local file can't be read, or shrinks meanwhile.
        """
        path = self.path(place)
        size = Path(local).stat().st_size
        self._put(path, lambda: _chunks(Path(local), size), size, permission, overwrite, progress)
        return self.stat(path)

    def create(self, place: str, *, permission: int = PRIVATE_FILE) -> Appender:
        """Begin a new file and keep it open for writing.

        Raises:
            AlreadyThere: it exists.
        """
        path = self.path(place)
        writer = self._call("create", path, lambda c: c.create(path, _options(permission, False)))
        return Appender(self, path, writer, 0)

    def append(self, place: str) -> Appender:
        """Go on writing at the end of a closed file.

        Raises:
            NotFound: there is none.
            BeingWritten: it is open; see `recover_lease`.
        """
        path = self.path(place)
        size = self.stat(path).size
        writer = self._call("append to", path, lambda c: c.append(path), wait_for_writer=False)
        return Appender(self, path, writer, size)

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
            closed = self._call(
                "recover", path, lambda c: bool(c.recover_lease(path)), wait_for_writer=False
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

    def mkdirs(self, place: str, permission: int = PRIVATE_FOLDER) -> None:
        """Make the folder, and those above it that are missing, with that permission. One that
        exists is left as it is.

        Raises:
            AlreadyThere, NotAFolder: there is a file of that name, or above.
        """
        path = self.path(place)
        self._call("make the folder", path, lambda c: c.mkdirs(path, permission, True))

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
                client.rename(old, new, overwrite)
            except FileNotFoundError:
                # The answer to an earlier try may have been lost with its connection.
                if tries == 1 or not self.exists(new):
                    raise

        self._call(f"rename to {new}", old, rename)

    def remove(self, place: str, *, recursive: bool = False) -> bool:
        """Remove a file or folder; False if there was none.

        Raises:
            NotEmpty: a folder with something in it, and ``recursive`` is false.
        """
        path = self.path(place)
        return self._call("remove", path, lambda c: bool(c.delete(path, recursive)))

    def set_permission(self, place: str, permission: int) -> None:
        """Raises: NotFound."""
        path = self.path(place)
        self._call("set the permission of", path, lambda c: c.set_permission(path, permission))

    # -- inside ----------------------------------------------------------------------------------

    def _client(self) -> Any:
        with self._lock:
            if not self._made:
                import hdfs_native

                try:
                    self._made.append(
                        hdfs_native.Client(
                            self.fs or None, config=_CONFIG, config_dir=self._conf_dir
                        )
                    )
                except Exception as error:
                    raise HdfsError(
                        f"HDFS can't be used: {error}. Set HADOOP_CONF_DIR to the folder with the"
                        " cluster's core-site.xml and hdfs-site.xml, or give a URL with host and"
                        " port"
                    ) from error
            return self._made[0]

    def _call(
        self, what: str, path: str, work: Callable[[Any], _T], *, wait_for_writer: bool = True
    ) -> _T:
        """Do it, again while it fails for a transient reason and there is patience left."""
        deadline = time.monotonic() + self.patience_s
        pause_s = 0.05
        while True:
            try:
                return work(self._client())
            except HdfsError as error:
                problem = error
            except Exception as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # a local file's: hdfs_native gives texts alone
                problem = translate(error, what, path, self.fs)
                problem.__cause__ = error
            again = problem.transient and (wait_for_writer or not isinstance(problem, BeingWritten))
            if not again or time.monotonic() + pause_s > deadline:
                raise problem
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 1.0)

    def _put(
        self,
        path: str,
        chunks: Callable[[], Iterator[bytes]],
        size: int,
        permission: int,
        overwrite: bool,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        folder, name = posixpath.split(path)
        if not overwrite and self.exists(path):
            self._call("create", path, lambda c: _raise(FileExistsError(path)))

        def put(client: Any) -> None:
            temporary = f"{folder.rstrip('/')}/.{name}.{secrets.token_hex(4)}.tmp"
            try:
                writer = client.create(temporary, _options(permission, False))
                done = 0
                for chunk in chunks():
                    writer.write(chunk)
                    done += len(chunk)
                    if progress is not None:
                        progress(done, size)
                close(client, writer, temporary, done)
                client.rename(temporary, path, overwrite)
            except BaseException:
                with contextlib.suppress(Exception):
                    client.delete(temporary, False)
                raise

        self._call("write", path, put)


class Appender:
    """A file open for writing at its end, by one thread at a time."""

    def __init__(self, hdfs: Hdfs, path: str, writer: Any, size: int) -> None:
        self.path = path
        self.size = size
        """Bytes of the file with all that was written."""
        self._hdfs = hdfs
        self._writer = writer
        self._closed = False

    def write(self, data: bytes) -> None:
        """Add the bytes. They are durable after `hsync`, visible to others after `close`.

        Raises:
            LeaseLost: another process has taken the file over.
            NoDataNode: a DataNode died: recover the lease, then append anew.
        """
        self._do("write", lambda: self._writer.write(data))
        self.size += len(data)

    def hsync(self) -> None:
        """Return once all that was written is on the DataNodes' disks.

        It asks the NameNode too, so after somebody else's `Hdfs.recover_lease` it fails.

        Raises:
            HdfsError: as for `write`; what was written since the last one may be there or not.
        """
        self._do("synchronise", self._writer.hsync)

    def close(self) -> None:
        """End the file. Closing twice is harmless.

        Raises:
            HdfsError: what was written since the last `hsync` may be lost.
        """
        if not self._closed:
            self._closed = True
            self._do(
                "close", lambda: close(self._hdfs._client(), self._writer, self.path, self.size)
            )

    def abandon(self) -> None:
        """Let go without a word to HDFS; the file stays open until its lease is recovered."""
        self._closed = True

    def _do(self, what: str, work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as error:
            raise translate(error, what, self.path, self._hdfs.fs) from error


def close(client: Any, writer: Any, path: str, size: int) -> None:
    """Close a writer of `hdfs_native` without its half-second nap.

    The NameNode hears of the last block from the DataNode about a millisecond after the client has
    asked it to complete the file; `hdfs_native` then sleeps for half a second before it asks again.
    The length a reader is told counts complete blocks only: when it is all of the file, the block
    is committed and stored, and recovering the lease does nothing but close the file.
    """
    if size == 0:
        writer.close()
        return
    done = threading.Event()
    problem: list[BaseException] = []

    def run() -> None:
        try:
            writer.close()
        except BaseException as error:
            problem.append(error)
        finally:
            _closing.discard(done)
            done.set()

    _closing.add(done)
    threading.Thread(target=run, name="hdfs-close", daemon=True).start()
    pause_s = 0.0015
    while not done.wait(pause_s):
        with contextlib.suppress(Exception):
            if len(client.read(path)) == size and client.recover_lease(path):
                return
        pause_s = min(pause_s * 1.5, 0.1)
    if problem:
        raise problem[0]


_closing: set[threading.Event] = set()


@atexit.register
def _wait_for_closing() -> None:
    # A thread that comes back from Rust while the interpreter goes down ends the process by abort.
    deadline = time.monotonic() + 2 * _CLOSE_RETRY_S
    for event in list(_closing):
        event.wait(max(deadline - time.monotonic(), 0))


def _be(user: str) -> None:
    former = os.environ.get("HADOOP_USER_NAME")
    if former not in (None, user):
        raise ValueError(
            f"This process is {former!r} on HDFS (HADOOP_USER_NAME) and can't be {user!r} too"
        )
    os.environ["HADOOP_USER_NAME"] = user


def _options(permission: int, overwrite: bool) -> Any:
    from hdfs_native import WriteOptions

    return WriteOptions(permission=permission, overwrite=overwrite)


def _stat(status: Any, path: str) -> Stat:
    return Stat(
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


def _raise(error: Exception) -> Any:
    raise error
