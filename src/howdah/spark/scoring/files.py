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

from howdah.packing import unpacking
from howdah.spark.errors import ScoringError
from howdah.spark.tfrecord.filesystems import LocalFiles, file_system, qualified

_sending = threading.Lock()
_told: set[tuple[str, str]] = set()
"""Applications and the models they have."""
_by_state: dict[tuple[str, str], ModelFiles] = {}
"""By application and state of the files, so that the same ones are packed once."""


class FilesAccess(enum.Enum):
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

    way: FilesAccess = FilesAccess.NONE
    path: str = ""
    key: str = ""
    """Changes with the content. Of `SENT` files; for others see `present`."""


def prepare(spark: Any, path: str) -> ModelFiles:
    """Make a model's files available to the workers of this session.

    Raises:
        ScoringError: nothing is at that URL.
    """
    if not path:
        return ModelFiles()
    local = local_path(path)
    if local is None:
        url = qualified(path)
        _state_of_url(url)
        return ModelFiles(FilesAccess.FETCHED, url)
    if not local.exists() or _one_machine(spark):
        return ModelFiles(FilesAccess.SEEN, str(local))
    return _sent(spark, local)


def present(files: ModelFiles) -> ModelFiles:
    """In a worker: the same, with what tells the files as they are now from others.

    Raises:
        ScoringError: nothing is there.
    """
    if files.way is FilesAccess.SEEN:
        return msgspec.structs.replace(files, key=_state(Path(files.path)))
    if files.way is FilesAccess.FETCHED:
        return msgspec.structs.replace(files, key=_state_of_url(files.path))
    return files


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
    if files.way is FilesAccess.NONE:
        yield ""
    elif files.way is FilesAccess.SEEN:
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
    try:
        found = file_system(url).files(url)
    except FileNotFoundError:
        return {}
    return {file.path.removeprefix(url).lstrip("/"): f"{file.size} {file.state}" for file in found}


def _fetch(url: str, target: Path) -> None:
    """A file, or a folder with all that is in it."""
    fs = file_system(url)
    assert not isinstance(fs, LocalFiles)
    for name in _listing(url):
        local = target / name
        local.parent.mkdir(parents=True, exist_ok=True)
        fs.get(url, name, local)


def _sent(spark: Any, local: Path) -> ModelFiles:
    """Pack and hand it to Spark, the same content once an application: Spark knows files by name
    and refuses a second one of a name from elsewhere."""
    context = getattr(spark, "_sc", None)
    application = spark.session_id if context is None else context.applicationId
    with _sending:
        # Taken before packing: what changes meanwhile has another state, and is packed again.
        state = (application, _state(local))
        if state not in _by_state:
            packed, key = _packed(local)
            if (application, key) not in _told:
                if context is None:
                    spark.addArtifacts(str(packed), file=True)
                else:
                    context.addFile(str(packed))
                _told.add((application, key))
            _by_state[state] = ModelFiles(FilesAccess.SENT, packed.name, key)
        return _by_state[state]


def _packed(local: Path) -> tuple[Path, str]:
    """As a tar file that is called by its content, and that."""
    draft = _folder() / f".{secrets.token_hex(8)}.tar"
    pack(local, draft)
    with draft.open("rb") as file:
        key = hashlib.file_digest(file, "sha256").hexdigest()
    return draft.replace(_folder() / f"howdah-model-{key[:32]}.tar"), key


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
        unpacking.unpack(tar, folder)
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
                if files.way is FilesAccess.SENT:
                    unpack(Path(SparkFiles.get(files.path)), temporary)
                else:
                    _fetch(files.path, temporary / posixpath.basename(files.path))
                temporary.rename(target)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
    return next(path for path in target.iterdir())
