"""Jobs with a node daemon of their own, ended after each test."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from howdah.backends.local import submit
from howdah.backends.local.messages import NodeAddress
from howdah.backends.local.submit import NodeOptions
from howdah.storage.jobdir import JobDirectory
from tests.conformance.local import ROOT, make_job, wait_gone

STANDINS = "tests.local.standins"


class Node:
    """A job directory and its daemon."""

    def __init__(self, directory: JobDirectory, options: NodeOptions) -> None:
        self.directory = directory
        self.path = directory.path
        self.options = options

    def start(self) -> int:
        """Start the daemon; returns its process id."""
        return submit.begin(self.options).go(self.path)

    @property
    def pid(self) -> int:
        raw = (self.path / "node.json").read_bytes()
        return msgspec.json.decode(raw, type=NodeAddress).pid

    def log(self, name: str = "node") -> str:
        file = self.path / "logs" / f"{name}.log"
        return file.read_text() if file.exists() else ""


def options(coordinator: str = "waiting", agent: str = "reporting") -> NodeOptions:
    """Daemon options with stand-ins of `tests.local.standins`."""
    return NodeOptions(
        agent=f"{STANDINS}:{agent}", coordinator=f"{STANDINS}:{coordinator}", paths=(str(ROOT),)
    )


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Makes jobs whose coordinator is one of the stand-ins."""
    made: list[Node] = []

    def make(coordinator: str = "waiting") -> Node:
        node = Node(make_job(tmp_path), options(coordinator))
        made.append(node)
        return node

    yield make
    for node in made:
        (node.path / "done").touch()
        if not wait_gone(node.path, 30.0):
            with contextlib.suppress(ProcessLookupError):
                os.kill(node.pid, signal.SIGKILL)
            pytest.fail(f"the node daemon did not end; its log:\n{node.log()}")
