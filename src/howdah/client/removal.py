"""Removing jobs that have ended: their directories here, and on a cluster's file system.

What a job file sent elsewhere (outputs, a checkpoint store of its own) is the user's and stays.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from howdah.backends.base import BackendError, Running, Site
from howdah.client.errors import HowdahError, Refused
from howdah.client.lookup.site import programs_left, site_of
from howdah.storage import layout
from howdah.storage.jobdir import JobDirectory, StorageError, list_jobs
from howdah.wire.status import JobView

ENDING_S = 10.0
"""For processes that clean up after a job has ended."""

_LAST = (layout.JOB, layout.FINAL, layout.META)
"""Removed last: while something is left, the job can still be listed and removed."""


class NotRemoved(HowdahError):
    """Something of a job could not be removed; the text says what and why."""

    def __init__(self, text: str, freed: int) -> None:
        super().__init__(text)
        self.freed = freed
        """Bytes that were freed all the same."""


class Removed(NamedTuple):
    """What became of a job's directory."""

    freed: int
    """Bytes, here and on the cluster."""
    stays: str
    """What of the job is elsewhere and was left there; empty if nothing is."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Which ended jobs are to go."""

    states: tuple[str, ...]
    older_than_s: float = 0.0
    """They ended longer ago than this."""
    keep: int = 0
    """The newest of each name that stay, whatever their age and state."""


def expired(views: list[JobView], retention: Retention, now: float) -> list[JobView]:
    """The jobs that are to go, of ``views``, newest first. Pure."""
    seen: dict[str, int] = {}
    found: list[JobView] = []
    for view in views:
        number = seen[view.name] = seen.get(view.name, 0) + 1
        state = "lost" if view.lost else str(view.outcome) if view.over else ""
        ended = view.finished or view.submitted or now
        if (
            number > retention.keep
            and state in retention.states
            and now - ended > retention.older_than_s
        ):
            found.append(view)
    return found


def oldest_beyond(
    views: list[JobView],
    may_go: list[JobView],
    base: Path,
    keep_bytes: int,
    unknown: Callable[[str, Exception], None],
) -> list[JobView]:
    """The jobs that are to go so that all together take no more room, newest first.

    The one that ended first goes first. What a running job was begun from stays, and so does what is
    somebody else's; the next one goes in its place.

    Args:
        views: all jobs whose room counts, running ones too.
        may_go: those of them that may be removed.
        base: the folder of their directories.
        keep_bytes: the room.
        unknown: told of a job whose size cannot be found out, and why. It counts as nothing, so less
            is removed.
    """
    elsewhere: dict[str, int] = {}

    def room(view: JobView, names: Names) -> int:
        directory = JobDirectory(base / view.job_id)
        if view.job_id not in elsewhere:
            elsewhere[view.job_id] = 0
            try:
                elsewhere[view.job_id] = site_of(directory).size_elsewhere()
            except (BackendError, StorageError) as error:
                unknown(view.job_id, error)
        return _size(directory.path, names) + elsewhere[view.job_id]

    names: Names = {}
    taken = sum(room(view, names) for view in views)
    found: list[JobView] = []
    if taken > keep_bytes:
        needed = {each.meta().rerun_of for each in _unended_reruns(base)}
        names = {}
        for view in sorted(may_go, key=lambda view: view.finished or view.submitted or 0.0):
            if taken <= keep_bytes:
                break
            if view.job_id not in needed and _is_own(JobDirectory(base / view.job_id)):
                taken -= room(view, names)
                found.append(view)
    return found[::-1]


def _is_own(directory: JobDirectory) -> bool:
    try:
        return directory.meta().owner is None
    except StorageError:
        return False


Names = dict[tuple[int, int], int]
"""How many names of a file, by device and number, have been counted."""


def size(directory: JobDirectory, names: Names | None = None) -> int:
    """Bytes that removing the job would free. ``names``: those of the jobs that are removed before it.

    Raises:
        BackendError: the cluster does not tell.
        StorageError: the directory cannot be read.
    """
    names = {} if names is None else names
    return _size(directory.path, names) + site_of(directory).size_elsewhere()


def remove(directory: JobDirectory) -> Removed:
    """Remove a job that has ended.

    Raises:
        Refused: it has not ended, it is somebody else's, or a running job begins from it.
        NotRemoved: a part of it is left.
        BackendError: the cluster does not answer, or forbids it.
        StorageError: the directory cannot be read, so nobody knows whether the job runs.
    """
    meta = directory.meta()
    if meta.owner is not None:
        raise Refused(
            f"{directory.job_id} is {meta.owner}'s; this is only your copy of it. "
            f"To remove the copy: rm -r {directory.path}"
        )
    site = site_of(directory)
    _check_ended(directory, site)
    if why := programs_left(site, directory.job_id, thorough=True):
        raise Refused(f"{directory.job_id} is not removed: {why}")
    _check_not_needed(directory)
    stays = ""
    with contextlib.suppress(StorageError):
        checkpoint = directory.job().checkpoint
        if checkpoint is not None and checkpoint.store is not None:
            stays = f"checkpoints in {directory.checkpoint_store(checkpoint)}"
    freed = site.remove_elsewhere()
    freed += _remove(directory.path)
    return Removed(freed, stays)


def _check_ended(directory: JobDirectory, site: Site) -> None:
    deadline = time.monotonic() + ENDING_S
    while True:
        ended = site.final() is not None
        running = site.running()
        if running is Running.NO or (ended and running is Running.NOT_YET):
            return
        if not ended or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    if ended:
        raise Refused(f"{directory.job_id} has ended, but its processes still clean up; try again")
    raise Refused(
        f"{directory.job_id} has not ended: it is not removed. To end it: howdah stop "
        f"{directory.job_id}"
    )


def _check_not_needed(directory: JobDirectory) -> None:
    """A job that was begun from this one's checkpoint may still read it."""
    for other in _unended_reruns(directory.path.parent, directory.job_id):
        raise Refused(
            f"{other.job_id} runs this job again and may read its checkpoints: "
            f"{directory.job_id} can be removed once that has ended"
        )


def _unended_reruns(base: Path, of: str | None = None) -> Iterator[JobDirectory]:
    """Jobs that run another one again (that one, if it is named) and have not ended."""
    for other in list_jobs(base):
        try:
            begun_from = _begun_from(other.path)
            if begun_from is None or of not in (None, begun_from) or other.final() is not None:
                continue
            site = site_of(other)
            if site.final() is None and (site.running() is not Running.NO or site.left_running()):
                yield other
        except (StorageError, BackendError):
            continue  # what cannot be read does not run


@functools.lru_cache(100_000)
def _begun_from(path: Path) -> str | None:
    """Which job that one runs again: asked of every job for each that is removed, and never changed."""
    return JobDirectory(path).meta().rerun_of


def _size(path: Path, names: Names) -> int:
    return sum(
        _would_free(entry.stat(follow_symlinks=False), names)
        for folder in _folders(path)
        for entry in folder
        if not entry.is_dir(follow_symlinks=False)
    )


def _folders(path: Path) -> Iterator[list[os.DirEntry[str]]]:
    try:
        with os.scandir(path) as found:
            entries = list(found)
    except OSError:
        return
    yield entries
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _folders(Path(entry.path))


def _would_free(found: os.stat_result, names: Names) -> int:
    """As `_freed_by`, of a file all of whose names but this one may be gone by then."""
    key = (found.st_dev, found.st_ino)
    names[key] = names.get(key, 0) + 1
    return found.st_blocks * 512 if names[key] == found.st_nlink else 0


def _freed_by(found: os.stat_result) -> int:
    return found.st_blocks * 512 if found.st_nlink == 1 or stat.S_ISDIR(found.st_mode) else 0


def _remove(path: Path) -> int:
    """Remove the job directory; returns the bytes freed.

    Raises:
        NotRemoved: with the first of what is left.
    """
    problems: list[OSError] = []
    freed = 0

    def attempt(remove: Callable[[], object], bytes_: int = 0) -> None:
        nonlocal freed
        try:
            remove()
            freed += bytes_
        except FileNotFoundError:
            pass  # gone meanwhile
        except OSError as error:
            problems.append(error)

    # By descriptors: a folder that is replaced by a link meanwhile is not followed.
    for folder, folders, files, fd in os.fwalk(path, topdown=False, onerror=problems.append):
        for name in files:
            if folder == str(path) and name in _LAST:
                continue
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                attempt(partial(os.unlink, name, dir_fd=fd), _freed_by(found))
        for name in folders:
            attempt(partial(_remove_folder, name, fd))
    if not problems:
        for name in _LAST:
            with contextlib.suppress(FileNotFoundError):
                attempt((path / name).unlink, _freed_by((path / name).lstat()))
        attempt(path.rmdir)
    if problems:
        first = problems[0]
        more = f", and {len(problems) - 1} more like it" if len(problems) > 1 else ""
        raise NotRemoved(f"{first.filename} of {path} is left: {first.strerror}{more}", freed)
    return freed


def _remove_folder(name: str, fd: int) -> None:
    if stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=fd)
    else:
        os.rmdir(name, dir_fd=fd)
