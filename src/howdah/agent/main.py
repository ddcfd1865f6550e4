"""The agent's process: ``main(launch_file)``, in a fresh interpreter or a forked child.

Importing this module does nothing but import; a parent may do it once and fork many agents.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from howdah.agent.agent import Agent
from howdah.agent.host.processes import marker, name_process
from howdah.agent.launch import AgentLaunch
from howdah.agent.watchdog import Watchdog
from howdah.agent.workfolder import substitute
from howdah.wire import descriptors
from howdah.wire.addresses import NoInterface

BAD_LAUNCH = 2

_read_launch = msgspec.json.Decoder(AgentLaunch).decode

log: logging.Logger = logging.getLogger(__name__)


def main(launch_file: str) -> int:
    """Be the agent the launch file describes, to the end; returns the exit code.

    0: told to go. 1: refused by the coordinator. 2: the launch file or what it names is unusable.
    3: no coordinator for the length of the lease. 143: ended from outside (SIGTERM). Whatever it
    is, no process of the container is left. Descriptors in ``gpu_locks`` must be open; all others
    above 2 should be closed.
    """
    _settle_in()
    try:
        launch = _read_launch(Path(launch_file).read_bytes())
        launch = substitute(launch, launch.work_dir)
    except (OSError, msgspec.DecodeError) as error:
        log.error("The launch file %s can't be used: %s", launch_file, error)
        return BAD_LAUNCH
    try:
        descriptors.raise_limit()
        descriptors.no_core_files()
        # Before there is anything to watch, and before the loop: a fork is cleanest now.
        watchdog = Watchdog(marker(launch.job_id, launch.container_id), launch.gpu_locks)
        return asyncio.run(_run(launch, watchdog))
    except (OSError, NoInterface) as error:
        log.error("The agent of %s can't work: %s", launch.container_id, error)
        return BAD_LAUNCH


async def _run(launch: AgentLaunch, watchdog: Watchdog) -> int:
    return await Agent(launch, watchdog).run()


def _settle_in() -> None:
    """Undo what a forking parent may have left: its signal handling, its idea of a log."""
    name_process("howdah-agent")
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    level = os.environ.get("HOWDAH_LOG_LEVEL", "WARNING").upper()
    logging.basicConfig(
        level=level if level in logging.getLevelNamesMapping() else "WARNING",
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
        force=True,
    )


def cli(argv: Sequence[str] | None = None) -> int:
    """``python -m howdah.agent.main LAUNCH_FILE``."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m howdah.agent.main LAUNCH_FILE\n")
        return BAD_LAUNCH
    return main(arguments[0])


if __name__ == "__main__":
    sys.exit(cli())
