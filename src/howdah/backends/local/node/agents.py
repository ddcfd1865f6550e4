"""One agent's process: what the forked child does before the agent's own code runs.

It leaves its name in ``agent.json`` first, under a lock it holds for life: a node daemon that was
killed between the fork and its word to the coordinator can't make its successor start a second
agent in the same container.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

import msgspec

from howdah.agent.host.processes import MARKER, marker
from howdah.agent.launch import AgentLaunch
from howdah.backends.local.messages import AgentProcess
from howdah.backends.local.node.forking import cannot_start, entry
from howdah.backends.local.node.log import last_line, log_to
from howdah.backends.local.processes import PROCESS, start_of
from howdah.storage.files import write_private

LOG = "agent.log"
"""In the container's folder: what the agent itself has to say, normally nothing."""
LAUNCH = "launch.json"
LOCK = "agent.lock"

ALREADY_THERE = 126
"""Exit code: another process is this container's agent."""


def run(folder: Path, launch: AgentLaunch, role: str, agent: str) -> int:
    """Become the agent of the container in ``folder``; ``agent`` is ``module:function``.

    Returns the agent's exit code, `ALREADY_THERE`, or `CANNOT_START` with the reason in its log.
    """
    try:
        os.setsid()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        log_to(folder / LOG)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ALREADY_THERE
        write_process(folder, AgentProcess(pid=os.getpid(), start=_own_start(), role=role))
        file = folder / LAUNCH
        write_private(file, msgspec.json.encode(launch))
        os.environ[MARKER] = marker(launch.job_id, launch.container_id)
        os.chdir(folder)
        main = entry(agent)
    except Exception as error:
        return cannot_start(f"The agent could not be started: {type(error).__name__}: {error}")
    return main(str(file))


def write_process(folder: Path, process: AgentProcess) -> None:
    """Replace the record; it need not outlive the machine."""
    temporary = folder / f".{PROCESS}.{os.getpid()}"
    write_private(temporary, msgspec.json.encode(process))
    temporary.replace(folder / PROCESS)


def forget(folder: Path) -> None:
    """The container's end is known: a later daemon need not look at it."""
    for name in (PROCESS, LOCK):
        with contextlib.suppress(OSError):
            (folder / name).unlink()


def last_words(folder: Path) -> str:
    """The last line the agent wrote to its own log, if any."""
    return last_line(folder / LOG)


def _own_start() -> int:
    found = start_of(os.getpid())
    assert found is not None
    return found
