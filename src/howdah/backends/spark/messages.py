"""What holders, coordinator and driver say to each other, in `howdah.wire` frames.

Holder and coordinator: mutual TLS, the holder dials and shows the job's agent certificate. After
every connection it first says everything it holds (`Here`); whatever comes may come twice.

Coordinator and driver: a socket pair that the driver's child was born with.
"""

from __future__ import annotations

from typing import Union

import msgspec

from howdah.agent.launch import AgentLaunch
from howdah.core.messages import ContainerEndKind
from howdah.spec.model import Slots

LEASE_S = 10.0
"""So long holders and their agents go on without hearing from the coordinator."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """Base of all messages."""


# -- holder to coordinator -----------------------------------------------------------------------


class Over(Message, frozen=True, kw_only=True):
    """No process of the container is left and its files are home. Repeated until `Known`."""

    container_id: str
    kind: ContainerEndKind
    detail: str = ""


class Here(Message, frozen=True, kw_only=True):
    """A holder is there."""

    holder: str
    """Its name, once for ever."""
    ticket: int
    """Which of the driver's Spark jobs it came from; `ON_DRIVER` for none."""
    host: str
    base: str
    """The holder's own folder; its containers are in it."""
    gpus: tuple[str, ...] = ()
    """Addresses that Spark gave the task, as Spark writes them."""
    sees: bool = False
    """The job directory is a folder of that host, too."""
    container_id: str = ""
    """What it holds with an agent."""
    over: Over | None = None
    """Its end, where no files have to come home before it is told."""


class Part(Message, frozen=True, kw_only=True):
    """Bytes of a file of the container's ``home`` where the job directory is not seen there."""

    path: str
    """Relative to the job directory."""
    offset: int
    """0 begins the file anew."""
    data: bytes


class Cut(Message, frozen=True, kw_only=True):
    """Spark has ended the task that the holder lasts as long as: it leaves."""

    reason: str


# -- coordinator to holder -----------------------------------------------------------------------


class Welcome(Message, frozen=True, kw_only=True):
    """The answer to `Here`, and later whatever has changed of it."""

    address: bytes
    """``coordinator.json`` as it is now: for agents that do not see the job directory."""
    lease_s: float


class Launch(Message, frozen=True, kw_only=True):
    """Start an agent. `Over` says when it has ended, or that it could not be started."""

    container_id: str
    role: str
    launch: AgentLaunch


class Release(Message, frozen=True, kw_only=True):
    """End the container: SIGTERM to its agent, SIGKILL to all of it after the grace."""

    container_id: str
    grace_s: float = 0.0


class Known(Message, frozen=True, kw_only=True):
    """The end of the container is known; the holder has none now and may get another."""

    container_id: str


class Leave(Message, frozen=True, kw_only=True):
    """Nobody needs the holder any more."""


FromHolder = Union[Here, Part, Over, Cut]  # noqa: UP007 - read at run time
ToHolder = Union[Welcome, Launch, Release, Known, Leave]  # noqa: UP007

ON_DRIVER = 0
"""Ticket of holders that the coordinator itself has started, on the driver's machine."""

# -- coordinator to driver -----------------------------------------------------------------------


class Want(Message, frozen=True, kw_only=True):
    """Run a Spark job that starts so many holders."""

    ticket: int
    count: int


class Look(Message, frozen=True, kw_only=True):
    """Say what the application has: answered by `Seen`."""


# -- driver to coordinator -----------------------------------------------------------------------


class UnderWay(Message, frozen=True, kw_only=True):
    """A Spark job for so many holders runs, begun before this coordinator."""

    ticket: int
    count: int


class SlotsOver(Message, frozen=True, kw_only=True):
    """That Spark job has ended."""

    ticket: int
    problem: str = ""
    """Why holders will not come, in words; empty if all came that could."""
    cancelled: bool = False
    """Somebody has cancelled it: the job is not wanted any more."""
    full: bool = False
    """It was not even tried: the application has not so many slots just now."""


class Seen(Message, frozen=True, kw_only=True):
    """Words for people about slots, as the driver sees them."""

    words: str = ""


ToDriver = Union[Want, Look]  # noqa: UP007
FromDriver = Union[UnderWay, SlotsOver, Seen]  # noqa: UP007

# -- files ---------------------------------------------------------------------------------------


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """``spark.json`` in the job directory: what a coordinator has to know of its application."""

    slots: Slots
    host: str
    """Address of the driver's machine, as executors reach it."""
    bind: str
    port: int
    """Where holders dial. The driver holds the socket: it stays the same for all coordinators."""
    on_driver: tuple[str, ...] = ()
    nonce: str
    """Written in the job directory: who reads it there sees the directory."""
    driver_pid: int = 0
    driver_start: int = 0
    """With the pid it names one process for ever; see `howdah.backends.local.processes`."""
    path: str = ""
    """PATH of the programs."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a holder is told, ``order.json`` in its folder."""

    job_id: str
    holder: str
    ticket: int
    host: str
    folder: str
    gpus: tuple[str, ...] = ()
    coordinator: tuple[str, int]
    slots: Slots
    lease_s: float
    job_dir: str
    nonce: str
    python: str
    other_python: bool = False
    """The job names an interpreter of its own for its programs."""
    source: str | None = None
    """The source folder on the submitter's machine."""
    keep: bool = False
    """Leave working folders where they are (HOWDAH_KEEP_WORK)."""
    agent: str = "howdah.backends.spark.bound:main"
    """``module:function`` an agent's process runs; another only in tests."""
    paths: tuple[str, ...] = ()
    """Folders to import that from."""


class Shipment(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot's task gets in its closure (msgpack)."""

    order: Order
    """Without what only the slot knows: holder, host, folder, gpus, python."""
    secrets: dict[str, bytes]
    """ca.pem, agent.pem, agent.key"""
    files: dict[str, bytes] = {}
    """For ``home/``, where the job directory is not seen."""
    source: bytes = b""
    """The source folder as a tar file, if it travels."""
    wait_s: float = 60.0
    """For the coordinator to welcome a holder."""
