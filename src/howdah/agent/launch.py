"""The launch file: all an agent is told before it has a connection.

Written, for its owner alone, by the backend that starts the container; its path is the agent's only argument.
"""

from __future__ import annotations

import enum

import msgspec

HERE = "@howdah-container@"
"""Stands for the container's folder in what a coordinator writes that cannot know it: arguments and
environment of programs, places of checkpoints and outputs, and this file. The agent replaces it with
`AgentLaunch.work_dir`."""


class LogNames(enum.Enum):
    """Names of the logs in ``log_dir``."""

    FOLDERS = "folders"
    """``<role>-<index>/<attempt>.log``"""
    FLAT = "flat"
    """``<role>-<index>.<attempt>.log``: YARN aggregates the files of one folder, not of folders in
    it."""


class AgentLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """One agent's instructions (JSON)."""

    job_id: str
    container_id: str
    coordinator_file: str | None
    """File with the coordinator's present address (local backend), read again at each attempt to
    connect; see `howdah.storage.jobdir.CoordinatorAddress`."""
    coordinators: tuple[tuple[str, int], ...] = ()
    """Addresses known at launch, where there is no such file."""
    ca: str
    certificate: str
    key: str
    """Paths of the PEM files: authority, the agent's certificate, its private key."""
    secret: str = ""
    """Proves to the coordinator which container this is; empty where an older one launches it."""
    work_dir: str
    """The container's own folder; the programs' working folder is ``work_dir/task``."""
    log_dir: str
    """Logs are spooled here; see `LogNames`."""
    source: str | None = None
    """The user's code, which the working folder is filled with; see `howdah.agent.workfolder`."""
    origin: str | None = None
    """Where the user has it on this machine: messages name files there. None elsewhere."""
    in_place: bool = False
    """``source`` itself is the working folder, and nothing is put there."""
    files: dict[str, str] = {}
    """What else is put there, by name: before the source, so that of two of one name this counts."""
    shared_dir: str | None = None
    """A folder all tasks share, where the backend has one."""
    python_path: str = ""
    """Folder that holds `howdah/task.py` alone, put on the programs' PYTHONPATH."""
    host: str | None = None
    """Address to advertise, if set."""
    interface: str | None = None
    ports: tuple[int, int] = (20000, 29999)
    umask: int | None = None
    """Of the programs: the submitter's. None: the agent's own, which is private."""
    gpus: tuple[str, ...] | None = ()
    """UUIDs of the container's devices; None where it has some and it is not known which: programs see
    what the container shows them."""
    gpu_locks: tuple[int, ...] = ()
    """Inherited file descriptors that hold the devices' locks."""
    counts_itself: bool = False
    """`howdah.wire.messages.Start.memory_mb` is the whole container's: what the agent and its helpers
    use counts too, as the backend itself counts it (YARN)."""
    beat_s: float = 1.0
    lease_s: float = 30.0
    log_max_bytes: int = 256 * 1024 * 1024
    log_segments: int = 4
    log_names: LogNames = LogNames.FOLDERS
    log_store: str | None = None
    """Job directory (URL) an attempt's log is copied to when it ends; None where logs are spooled in
    the job directory itself."""
    last_lines: bool = False
    """Put the newest line of the log into beats: the coordinator can't read the log itself."""
    listen: bool = False
    """Listen for a new coordinator's call (`howdah.wire.messages.Moved`)."""
