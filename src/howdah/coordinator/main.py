"""The coordinator process of one job.

Started by the backend's supervisor in a process of its own, or by hand with
``python -m howdah.coordinator <job directory>``. Exit code 0 means that the job is over and
``final.json`` written; whatever else, and the job wants another coordinator.

Importing this module imports what every coordinator needs, so that a supervisor can have that
done before there is a job. The web app is left out: it is imported once the programs run.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import time
from pathlib import Path

import howdah.backends.local.backend  # noqa: F401 - imported early, see above
from howdah.backends import registry
from howdah.coordinator.ending import tidy
from howdah.coordinator.service import Coordinator
from howdah.core.states import JobPhase, Outcome
from howdah.core.view import EXIT_CODES, JobView
from howdah.storage.jobdir import JobDirectory
from howdah.storage.journal import JournalError
from howdah.storage.layout import JobMeta

log = logging.getLogger(__name__)

LOG_FILE = "coordinator.log"
RESTART_ME = 1
"""Exit code of a coordinator that leaves its job unfinished."""
TERMINATED = 128 + signal.SIGTERM


def main(job_dir: str) -> int:
    """Coordinate the job in that directory to its end; returns the process's exit code."""
    directory = JobDirectory(job_dir)
    _log_to(directory.logs / LOG_FILE)
    try:
        if directory.final() is not None:
            tidy(directory)
            return 0
        meta = directory.meta()
        try:
            coordinator = Coordinator(directory, registry.create(meta.backend, directory))
        except JournalError:
            raise
        except Exception as error:
            log.exception("the job cannot be begun")
            directory.write_final(_impossible(directory, meta, error))
            return 0
        return asyncio.run(_run(coordinator))
    except Exception:
        log.exception("the coordinator ends; the job wants another")
        return RESTART_ME


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
    """``python -m howdah.coordinator <job directory>``."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m howdah.coordinator <job directory>\n")
        return 2
    os.umask(0o077)
    return main(sys.argv[1])
