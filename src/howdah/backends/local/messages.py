"""What coordinator and node daemon say to each other, over a Unix socket, in `howdah.wire` frames.

The daemon answers a `Hello` with an `Inventory`. Everything else is one-way; every message may
come twice. Lock descriptors travel beside a `Launch` (SCM_RIGHTS), in the order of the messages.
"""

from __future__ import annotations

from typing import Union

import msgspec

from howdah.agent.launch import AgentLaunch
from howdah.core.messages import ContainerEndKind


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Base of all messages."""


# -- coordinator to daemon -----------------------------------------------------------------------


class Hello(Message, frozen=True, kw_only=True):
    """A coordinator takes over; an older connection is closed."""

    job_id: str
    pid: int


class Launch(Message, frozen=True, kw_only=True):
    """Fork an agent. Answered by `Launched`, or by `Ended` (launch failed)."""

    container_id: str
    role: str = ""
    """Whoever takes over is told it again."""
    launch: AgentLaunch
    locks: int = 0
    """How many descriptors come with it; the agent finds them from `FIRST_LOCK` on."""


class Release(Message, frozen=True, kw_only=True):
    """End the container: SIGTERM to its agent, SIGKILL to all of it after the grace."""

    container_id: str
    grace_s: float = 0.0


class Acknowledge(Message, frozen=True, kw_only=True):
    """The end of this container is known; the daemon may forget it."""

    container_id: str


class Finished(Message, frozen=True, kw_only=True):
    """The job is over: the daemon ends as soon as its coordinator has."""


# -- daemon to coordinator -----------------------------------------------------------------------


class Launched(Message, frozen=True, kw_only=True):
    container_id: str
    pid: int


class Ended(Message, frozen=True, kw_only=True):
    """No process of the container is left. Repeated to every new coordinator until acknowledged."""

    container_id: str
    kind: ContainerEndKind
    detail: str = ""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A container with a living agent, or whose leftovers are still being ended."""

    container_id: str
    role: str


class Inventory(Message, frozen=True, kw_only=True):
    """Everything the daemon holds for the job."""

    running: tuple[Running, ...] = ()
    ended: tuple[Ended, ...] = ()
    """Containers whose end nobody has acknowledged."""


class Displaced(Message, frozen=True, kw_only=True):
    """A newer coordinator has come; this one is not to come back."""


ToNode = Union[Hello, Launch, Release, Acknowledge, Finished]  # noqa: UP007 - read at run time
FromNode = Union[Inventory, Launched, Ended, Displaced]  # noqa: UP007

FIRST_LOCK = 3
"""The agent's descriptors from here on are its devices' locks."""


# -- the start ---------------------------------------------------------------------------------


class Go(msgspec.Struct, frozen=True, kw_only=True):
    """The word a waiting daemon gets."""

    job_dir: str
    coordinator: int | None = None
    """The living coordinator to adopt; otherwise one is started."""
    coordinator_start: int | None = None
    """When that process began; see `NodeAddress`. None: the release before did not say."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon's answer to `Go`; empty ``problem`` means it is at work."""

    pid: int
    problem: str = ""


# -- files ---------------------------------------------------------------------------------------


class NodeAddress(msgspec.Struct, frozen=True, kw_only=True):
    """``node.json`` in the job directory: the living daemon."""

    pid: int
    start: int
    """With the pid it names one process for ever; see `howdah.backends.local.processes`."""
    socket: str


LEASE_S = 20.0
"""An agent ends its programs after so long without a coordinator: longer than a new one takes on a busy machine."""


class AgentProcess(msgspec.Struct, frozen=True, kw_only=True):
    """``containers/<id>/agent.json``: written by the agent's process before anything else, so that
    a new daemon finds the agents of a dead one."""

    pid: int
    start: int
    role: str = ""
