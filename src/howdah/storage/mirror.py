"""A job directory on HDFS and its local copies: the submitter's, the master's, anybody's.

The truth is on HDFS; whoever works with the job reads local files. So the submitter's machine makes
the directory there (`create`), a master or a client elsewhere fetches what it needs to begin
(`fetch`), and what comes to be later is brought when it is asked for (`bring_…`) or pushed when it
is made (`push`). The journal has ways of its own: `howdah.storage.replica`.

All calls block, and use several connections' worth of calls at a time: a directory of a dozen
small files takes some 20 ms. Errors are `OSError`s with words (`howdah.storage.hdfs.errors`).
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from howdah.core.messages import Task
from howdah.storage import layout
from howdah.storage.files import PRIVATE_FOLDER, make_private_folder, write_atomically
from howdah.storage.hdfs.errors import AlreadyThere, NotFound
from howdah.storage.hdfs.files import Hdfs, HdfsStat
from howdah.storage.hdfs.names import is_hdfs
from howdah.storage.jobdir import StorageError
from howdah.storage.journal import Replica

_AT_ONCE = 8
"""Files under way at the same time."""

_NEVER_SENT = frozenset({layout.COORDINATOR, layout.CONTAINERS, layout.LOGS, "node.json"})
"""What of a fresh local directory is about this machine alone."""
_NOT_AT_FIRST = ("events-", "metrics-")
"""Beginnings of names that `fetch` leaves: the journal has its own way, the rest can wait."""
_SMALL = 1 << 20
"""Bytes; a file of more is read and sent in parts."""
_MADE = (layout.SECRETS, layout.SHARED, layout.TENSORBOARD)
"""Folders there from the beginning."""

EVENTS = "tfevents"
"""Is in the name of each file of TensorBoard's summaries."""
COORDINATOR_LOG = f"{layout.LOGS}/coordinator.log"


def create(
    url: str,
    local: Path,
    *,
    hdfs: Hdfs | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Make the job directory at ``url`` from the fresh local one: documents and secrets.

    Folders are 0700 and files 0600, the submitter's. A checkpoint to begin from is moved there.

    Args:
        progress: told files done and in all.

    Raises:
        AlreadyThere: there is such a job; it is left as it is.
        OSError: it could not be made; what there is of it has been removed.
    """
    there = hdfs or Hdfs(url)
    if there.exists(url):
        raise AlreadyThere(f"Can't make the job directory {url}: there is one of that name")
    files = [path for path in _fresh(local) if not path.is_symlink()]
    done = 0

    def send(path: Path) -> None:
        nonlocal done
        target = f"{url}/{path.relative_to(local)}"
        if path.stat().st_size > _SMALL:
            there.put(path, target)
        else:
            # Nobody looks before the job is submitted: no need for a temporary name.
            there.write_new(target, path.read_bytes())
        done += 1
        if progress is not None:
            progress(done, len(files))

    try:
        _all([lambda name=name: there.mkdirs(f"{url}/{name}", PRIVATE_FOLDER) for name in _MADE])
        _all([lambda path=path: send(path) for path in files])
    except BaseException:
        with contextlib.suppress(OSError):
            there.remove(url, recursive=True)
        raise
    shutil.rmtree(local / layout.CHECKPOINTS, ignore_errors=True)


def fetch(url: str, local: Path, *, hdfs: Hdfs | None = None) -> None:
    """Copy what a master or a client needs to begin into ``local``: documents, secrets, and the
    coordinators' log, which the next one continues.

    Raises:
        NotFound: there is no such job directory.
        OSError: it can't be read.
    """
    there = hdfs or Hdfs(url)
    make_private_folder(local)
    for name in (layout.SECRETS, layout.LOGS, layout.STACKS, layout.CONTAINERS):
        make_private_folder(local / name)
    names = [stat for stat in there.list(url) if _wanted_at_first(stat)]
    with contextlib.suppress(NotFound):
        names += there.list(f"{url}/{layout.SECRETS}")
    root = there.path(url)
    works = [lambda stat=stat: _copy(there, stat, root, local) for stat in names if not stat.is_dir]
    _all([*works, lambda: bring_file(url, local, COORDINATOR_LOG, hdfs=there)])


def open_replica(url: str) -> Replica:
    """What makes the journal of the job directory at that URL durable.

    Raises:
        StorageError: no journal can be kept on that store.
    """
    if not is_hdfs(url):
        raise StorageError(
            f"A job directory can't be at {url}: its journal needs a store that appends; use a "
            "folder, or HDFS"
        )
    from howdah.storage.replica import HdfsJournal

    return HdfsJournal(url)


def exists(url: str, *, hdfs: Hdfs | None = None) -> bool:
    """Whether there is a job directory."""
    return (hdfs or Hdfs(url)).exists(f"{url}/{layout.META}")


def bring_final(url: str, local: Path, *, hdfs: Hdfs | None = None) -> bool:
    """Bring ``final.json``; False if the job has not ended.

    Once it is there, journal, stacks, measurements and coordinator's log are complete there too.
    """
    return bring_file(url, local, layout.FINAL, hdfs=hdfs)


def bring_coordinator(url: str, local: Path, *, hdfs: Hdfs | None = None) -> bool:
    """Bring ``coordinator.json``, or remove the local one; False if none lives."""
    if bring_file(url, local, layout.COORDINATOR, hdfs=hdfs):
        return True
    (local / layout.COORDINATOR).unlink(missing_ok=True)
    return False


def bring_file(url: str, local: Path, name: str, *, hdfs: Hdfs | None = None) -> bool:
    """Bring one file of the directory; False if there is none."""
    hdfs = hdfs or Hdfs(url)
    try:
        data = hdfs.read(f"{url}/{name}")
    except NotFound:
        return False
    target = local / name
    target.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    write_atomically(target, data)
    return True


def bring_logs(
    url: str, local: Path, tasks: Sequence[Task] = (), *, hdfs: Hdfs | None = None
) -> None:
    """Bring the logs of these tasks' ended attempts; without tasks those of all, and the
    coordinator's."""
    if not tasks:
        _bring(hdfs or Hdfs(url), url, local, layout.LOGS)
    for task in tasks:
        _bring(hdfs or Hdfs(url), url, local, f"{layout.LOGS}/{task.role}-{task.index}")


def bring_log(url: str, local: Path, task: Task, attempt: int, *, hdfs: Hdfs | None = None) -> bool:
    """Bring the log of one ended attempt; False if it is not there (yet). It appears whole."""
    hdfs = hdfs or Hdfs(url)
    head = layout.task_log(task.role, task.index, attempt)
    if not hdfs.exists(f"{url}/{head}"):  # agents copy it last
        return False
    folder, _, name = head.rpartition("/")
    root = hdfs.path(url)
    found = {stat.name: stat for stat in hdfs.list(f"{url}/{folder}")}
    first = found.pop(name, None)
    for stat in found.values():
        if stat.name.startswith(f"{name}.") or stat.name == f"{attempt}.idx":
            _copy(hdfs, stat, root, local)
    if first is not None:
        _copy(hdfs, first, root, local)
    return first is not None


def bring_stacks(url: str, local: Path, *, hdfs: Hdfs | None = None) -> None:
    """Bring all stacks."""
    _bring(hdfs or Hdfs(url), url, local, layout.STACKS)


def bring_metrics(url: str, local: Path, *, hdfs: Hdfs | None = None) -> None:
    """Bring all measurements; local ones of the same name are replaced."""
    there = hdfs or Hdfs(url)
    root = there.path(url)
    found = [each for each in there.list(url) if each.name.startswith("metrics-")]
    _all([lambda stat=stat: _copy_if_other(there, stat, root, local) for stat in found])


def summaries(url: str, *, hdfs: Hdfs | None = None) -> list[HdfsStat]:
    """TensorBoard's event files below the directory, those of its owner.

    Others are none: a projector's configuration names files to read, anywhere.
    """
    there = hdfs or Hdfs(url)
    owner = there.stat(url).owner
    try:
        found = there.list(f"{url}/{layout.TENSORBOARD}", recursive=True)
    except NotFound:
        return []
    return [
        each for each in found if not each.is_dir and each.owner == owner and EVENTS in each.name
    ]


def bring_files(
    url: str, local: Path, found: Sequence[HdfsStat], *, hdfs: Hdfs | None = None
) -> None:
    """Bring these files of the folder at ``url`` into the local one.

    Raises:
        OSError: one cannot be read, or has grown.
    """
    there = hdfs or Hdfs(url)
    root = there.path(url)

    def bring(stat: HdfsStat) -> None:
        def look(_: int, size: int) -> None:
            if size > stat.size:
                raise OSError(errno.EFBIG, "has grown since it was listed", stat.path)

        target = _target(stat, root, local)
        target.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        there.get(stat.path, target, look)

    _all([lambda stat=stat: bring(stat) for stat in found])


def push(url: str, local: Path, names: Iterable[str], *, hdfs: Hdfs | None = None) -> None:
    """Copy these files, relative to the directory, there; each appears whole. Those that are not
    here are left out.

    Raises:
        NotFound: the directory is gone: its submission was taken back, or the job was removed.
    """
    hdfs, names = hdfs or Hdfs(url), [*names]
    if any("/" in name for name in names):
        hdfs.stat(url)  # to write into its folders would make it anew

    def send(name: str) -> None:
        try:
            data = (local / name).read_bytes()
        except FileNotFoundError:
            return
        hdfs.write(f"{url}/{name}", data, parents="/" in name)

    _all([lambda name=name: send(name) for name in names])


# -- inside --------------------------------------------------------------------------------------


def _fresh(local: Path) -> list[Path]:
    return sorted(
        path
        for path in local.rglob("*")
        if path.is_file() and path.relative_to(local).parts[0] not in _NEVER_SENT
    )


def _wanted_at_first(stat: HdfsStat) -> bool:
    return not (stat.is_dir or stat.name.startswith(_NOT_AT_FIRST) or stat.name.startswith("."))


def _bring(hdfs: Hdfs, url: str, local: Path, folder: str) -> None:
    try:
        found = hdfs.list(f"{url}/{folder}", recursive=True)
    except NotFound:
        return
    root = hdfs.path(url)
    _all([lambda stat=stat: _copy_if_other(hdfs, stat, root, local) for stat in found])


def _copy_if_other(hdfs: Hdfs, stat: HdfsStat, root: str, local: Path) -> None:
    if stat.is_dir or stat.name.startswith("."):
        return
    target = _target(stat, root, local)
    if not target.exists() or target.stat().st_size != stat.size:
        _copy(hdfs, stat, root, local)


def _copy(hdfs: Hdfs, stat: HdfsStat, root: str, local: Path) -> None:
    target = _target(stat, root, local)
    target.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    with contextlib.suppress(NotFound):  # removed since it was listed
        hdfs.get(stat.path, target)


def _target(stat: HdfsStat, root: str, local: Path) -> Path:
    return local / stat.path.removeprefix(root).lstrip("/")


def _all(works: Sequence[Callable[[], object]]) -> None:
    """Do them, several at a time; the first error is raised when all have ended."""
    if len(works) < 2:
        for work in works:
            work()
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(works)), thread_name_prefix="mirror") as pool:
        for future in [pool.submit(work) for work in works]:
            future.result()
