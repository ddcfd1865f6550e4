"""A job directory on HDFS and its local copies: the submitter's, the master's, anybody's.

The truth is on HDFS; whoever works with the job reads local files. So the submitter's machine makes
the directory there (`Mirror.create`), a master or a client elsewhere fetches what it needs to begin
(`fetch`), and what comes to be later is brought when it is asked for (`bring_…`) or pushed when it
is made (`push`). The journal has ways of its own: `howdah.storage.copies.replica`.

All calls block, and use several connections' worth of calls at a time: a directory of a dozen
small files takes some 20 ms. Errors are `OSError`s with words (`howdah.storage.hdfs.errors`).
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from howdah.core.messages import Task
from howdah.storage import layout
from howdah.storage.files import PRIVATE_FOLDER, make_private_folder, write_atomically
from howdah.storage.hdfs import is_hdfs
from howdah.storage.hdfs.errors import AlreadyThere, NotFound
from howdah.storage.hdfs.files import Hdfs, HdfsStat
from howdah.storage.jobdir import StorageError
from howdah.storage.journal import Replica

T = TypeVar("T")

_AT_ONCE = 8
"""Files under way at the same time."""

_NEVER_SENT = frozenset({layout.COORDINATOR, layout.CONTAINERS, layout.LOGS, "node.json"})
"""What of a fresh local directory is about this machine alone."""
_NOT_AT_FIRST = ("events-", "metrics-", layout.KEYTAB)
"""Beginnings of names that `Mirror.fetch` leaves: the journal has its own way, a key is not copied, the rest can
wait."""
_SMALL = 1 << 20
"""Bytes; a file of more is read and sent in parts."""
_MADE = (layout.SECRETS, layout.SHARED, layout.TENSORBOARD)
"""Folders there from the beginning."""

EVENTS = "tfevents"
"""Is in the name of each file of TensorBoard's summaries."""
COORDINATOR_LOG = f"{layout.LOGS}/coordinator.log"


class Mirror:
    """The job directory at a URL and the copy of it in a local folder."""

    def __init__(self, url: str, local: Path, hdfs: Hdfs | None = None) -> None:
        self._url = url
        self._local = local
        self._hdfs = hdfs or Hdfs(url)
        self._root = self._hdfs.path(url)

    def create(self) -> None:
        """Make the directory there from the fresh local one: documents and secrets.

        Folders are 0700 and files 0600, the submitter's. A checkpoint to begin from is moved there.

        Raises:
            AlreadyThere: there is such a job; it is left as it is.
            OSError: it could not be made; what there is of it has been removed.
        """
        if self._hdfs.exists(self._url):
            raise AlreadyThere(
                f"Can't make the job directory {self._url}: there is one of that name"
            )
        meta = self._local / layout.META
        files = [path for path in _fresh(self._local) if not path.is_symlink() and path != meta]

        def send(path: Path) -> None:
            target = f"{self._url}/{path.relative_to(self._local)}"
            if path.stat().st_size > _SMALL:
                self._hdfs.put(path, target)
            else:
                # Nobody looks before the job is submitted: no need for a temporary name.
                self._hdfs.write_new(target, path.read_bytes())

        try:
            _all(lambda name: self._hdfs.mkdirs(f"{self._url}/{name}", PRIVATE_FOLDER), _MADE)
            _all(send, files)
            # Last, and whole: by it a directory is known to be a job's.
            self._hdfs.put(meta, f"{self._url}/{layout.META}")
        except BaseException:
            with contextlib.suppress(OSError):
                self._hdfs.remove(self._url, recursive=True)
            raise
        shutil.rmtree(self._local / layout.CHECKPOINTS, ignore_errors=True)

    def fetch(self, but: Collection[str] = ()) -> None:
        """Copy what a master or a client needs to begin: documents, secrets, and the coordinators'
        log, which the next one continues. Documents of the names in ``but`` are left out.

        Raises:
            NotFound: there is no such job directory.
            OSError: it can't be read.
        """
        make_private_folder(self._local)
        for name in (layout.SECRETS, layout.LOGS, layout.STACKS, layout.CONTAINERS):
            make_private_folder(self._local / name)
        listed = self._hdfs.list(self._url)
        found = [stat for stat in listed if _wanted_at_first(stat) and stat.name not in but]
        with contextlib.suppress(NotFound):
            secrets = self._hdfs.list(f"{self._url}/{layout.SECRETS}")
            found += [stat for stat in secrets if not stat.is_dir]
        works = [lambda stat=stat: self._copy(stat) for stat in found]
        _all(lambda work: work(), [*works, lambda: self.bring_file(COORDINATOR_LOG)])

    def push(self, names: Iterable[str]) -> None:
        """Copy these files, relative to the directory, there; each appears whole. Those that are not
        here are left out.

        Raises:
            NotFound: the directory is gone: its submission was taken back, or the job was removed.
        """
        names = [*names]
        for folder in {name.rpartition("/")[0] for name in names} - {""}:
            self._hdfs.mkdirs(f"{self._url}/{folder}", within=self._url)

        def send(name: str) -> None:
            try:
                data = (self._local / name).read_bytes()
            except FileNotFoundError:
                return
            self._hdfs.write(f"{self._url}/{name}", data, parents=False)

        _all(send, names)

    def bring_final(self) -> bool:
        """Bring ``final.json``; False if the job has not ended.

        Once it is there, journal, stacks, measurements and coordinator's log are complete there too.
        """
        return self.bring_file(layout.FINAL)

    def bring_coordinator(self) -> bool:
        """Bring ``coordinator.json``, or remove the local one; False if none lives."""
        if self.bring_file(layout.COORDINATOR):
            return True
        (self._local / layout.COORDINATOR).unlink(missing_ok=True)
        return False

    def bring_file(self, name: str) -> bool:
        """Bring one file of the directory; False if there is none."""
        try:
            data = self._hdfs.read(f"{self._url}/{name}")
        except NotFound:
            return False
        target = self._local / name
        target.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        write_atomically(target, data)
        return True

    def bring_logs(self, tasks: Sequence[Task] = ()) -> None:
        """Bring the logs of these tasks' ended attempts; without tasks those of all, and the
        coordinator's."""
        if not tasks:
            self._bring(layout.LOGS)
        for task in tasks:
            self._bring(f"{layout.LOGS}/{task.role}-{task.index}")

    def bring_log(self, task: Task, attempt: int) -> bool:
        """Bring the log of one ended attempt; False if it is not there (yet). It appears whole."""
        head = layout.task_log(task.role, task.index, attempt)
        if not self._hdfs.exists(f"{self._url}/{head}"):  # agents copy it last
            return False
        folder, _, name = head.rpartition("/")
        found = {stat.name: stat for stat in self._hdfs.list(f"{self._url}/{folder}")}
        first = found.pop(name, None)
        for stat in found.values():
            if stat.name.startswith(f"{name}.") or stat.name == f"{attempt}.idx":
                self._copy(stat)
        if first is not None:
            self._copy(first)
        return first is not None

    def bring_stacks(self) -> None:
        self._bring(layout.STACKS)

    def bring_metrics(self) -> None:
        """Bring all measurements; local ones of the same name are replaced."""
        found = self._hdfs.list(self._url)
        _all(self._copy_if_other, [each for each in found if each.name.startswith("metrics-")])

    def summaries(self) -> list[HdfsStat]:
        """TensorBoard's event files below the directory, those of its owner.

        Others are none: a projector's configuration names files to read, anywhere.
        """
        owner = self._hdfs.stat(self._url).owner
        try:
            found = self._hdfs.list(f"{self._url}/{layout.TENSORBOARD}", recursive=True)
        except NotFound:
            return []
        return [
            each
            for each in found
            if not each.is_dir and each.owner == owner and EVENTS in each.name
        ]

    def bring_files(self, found: Sequence[HdfsStat]) -> None:
        """Bring these files.

        Raises:
            OSError: one cannot be read, or has grown.
        """

        def bring(stat: HdfsStat) -> None:
            def look(_: int, size: int) -> None:
                if size > stat.size:
                    raise OSError(errno.EFBIG, "has grown since it was listed", stat.path)

            self._hdfs.get(stat.path, self._target(stat), look)

        _all(bring, found)

    # -- inside ----------------------------------------------------------------------------------

    def _bring(self, folder: str) -> None:
        with contextlib.suppress(NotFound):
            found = self._hdfs.list(f"{self._url}/{folder}", recursive=True)
            _all(self._copy_if_other, found)

    def _copy_if_other(self, stat: HdfsStat) -> None:
        if stat.is_dir or stat.name.startswith("."):
            return
        target = self._target(stat)
        if not target.exists() or target.stat().st_size != stat.size:
            self._copy(stat)

    def _copy(self, stat: HdfsStat) -> None:
        with contextlib.suppress(NotFound):  # removed since it was listed
            self._hdfs.get(stat.path, self._target(stat))

    def _target(self, stat: HdfsStat) -> Path:
        """Where the copy of a file is, in a folder that is there."""
        target = self._local / stat.path.removeprefix(self._root).lstrip("/")
        target.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        return target


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
    from howdah.storage.copies.replica import HdfsJournal

    return HdfsJournal(url)


def _fresh(local: Path) -> list[Path]:
    return sorted(
        path
        for path in local.rglob("*")
        if path.is_file() and path.relative_to(local).parts[0] not in _NEVER_SENT
    )


def _wanted_at_first(stat: HdfsStat) -> bool:
    return not (stat.is_dir or stat.name.startswith((*_NOT_AT_FIRST, ".")))


def _all(work: Callable[[T], object], items: Sequence[T]) -> None:
    """Do it for all of them, several at a time; the first error is raised when all have ended."""
    if len(items) < 2:
        for item in items:
            work(item)
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(items)), thread_name_prefix="mirror") as pool:
        for future in [pool.submit(work, item) for item in items]:
            future.result()
