"""Starting the node daemon, detached from whoever submits the job, and submitting a job to it.

A daemon needs a tenth of a second to import what it needs. So it can be started before the job
directory is complete, and told to go when it is::

    starter = begin()
    ...                     # write the job directory
    starter.go(job_dir)
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from howdah.backends.base import BackendError, Submission, SubmissionCancelled
from howdah.backends.local.messages import Go, NodeAddress, Reply
from howdah.backends.local.processes import alive, start_of
from howdah.backends.local.spawn import Spawned
from howdah.storage.jobdir import JobDirectory

if TYPE_CHECKING:
    from howdah.backends.base import Step
    from howdah.spec.load import LoadedJob
    from howdah.spec.model import Job

GO_WAIT_S = 30.0
"""For an answer to `NodeStarter.go`; normally milliseconds."""
ADDRESS = "node.json"


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a daemon is started; other than the defaults only in tests."""

    agent: str | None = None
    """``module:function`` an agent's process runs."""
    coordinator: str | None = None
    """``module:function`` a coordinator's process runs."""
    paths: tuple[str, ...] = ()
    """Folders to import these from."""


class NodeStarter:
    """A daemon that waits for the word to go."""

    def __init__(self, spawned: Spawned) -> None:
        self._spawned = spawned

    def go(self, job_dir: Path, *, coordinator: int | None = None) -> int:
        """The job directory is complete: begin. Returns the daemon's process id.

        With ``coordinator``, the living coordinator's process, the daemon takes over from one that died.

        Raises:
            BackendError: it could not be started; the text has the reason.
        """
        start = None if coordinator is None else start_of(coordinator)
        go = Go(job_dir=str(job_dir.resolve()), coordinator=coordinator, coordinator_start=start)
        word = msgspec.json.encode(go)
        answer = b""
        problem = "it ended without a word"
        try:
            self._spawned.socket.settimeout(GO_WAIT_S)
            with contextlib.suppress(BrokenPipeError):  # it has ended, and may have said why
                self._spawned.socket.sendall(word + b"\n")
            while not _is_reply(answer):
                part = self._spawned.socket.recv(65536)
                if not part:
                    break
                answer += part
        except OSError as error:
            problem = str(error)
        finally:
            self.close()
        try:
            reply = msgspec.json.decode(answer.rstrip(b"\n").rpartition(b"\n")[2], type=Reply)
        except msgspec.DecodeError:
            words = answer.decode(errors="replace").strip() or problem
            raise BackendError(
                f"The node daemon could not be started with {sys.executable}: {words}"
            ) from None
        if reply.problem:
            raise BackendError(reply.problem)
        return reply.pid

    def close(self) -> None:
        """Without `go`, the daemon ends."""
        self._spawned.close()


class LocalSubmission(Submission):
    """A node daemon that waits for the job directory to be complete."""

    def __init__(self, starter: NodeStarter, *, checks: bool = True) -> None:
        self._starter = starter
        self._checks = checks
        self._folder = Path()
        self._cancelled = False

    def check(self, job: Job, loaded: LoadedJob) -> None:
        self._folder = loaded.folder
        if self._checks:
            from howdah.backends.local.machine import check

            check(job, source=str(loaded.source) if loaded.source else None)

    def go(self, directory: JobDirectory, progress: Callable[[Step], None]) -> None:
        from howdah.backends.local.container_paths import prepare

        job = directory.job()
        if self._checks:
            try:
                prepare(job, directory, self._folder, progress)
            finally:
                if self._cancelled:
                    raise SubmissionCancelled("nothing was submitted")
        self._starter.go(directory.path)

    def cancel(self) -> None:
        self._cancelled = True

    def close(self) -> None:
        self._starter.close()


def _is_reply(answer: bytes) -> bool:
    """Whether the last line is whole and the daemon's; before it there may be any complaints."""
    return answer.endswith(b"}\n") and answer.rstrip(b"\n").rpartition(b"\n")[2].startswith(b"{")


def begin(options: NodeOptions | None = None, *, adopt: bool = False) -> NodeStarter:
    """Start a daemon that waits for `NodeStarter.go`, or for `NodeStarter.close`.

    ``adopt`` is for a coordinator that lost its daemon.
    """
    return NodeStarter(Spawned(_arguments(options or NodeOptions(), adopt)))


def _arguments(options: NodeOptions, adopt: bool) -> list[str]:
    arguments = ["--adopt"] if adopt else []
    if options.agent is not None:
        arguments += ["--agent", options.agent]
    if options.coordinator is not None:
        arguments += ["--coordinator", options.coordinator]
    for path in options.paths:
        arguments += ["--path", path]
    return arguments


def revive(job_dir: Path, options: NodeOptions | None = None) -> int:
    """Bring a job back whose daemon and coordinator were both killed, or whose machine restarted.

    A new coordinator replays the journal; agents that still live (until their lease ends) are taken
    over, what is lost is started again. Returns the daemon's process id.

    Raises:
        BackendError: the job has a living daemon, or none can be started.
    """
    return begin(options, adopt=True).go(job_dir)


def node_alive(job_dir: Path) -> bool:
    """Whether the job's node daemon runs."""
    try:
        address = msgspec.json.decode((job_dir / ADDRESS).read_bytes(), type=NodeAddress)
    except (OSError, msgspec.DecodeError):
        return False
    return alive(address.pid, address.start)
