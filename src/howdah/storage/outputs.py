"""Copy a task's output folders to the job's store when the task has ended.

Run by agents as a helper process::

    python -m howdah.storage.outputs <spec.json>

with an `OutputSpec`; it prints one `Copied` as a JSON object and exits 0, or `Problem` and 1.
A later attempt's files replace those of an earlier one; other files stay.
"""

from __future__ import annotations

import posixpath
import secrets
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from howdah.storage.files import make_private_folder
from howdah.storage.folders import scan
from howdah.storage.hdfs_names import is_hdfs
from howdah.storage.stores import HDFS_PATIENCE_S
from howdah.storage.versions import Problem


class OutputSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to copy where."""

    base: str
    """The task's working folder."""
    folders: tuple[str, ...]
    """Relative to ``base``; a file counts as a folder of one file."""
    store: str
    """The task's own place: a path or fsspec URL. A folder ``a/b`` becomes ``<store>/a/b``."""


def job_place(store: str, job_id: str) -> str:
    """Where agents put the outputs of a job below a store its job file names.

    On HDFS that is a hidden folder, which becomes `published` when the job has succeeded: readers
    there find outputs of a whole job or none. Elsewhere it is the place itself.
    """
    place = published(store, job_id)
    folder, _, name = place.rpartition("/")
    return f"{folder}/.{name}.incomplete" if is_hdfs(store) else place


def published(store: str, job_id: str) -> str:
    """Where the outputs of a job are below a store its job file names."""
    return f"{store.rstrip('/')}/{job_id}"


def publish(store: str, job_id: str) -> bool:
    """The job has succeeded: let its outputs be seen, all at once. False if there are none.

    Raises:
        OSError: they could not be; they are at `job_place`.
    """
    if not is_hdfs(store):
        return True
    from howdah.storage.hdfs import Hdfs

    hdfs = Hdfs(store, patience_s=HDFS_PATIENCE_S)
    try:
        hdfs.rename(job_place(store, job_id), published(store, job_id))
    except FileExistsError:
        # A coordinator died right after it had done this.
        return not hdfs.exists(job_place(store, job_id))
    except FileNotFoundError:
        return hdfs.exists(published(store, job_id))
    return True


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    files: int
    bytes: int
    problems: tuple[str, ...] = ()
    """Files that could not be copied, and why; the others were."""


def copy(spec: OutputSpec) -> Copied:
    """Copy all folders that exist.

    Raises:
        OSError: the store can't be written at all.
    """
    put = putter(spec.store)
    base = Path(spec.base)
    count = size = 0
    problems: list[str] = []
    for path in sorted({path for folder in spec.folders for path in _files(base, folder)}):
        try:
            put(base / path, path)
        except (OSError, shutil.Error) as error:
            problems.append(f"{path}: {error}")
            continue
        count += 1
        size += (base / path).stat().st_size
    return Copied(files=count, bytes=size, problems=tuple(problems))


def _files(base: Path, folder: str) -> list[str]:
    inside = posixpath.normpath(folder)
    if posixpath.isabs(inside) or inside.startswith(".."):
        raise OSError(f"The output folder {folder!r} is not inside the task's working folder")
    if (base / inside).is_file():
        return [inside]
    found = scan(base / inside)
    return [
        posixpath.normpath(f"{inside}/{name}")
        for name, signature in found.items()
        if not signature.link or (base / inside / name).is_file()
    ]


def putter(store: str) -> Callable[[Path, str], None]:
    """How files are put into a place, a path or fsspec URL: ``put(file, name)``.

    Raises:
        OSError: there is no such place.
    """
    if store.startswith("file://"):
        store = store.removeprefix("file://")
    if is_hdfs(store):
        return _hdfs_putter(store)
    if "://" in store or "::" in store:
        return _url_putter(store)
    root = Path(store).expanduser()
    make_private_folder(root)

    def put(source: Path, name: str) -> None:
        target = root / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Readers see the old file or the new one whole.
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        try:
            shutil.copy2(source, temporary)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

    return put


def _hdfs_putter(url: str) -> Any:
    from howdah.storage.hdfs import Hdfs

    hdfs = Hdfs(url, patience_s=HDFS_PATIENCE_S)
    hdfs.mkdirs(url)
    return lambda source, name: hdfs.put(source, f"{url.rstrip('/')}/{name}")


def _url_putter(url: str) -> Callable[[Path, str], None]:
    from fsspec.core import url_to_fs

    fs: Any
    fs, root = url_to_fs(url)

    def put(source: Path, name: str) -> None:
        target = f"{str(root).rstrip('/')}/{name}"
        fs.makedirs(posixpath.dirname(target), exist_ok=True)
        fs.put_file(str(source), target)

    return put


def main(arguments: Sequence[str]) -> int:
    """Run as a process; returns its exit status."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m howdah.storage.outputs <spec.json>\n")
        return 2
    try:
        with open(arguments[0], "rb") as file:
            result: Copied | Problem = copy(msgspec.json.decode(file.read(), type=OutputSpec))
    except Exception as error:
        # fsspec's stores raise what they like; the agent wants words, not a traceback.
        result = Problem(problem=f"{type(error).__name__}: {error}")
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    return 0 if isinstance(result, Copied) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
