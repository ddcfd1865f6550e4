"""The node daemon's beginning: what happens between its start and its work.

It is started before the job directory is written, and meanwhile imports what agents need and
forks the first coordinator, which imports what it needs. Then it waits for the word to go.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from howdah.agent.host.processes import name_process
from howdah.backends.base import BackendError
from howdah.backends.local.messages import Go, Reply
from howdah.backends.local.node.coordinator_program import COORDINATOR, CoordinatorProgram
from howdah.backends.local.node.coordinator_supervisor import COORDINATOR_LOG
from howdah.backends.local.node.daemon import LOG, NodeDaemon
from howdah.backends.local.node.forking import cannot_start, entry, fork, no_input
from howdah.backends.local.node.log import log_to

AGENT = "howdah.agent.main:main"


def main(arguments: Sequence[str]) -> NoReturn:
    """Wait on descriptor 0 for the word to go, then serve until the job is over."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--adopt", action="store_true")
    parser.add_argument("--agent", default=AGENT)
    parser.add_argument("--coordinator", default=COORDINATOR)
    parser.add_argument("--path", action="append", default=[])
    options = parser.parse_args(arguments)
    sys.path.extend(options.path)
    name_process("howdah-node")
    starter = socket.socket(fileno=os.dup(0))
    no_input()
    # What goes wrong before there is a log is the starter's to read.
    os.dup2(starter.fileno(), 1)
    os.dup2(starter.fileno(), 2)
    with contextlib.suppress(Exception):  # an agent that can't be imported says so when launched
        entry(options.agent)
    coordinator = CoordinatorProgram(options.coordinator, tuple(options.path))
    early = None if options.adopt else Early(coordinator)
    line = starter.makefile("rb").readline()
    if not line.endswith(b"\n"):
        os._exit(0)  # the starter gave up, or died; the waiting coordinator sees it too
    go = msgspec.json.decode(line, type=Go)
    job_dir = Path(go.job_dir)
    try:
        log_to(job_dir / LOG)
        node = NodeDaemon(job_dir, options.agent, coordinator)
    except (BackendError, OSError) as error:
        _answer(starter, Reply(pid=os.getpid(), problem=str(error)))
        os._exit(1)
    if early is None:
        node.adopt(go.coordinator, go.coordinator_start)
    else:
        node.start(early.pid)
        early.go(job_dir)
    _answer(starter, Reply(pid=os.getpid()))
    node.run()
    os._exit(0)


def _answer(starter: socket.socket, reply: Reply) -> None:
    with contextlib.suppress(OSError):  # it may have been killed meanwhile: the job goes on
        starter.sendall(msgspec.json.encode(reply) + b"\n")
    starter.close()


class Early:
    """A coordinator that is forked, and imports all it needs, before there is a job directory."""

    def __init__(self, coordinator: CoordinatorProgram) -> None:
        read, self._write = os.pipe()
        self.pid: int = fork(partial(_wait_and_coordinate, coordinator), [read])
        os.close(read)

    def go(self, job_dir: Path) -> None:
        """Let it begin."""
        with contextlib.suppress(BrokenPipeError):  # it died: its end is noticed in its own time
            os.write(self._write, os.fsencode(job_dir))
        os.close(self._write)


def _wait_and_coordinate(coordinator: CoordinatorProgram) -> int:
    problem = coordinator.load()
    job_dir = os.fsdecode(os.read(3, 65536))
    os.close(3)
    if not job_dir:
        return 0
    log_to(Path(job_dir) / COORDINATOR_LOG)
    return cannot_start(problem) if problem else coordinator.run(Path(job_dir))
