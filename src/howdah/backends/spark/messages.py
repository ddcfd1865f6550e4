"""What container processes, coordinator and driver send each other, in `howdah.wire` frames.

Container process and coordinator: mutual TLS; the process connects and shows the job's agent
certificate. After each connection it sends its whole state first (`Register`), so any message may
arrive twice. Agents are launched and released as the local backend's node daemon does it, by the
same messages.

Coordinator and driver: a socket pair that the driver passes to its child process.
"""

from __future__ import annotations

from typing import Union

from howdah.backends.local.messages import Acknowledge, Ended, Launch, Message, Release

LEASE_S = 10.0
"""How long container processes and their agents go on without a coordinator."""
LAST_UPLOAD_S = 300.0
"""For the last files, once the container has ended: also where the driver's machine is slow, or hangs."""


# -- container process to coordinator ------------------------------------------------------------


class Exited(Ended, frozen=True, kw_only=True):
    """No process of the container is left and its files are uploaded. Repeated until
    `AcknowledgeExit`."""

    unsaved: tuple[str, ...] = ()
    """What of its files was not uploaded, and why; a line each."""


class Register(Message, frozen=True, kw_only=True):
    """The state of a container process, sent first on each connection."""

    name: str
    """Of the container process, unique for ever."""
    secret: str = ""
    """Made by the process, which shows it at each connection: programs have the agents' certificate, too."""
    spark_job: int
    """Number of the driver's Spark job that started it; `ON_DRIVER` for none."""
    host: str
    base: str
    """The process's own folder; its containers are in it."""
    gpus: tuple[str, ...] = ()
    """Addresses that Spark gave the task, as Spark writes them."""
    sees_job_dir: bool = False
    """The job directory is a folder of that host, too."""
    container_id: str = ""
    """The container that has an agent in it."""
    exited: Exited | None = None
    """The end of that container, where no files have to be uploaded before it."""


class FilePart(Message, frozen=True, kw_only=True):
    """Bytes of a file of the container, where its host does not see the job directory."""

    path: str
    """Relative to the job directory."""
    offset: int
    """0 begins the file anew."""
    data: bytes


class Preempted(Message, frozen=True, kw_only=True):
    """Spark has ended the task that holds the slot: the container process ends."""

    reason: str


# -- coordinator to container process ------------------------------------------------------------


class Registered(Message, frozen=True, kw_only=True):
    """The answer to `Register`, sent again whenever it changes."""

    address: bytes
    """``coordinator.json`` as it is now: for agents that do not see the job directory."""
    lease_s: float


class AcknowledgeExit(Acknowledge, frozen=True, kw_only=True):
    """The end of the container is recorded; the process may get another one."""


class StopProcess(Message, frozen=True, kw_only=True):
    """The container process is not needed any more."""


FromContainer = Union[Register, FilePart, Exited, Preempted]  # noqa: UP007 - read at run time
ToContainer = Union[Registered, Launch, Release, AcknowledgeExit, StopProcess]  # noqa: UP007

ON_DRIVER = 0
"""`Register.spark_job` of processes that the coordinator itself starts, on the driver's machine."""

# -- coordinator to driver -----------------------------------------------------------------------


class RequestSlots(Message, frozen=True, kw_only=True):
    """Run a Spark job that starts so many container processes."""

    spark_job: int
    count: int


class QuerySlots(Message, frozen=True, kw_only=True):
    """Ask what the application has: answered by `SlotsReport`."""

    wanted: int = 0
    """Slots that are waited for."""


# -- driver to coordinator -----------------------------------------------------------------------


class SlotsPending(Message, frozen=True, kw_only=True):
    """A Spark job for so many container processes runs, begun before this coordinator."""

    spark_job: int
    count: int


class SlotsCompleted(Message, frozen=True, kw_only=True):
    """That Spark job has ended."""

    spark_job: int
    problem: str = ""
    """Why container processes are missing, for people; empty if all registered that could."""
    cancelled: bool = False
    """The Spark job was cancelled: the job is not wanted any more."""
    full: bool = False
    """It was not tried: the application does not have so many slots at present."""


class SlotsReport(Message, frozen=True, kw_only=True):
    """What the driver knows of the slots, for people."""

    text: str = ""


ToDriver = Union[RequestSlots, QuerySlots]  # noqa: UP007
FromDriver = Union[SlotsPending, SlotsCompleted, SlotsReport]  # noqa: UP007
