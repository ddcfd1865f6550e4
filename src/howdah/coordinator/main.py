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
from pathlib import Path

from howdah.backends import registry
from howdah.backends.base import Backend
from howdah.coordinator.service import Coordinator, tidy
from howdah.core.state import JobPhase, Outcome
from howdah.storage.jobdir import JobDirectory
from howdah.storage.journal import JournalError
from howdah.storage.layout import JobMeta
from howdah.wire.status import EXIT_CODES, JobView

log = logging.getLogger(__name__)

LOG_FILE = "coordinator.log"
RESTART_ME = 1
"""Exit code of a coordinator that leaves its job unfinished."""
_TRANSIENT = frozenset(
    {errno.EAGAIN, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC}
)
TERMINATED = 128 + signal.SIGTERM


def main(job_dir: str) -> int:
    """Coordinate the job in that directory to its end; returns the process's exit code."""
    return _coordinate(JobDirectory(job_dir))


def main_away(url: str, here: Path) -> int:
    """Coordinate the job whose directory is at that URL, in a local copy below ``here``."""
    from howdah.storage import mirror

    directory = JobDirectory(here / url.rstrip("/").rpartition("/")[2])
    try:
        mirror.fetch(url, directory.path)
    except OSError as error:
        sys.stderr.write(f"The job directory {url} can't be read: {error}\n")
        return RESTART_ME
    return _coordinate(directory)


def _coordinate(directory: JobDirectory) -> int:
    _log_to(directory.logs / LOG_FILE)
    try:
        return asyncio.run(_live(directory))
    except Exception:
        log.exception("the coordinator ends; the job wants another")
        return RESTART_ME


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
        if isinstance(error, OSError) and error.errno in _TRANSIENT:
            raise  # the next coordinator may find what this one lacks
        log.exception("the job cannot be begun")
        final = _impossible(directory, meta, error)
        directory.write_final(final)
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
    # What is there now stays: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    try:
        await running
    except asyncio.CancelledError:
        return TERMINATED
    return 0


def _impossible(directory: JobDirectory, meta: JobMeta, error: Exception) -> JobView:
    """The end of a job that no coordinator can even begin."""
    job = directory.job()
    return JobView(
        job_id=meta.job_id,
        name=job.name,
        framework=job.framework,
        user=meta.user,
        backend=meta.backend,
        phase=JobPhase.FINISHED.value,
        outcome=Outcome.FAILED.value,
        exit_code=EXIT_CODES[Outcome.FAILED],
        reason=f"the coordinator cannot begin: {error}",
        advice=f"See {directory.logs / LOG_FILE}.",
        submitted=meta.submitted,
        finished=time.time(),
        directory=str(directory.path),
    )


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
            return main_away(url, Path.cwd())
        case [job_dir] if not job_dir.startswith("-"):
            os.umask(0o077)
            return main(job_dir)
        case _:
            sys.stderr.write("usage: python -m howdah.coordinator <job directory> | --job <URL>\n")
            return 2
