"""Copy a task's output folders to the job's store when the task has ended, and the log of an attempt to
the job directory where agents cannot write it there.

Agents have a helper process do it (`howdah.storage.helper`). A later attempt's files replace those of an
earlier one, never the other way round (`howdah.storage.stores.destinations`); other files stay.
"""

from __future__ import annotations

import posixpath
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from howdah.storage import logs
from howdah.storage.checkpoints.versions import CheckpointProblem, Note
from howdah.storage.confined_paths import to_name
from howdah.storage.errors import Outdated, in_words, is_transient, lacks_room
from howdah.storage.folders import links_left_out, scan
from howdah.storage.hdfs import is_hdfs
from howdah.storage.stores.checkpoint_stores import HDFS_PATIENCE_S
from howdah.storage.stores.destinations import Destination, open_destination

_PAUSE_S = (0.25, 5.0)
"""First and longest pause before what failed is tried again."""
_PATIENCE_S = 5.0
"""For each call to HDFS: what fails is tried again here."""
FULL_S = 10.0
"""As `howdah.storage.checkpoints.watching.FULL_S`."""
_LOG_PATIENCE_S = 15.0
"""The same for a log: an agent that is to go does not wait much longer."""


class OutputSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to copy where."""

    base: str
    """The task's working folder."""
    folders: tuple[str, ...]
    """Relative to ``base``; a file counts as a folder of one file."""
    files: dict[str, str] = {}
    """More files: paths relative to ``base`` by name in the store; in the agent's document as
    `howdah.storage.confined_paths.to_text` has them."""
    store: str
    """The task's own place: a path or fsspec URL. A folder ``a/b`` becomes ``<store>/a/b``."""
    attempt: int = 0
    """Whose outputs they are; see `howdah.storage.stores.destinations`."""
    job_dir: str | None = None
    """The job directory if the store is in it; it is not made again if it was removed."""
    limit_s: float = 0.0
    """How long what fails may be tried again."""


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
    from howdah.storage.hdfs.files import Hdfs

    hdfs = Hdfs(store, patience_s=HDFS_PATIENCE_S)
    try:
        hdfs.rename(job_place(store, job_id), published(store, job_id))
    except FileExistsError:
        if hdfs.exists(job_place(store, job_id)):
            raise  # a program, say, has written there itself
    except FileNotFoundError:
        return hdfs.exists(published(store, job_id))
    return True


UNPUBLISHED = "outputs: not published, they are in "
"""How the line of `unpublished` begins."""


def unpublished(store: str, job_id: str, error: Exception) -> str:
    """What a user is told of outputs that `publish` could not publish."""
    place = job_place(store, job_id)
    return f"{UNPUBLISHED}{place}: {in_words(error)}; rename that folder to {job_id}"


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    files: int
    """Of the folders."""
    kept: int
    """Of `OutputSpec.files`."""
    bytes: int
    problems: tuple[str, ...] = ()
    """A line for each folder of which something could not be copied; the rest was."""


def copy(
    spec: OutputSpec, report: Callable[[CheckpointProblem | Note], None] = lambda problem: None
) -> Copied:
    """Copy all folders that exist. What fails for a reason that may pass is tried again for
    ``limit_s`` seconds; that it failed once goes to ``report``, and which links are left out.

    Raises:
        Outdated: a later attempt has copied its outputs.
        OSError: a folder is not inside the task's working folder.
    """
    base = Path(spec.base)
    found = {folder: _files(base, folder, report) for folder in spec.folders}
    if spec.files:
        found["its working folder"] = list(spec.files)
    waiting = sorted({path for paths in found.values() for path in paths})
    sizes: dict[str, int] = {}
    failed: dict[str, Exception] = {}
    began = time.monotonic()
    deadline, pause_s, reported = began + spec.limit_s, _PAUSE_S[0], False
    place: Destination | None = None
    while waiting:
        failed = {}
        for path in waiting:
            try:
                place = place or open_destination(
                    spec.store,
                    attempt=spec.attempt,
                    patience_s=_PATIENCE_S,
                    within=spec.job_dir,
                )
                file = base / spec.files.get(path, path)
                place.put(file, path)
                sizes[path] = file.stat().st_size
            except Outdated:
                raise
            except Exception as error:
                # fsspec's stores raise what they like.
                failed[path] = error
                if place is None:
                    failed = dict.fromkeys(waiting, error)
                    break
        passing = [error for error in failed.values() if is_transient(error)]
        if all(map(lacks_room, passing)):
            deadline = min(deadline, began + FULL_S)
        if not passing or time.monotonic() + pause_s > deadline:
            break
        if not reported:
            report(
                CheckpointProblem(problem="; ".join(_problems(spec, found, failed)), transient=True)
            )
            reported = True
        waiting = sorted(failed)
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_S[1])
    problems = tuple(_problems(spec, found, failed))
    kept = len(sizes.keys() & spec.files.keys())
    return Copied(files=len(sizes) - kept, kept=kept, bytes=sum(sizes.values()), problems=problems)


def _problems(
    spec: OutputSpec, found: Mapping[str, Sequence[str]], failed: Mapping[str, Exception]
) -> Iterator[str]:
    for folder, paths in found.items():
        missing = [path for path in paths if path in failed]
        if missing:
            why = f"{missing[0]}: {in_words(failed[missing[0]])}"
            yield f"{folder}: {len(missing)} of {len(paths)} files not copied to {spec.store}: {why}"


def _files(base: Path, folder: str, report: Callable[[Note], None]) -> list[str]:
    inside = posixpath.normpath(folder)
    if posixpath.isabs(inside) or inside.startswith(".."):
        raise OSError(f"The output folder {folder!r} is not inside the task's working folder")
    if (base / inside).is_file():
        return [inside]
    links: dict[str, str] = {}
    found = scan(base / inside, left_out=links)
    if note := links_left_out(base / inside, links):
        report(Note(note=note))
    return [
        posixpath.normpath(f"{inside}/{name}")
        for name, signature in found.items()
        if not signature.link or (base / inside / name).is_file()
    ]


def run(spec: OutputSpec, report: Callable[[Copied | CheckpointProblem | Note], None]) -> None:
    """`copy`, and what came of it to ``report``: nothing, where a later attempt has copied its outputs."""
    files = {to_name(name): to_name(path) for name, path in spec.files.items()}
    try:
        spec = msgspec.structs.replace(spec, files=files)
        report(copy(spec, report))
    except Outdated as error:
        report(CheckpointProblem(problem=str(error)))


class LogCopySpec(msgspec.Struct, frozen=True, kw_only=True):
    """A log, and where in the job directory it goes."""

    log: str
    """The log's first file, as for `howdah.storage.logs.LogWriter`."""
    url: str
    """The same of the copy: ``<job directory>/logs/<role>-<index>/<attempt>.log``, path or URL."""
    job_dir: str | None = None
    """The job directory, which is not made again if it was removed."""


def copy_log(spec: LogCopySpec) -> None:
    """Copy all files of the log, the first one last: with it the log is there. Copying again replaces
    what there is: a copy that was cut short is made whole. A log's name carries the attempt's number, so
    that no attempt's log is in another's way.

    Raises:
        OSError: it can't be read, or the copy not be written.
    """
    log = Path(spec.log)
    folder, _, name = spec.url.rpartition("/")
    put = open_destination(folder, patience_s=_LOG_PATIENCE_S, within=spec.job_dir).put
    first, *later = logs.files(log)
    for path in (*later, first):
        if path == logs.index_path(log):
            put(path, logs.index_path(Path(name)).name)
        else:
            put(path, name + path.name.removeprefix(log.name))


if __name__ == "__main__":  # agents that began before an upgrade start it by this name
    sys.argv.insert(1, "copy-outputs")
    import runpy

    runpy.run_module("howdah.storage.helper", run_name="__main__")
