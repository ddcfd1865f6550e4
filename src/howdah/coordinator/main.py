"""The coordinator process of one job.

Started by the backend's supervisor in a process of its own, or by hand with
``python -m howdah.coordinator <job directory>``; in a cluster's container with ``--job <URL>``, where
the job directory is elsewhere. Exit code 0 means that the job is over and
``final.json`` written; whatever else, and the job wants another coordinator.

Importing this module imports what every coordinator needs, so that a supervisor can have that
done before there is a job. The web app is left out: it is imported once the programs run; so are
the backends, of which only one is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from howdah.agent.host.processes import name_process
from howdah.backends import registry
from howdah.backends.base import Backend
from howdah.coordinator.service import Coordinator, Superseded, tidy
from howdah.storage import coordinator_ends
from howdah.storage.coordinator_ends import CoordinatorEnd
from howdah.storage.errors import in_words, is_transient
from howdah.storage.jobdir import JobDirectory
from howdah.storage.journal import Fenced, JournalError
from howdah.wire import descriptors
from howdah.wire.status import JobView

log: logging.Logger = logging.getLogger(__name__)

LOG_FILE = "coordinator.log"
RESTART_ME = 1
"""Exit code of a coordinator that leaves its job unfinished."""
NOTE_S = 10.0
"""For a dying coordinator to write into a remote job directory why."""
TERMINATED = 128 + signal.SIGTERM
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})


def main(job_dir: str) -> int:
    """Coordinate the job in that directory to its end; returns the process's exit code."""
    directory = JobDirectory(job_dir)

    def leave(error: Exception, lived_s: float) -> None:
        _note_end(directory, f"process {os.getpid()}", error, lived_s)

    return _coordinate(directory, leave)


def main_remote(url: str, here: Path) -> int:
    """Coordinate the job whose directory is at that URL, in a local copy below ``here``, a folder of
    this process alone."""
    from howdah.storage.copies.mirror import Mirror
    from howdah.storage.copies.replica import START_WAIT_S
    from howdah.storage.hdfs.files import Hdfs

    directory = JobDirectory(here / url.rstrip("/").rpartition("/")[2])
    try:
        Mirror(url, directory.path, Hdfs(url, patience_s=START_WAIT_S)).fetch()
    except OSError as error:
        sys.stderr.write(f"The job directory {url} can't be read: {error}\n")
        return RESTART_ME

    def leave(error: Exception, lived_s: float) -> None:
        """The next coordinator may run on another machine, begins at once, and there are only so
        many."""
        name = _note_end(directory, here.name, error, lived_s)
        sys.stderr.write(f"{in_words(error)}\n")  # for YARN's diagnostics, where HDFS is away
        try:
            Mirror(url, directory.path, Hdfs(url, patience_s=NOTE_S)).push([name])
        except OSError as problem:
            log.warning("the next coordinator is not told why: %s", problem)
        if isinstance(error, (Superseded, Fenced)):
            return
        pause_s = coordinator_ends.pause_s(coordinator_ends.read(directory.path), lived_s)
        log.info("this process ends in %.0f s, and the next coordinator begins then", pause_s)
        time.sleep(pause_s)

    return _coordinate(directory, leave)


def _coordinate(directory: JobDirectory, leave: Callable[[Exception, float], None]) -> int:
    """``leave`` is called with what this coordinator fails at, and how many seconds it lived."""
    name_process("howdah-coord")
    _log_to(directory.logs / LOG_FILE)
    descriptors.raise_limit()
    descriptors.no_core_files()
    began = time.monotonic()
    try:
        return asyncio.run(_live(directory))
    except Exception as error:
        log.exception("the coordinator ends; the job wants another")
        try:
            leave(error, time.monotonic() - began)
        except OSError as problem:
            log.warning("the next coordinator is not told why: %s", problem)
        full = isinstance(error, OSError) and error.errno in _FULL
        return coordinator_ends.NO_ROOM if full else RESTART_ME


def _note_end(directory: JobDirectory, who: str, error: Exception, lived_s: float) -> str:
    end = CoordinatorEnd(who=who, reason=in_words(error), time=time.time(), lived_s=lived_s)
    return coordinator_ends.write(directory.path, end)


async def _live(directory: JobDirectory) -> int:
    meta = directory.meta()
    final = directory.final()
    if final is not None:
        # Its coordinator died on the last steps, or the backend was not told.
        await _finished(registry.create(meta.backend, directory), final)
        tidy(directory)
        return 0
    backend: Backend | None = None
    try:
        backend = registry.create(meta.backend, directory)
        coordinator = Coordinator(directory, backend)
    except JournalError:
        raise
    except Exception as error:
        if is_transient(error):
            raise  # the next coordinator may find what this one lacks
        if backend is None and meta.url is not None:
            raise  # the cluster can be told by nothing but how this process ends
        log.exception("the job cannot be begun")
        final = directory.fail(
            f"the coordinator cannot begin: {error}", f"See {directory.logs / LOG_FILE}."
        )
        if backend is not None:
            await _finished(backend, final)
        return 0
    return await _run(coordinator)


async def _finished(backend: Backend, final: JobView) -> None:
    await backend.finished(final)
    await backend.close()


async def _run(coordinator: Coordinator) -> int:
    running = asyncio.ensure_future(coordinator.run())
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):
        # The job is not ended by its coordinator's end: the supervisor decides what follows.
        loop.add_signal_handler(signal.SIGTERM, running.cancel)
    # What is there now stays, and the collector need not look at it again. A first coordinator's imports leave
    # nothing to collect; a journal that was replayed does.
    if coordinator.incarnation > 1:
        gc.collect()
    gc.freeze()
    try:
        await running
    except asyncio.CancelledError:
        return TERMINATED
    return 0


def _log_to(path: Path) -> None:
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(
        logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)


def run_from_command_line() -> int:
    """``python -m howdah.coordinator <job directory>``, or ``--job <URL of one>``."""
    match sys.argv[1:]:
        case ["--job", url]:
            os.umask(0o077)
            return main_remote(url, Path.cwd())
        case [job_dir] if not job_dir.startswith("-"):
            os.umask(0o077)
            return main(job_dir)
        case _:
            sys.stderr.write("usage: python -m howdah.coordinator <job directory> | --job <URL>\n")
            return 2
