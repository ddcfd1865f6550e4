"""A model's files on their way to Spark's Python workers.

A path of this machine is packed and sent by Spark, unless Spark runs on this machine alone. A path
that is not here is taken to be one the executors see (a shared file system). A URL (HDFS, or
whatever fsspec knows) is fetched by each executor, once.
"""

from __future__ import annotations

import atexit
import contextlib
import enum
import fcntl
import functools
import hashlib
import os
import posixpath
import secrets
import shutil
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from howdah.spark.scoring.errors import ScoringError
from howdah.spark.tfrecord.filesystems import qualified

_sending = threading.Lock()
_told: set[tuple[str, str]] = set()
"""Applications and the models they have."""


class Way(enum.Enum):
    """How a worker gets the files."""

    NONE = "none"
    SEEN = "seen"
    """The path is a path there too."""
    SENT = "sent"
    """Spark has brought a tar file of that name."""
    FETCHED = "fetched"
    """The path is a URL."""


class ModelFiles(msgspec.Struct, frozen=True):
    """Where a worker finds a model, and what tells this state of it from others."""

    way: Way = Way.NONE
    path: str = ""
    key: str = ""
    """Changes with the content."""


def prepare(spark: Any, path: str) -> ModelFiles:
    """Make a model's files available to the workers of this session.

    Raises:
        ScoringError: nothing is at that URL.
    """
    if not path:
        return ModelFiles()
    local = local_path(path)
    if local is None:
        return ModelFiles(Way.FETCHED, path, _state_of_url(path))
    if not local.exists():
        return ModelFiles(Way.SEEN, str(local), str(local))
    if _one_machine(spark):
        return ModelFiles(Way.SEEN, str(local), _state(local))
    return _sent(spark, local)


def local_path(path: str) -> Path | None:
    """A path as this machine and the executors have it, there or not; None for a URL."""
    if "://" in path and not path.startswith("file:"):
        return None
    return Path(qualified(path))


@contextlib.contextmanager
def at_hand(files: ModelFiles) -> Iterator[str]:
    """In a worker: the local path, for the time of loading.

    Raises:
        ScoringError: it is not there.
    """
    if files.way is Way.NONE:
        yield ""
    elif files.way is Way.SEEN:
        if not os.path.exists(files.path):
            raise ScoringError(
                f"the model {files.path} is neither on the driver's machine nor on "
                f"{os.uname().nodename}; put it where all executors see it, or give its URL"
            )
        yield files.path
    else:
        yield str(_unpacked(files))


def _one_machine(spark: Any) -> bool:
    context = getattr(spark, "_sc", None)
    return context is not None and str(context.master).startswith("local")


def _state(path: Path) -> str:
    """Of all files: names, sizes, times of the last change."""
    digest = hashlib.sha256(str(path).encode())
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            stat = file.stat()
            digest.update(f"{file}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _state_of_url(url: str) -> str:
    found = _listing(url)
    if not found:
        raise ScoringError(f"there is no model at {url}; look at the path, or export it first")
    lines = [f"{name}\0{state}" for name, state in sorted(found.items())]
    return hashlib.sha256("\n".join([url, *lines]).encode()).hexdigest()


def _listing(url: str) -> dict[str, str]:
    """All files below, relative (empty for the file itself), with something that changes."""
    from howdah.storage.hdfs_names import is_hdfs

    if is_hdfs(url):
        from howdah.storage.hdfs import Hdfs

        hdfs = Hdfs(url)
        root = hdfs.path(url)
        if not hdfs.exists(url):
            return {}
        stat = hdfs.stat(url)
        found = hdfs.list(url, recursive=True) if stat.is_dir else [stat]
        return {
            item.path.removeprefix(root).lstrip("/"): f"{item.size} {item.mtime_ms}"
            for item in found
            if not item.is_dir
        }
    from fsspec.core import url_to_fs

    fs: Any
    fs, root = url_to_fs(url)
    root = str(root).rstrip("/")
    listed: dict[str, Any] = fs.find(root, detail=True)
    keys = ("size", "etag", "ETag", "mtime", "LastModified", "updated", "generation")
    return {
        name.removeprefix(root).lstrip("/"): " ".join(str(info.get(key, "")) for key in keys)
        for name, info in listed.items()
    }


def _fetch(url: str, target: Path) -> None:
    from howdah.storage.hdfs_names import is_hdfs

    def local(name: str) -> Path:
        path = target / name if name else target / posixpath.basename(url.rstrip("/"))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    if is_hdfs(url):
        from howdah.storage.hdfs import Hdfs

        hdfs = Hdfs(url)
        root = hdfs.path(url)
        for name in _listing(url):
            hdfs.get(f"{root}/{name}".rstrip("/"), local(name))
        return
    from fsspec.core import url_to_fs

    fs: Any
    fs, root = url_to_fs(url)
    root = str(root).rstrip("/")
    for name in _listing(url):
        fs.get_file(f"{root}/{name}".rstrip("/"), str(local(name)))


def _sent(spark: Any, local: Path) -> ModelFiles:
    """Pack and hand it to Spark, the same content once an application: Spark knows files by name
    and refuses a second one of a name from elsewhere."""
    folder = _folder()
    packed = folder / f".{secrets.token_hex(8)}.tar"
    pack(local, packed)
    with packed.open("rb") as file:
        key = hashlib.file_digest(file, "sha256").hexdigest()
    final = packed.replace(folder / f"howdah-model-{key[:32]}.tar")
    files = ModelFiles(Way.SENT, final.name, key)
    context = getattr(spark, "_sc", None)
    application = spark.session_id if context is None else context.applicationId
    with _sending:
        if (application, key) not in _told:
            if context is None:
                spark.addArtifacts(str(final), file=True)
            else:
                context.addFile(str(final))
            _told.add((application, key))
    return files


@functools.cache
def _folder() -> Path:
    """Of this process: executors that start later fetch from there."""
    folder = Path(tempfile.mkdtemp(prefix="howdah-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def pack(source: Path, target: Path) -> None:
    """A folder or file as a tar file; the same content gives the same bytes."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = 0
        return info

    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(source, source.name or "model", filter=plain)


def unpack(packed: Path, folder: Path) -> Path:
    """Into an empty folder; the path of the one file or folder that was packed."""
    with tarfile.open(packed) as tar:
        tar.extractall(folder, filter="data")
    return next(folder.iterdir())


def _unpacked(files: ModelFiles) -> Path:
    """The local copy, made by the first worker of the executor that asks."""
    from pyspark import SparkFiles

    root = Path(SparkFiles.getRootDirectory())
    target = root / f"howdah-model-{files.key[:32]}"
    with (root / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            temporary = Path(tempfile.mkdtemp(prefix=".howdah-model-", dir=root))
            try:
                if files.way is Way.SENT:
                    unpack(Path(SparkFiles.get(files.path)), temporary)
                else:
                    name = posixpath.basename(files.path.rstrip("/"))
                    inner = temporary / name
                    single = set(_listing(files.path)) == {""}
                    _fetch(files.path, temporary if single else inner)
                temporary.rename(target)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
    return next(path for path in target.iterdir())
