"""The status document: one shape for CLI ``--json``, HTTP API, pages and ``final.json``.

`view` (below, pure) makes it from a `JobState`; the coordinator lays live measurements over it.
Times are seconds since the epoch.
"""

from __future__ import annotations

import msgspec


class _View(msgspec.Struct, frozen=True, kw_only=True): ...


class WebLink(_View, kw_only=True):
    """A page of the job: its name and address relative to the job page."""

    name: str
    href: str


class FailureView(_View, kw_only=True):
    """One failure: what the summary says first."""

    task: str | None
    attempt: int | None
    generation: int
    blame: str
    """A `howdah.core.blame.Blame` value such as ``user-code``."""
    what: str
    """``worker:1 exited with code 42``"""
    advice: str
    exit_code: int | None = None
    signal: str | None = None
    time: float = 0.0
    charged: bool = False
    tail: tuple[str, ...] = ()


class TaskView(_View, kw_only=True):
    """One task."""

    task: str
    role: str
    index: int
    state: str
    """A `howdah.core.states.TaskState` value."""
    attempt: int
    generation: int
    rank: int | None = None
    tracking: str = "tracked"
    host: str | None = None
    container: str | None = None
    node: str | None = None
    ports: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
    since: float | None = None
    """When it entered its state."""
    started: float | None = None
    joined: bool = False
    exit_code: int | None = None
    signal: str | None = None
    charged: int = 0
    """Attempts of its budget that are spent."""
    last_line: str | None = None
    # Live, absent in a finished job:
    cpu: float | None = None
    rss_mb: float | None = None
    gpu: float | None = None
    gpu_memory_mb: float | None = None
    step: float | None = None
    progress_s: float | None = None
    log_size: int | None = None


class JobView(_View, kw_only=True):
    """One job."""

    job_id: str
    name: str
    framework: str
    user: str
    backend: str
    phase: str
    """A `howdah.core.states.JobPhase` value."""
    outcome: str | None = None
    """succeeded, failed, stopped or timed-out once it is decided."""
    exit_code: int | None = None
    """What ``howdah run`` exits with."""
    reason: str = ""
    """Why, in one line: of the outcome, or of the waiting."""
    advice: str = ""
    generation: int = 0
    incarnation: int = 0
    restarts: int = 0
    submitted: float | None = None
    started: float | None = None
    """When the first program ran."""
    finished: float | None = None
    tasks: tuple[TaskView, ...] = ()
    failures: tuple[FailureView, ...] = ()
    """Oldest first; the first of the last generation is what to read."""
    checkpoint: str | None = None
    """The newest complete one."""
    links: tuple[WebLink, ...] = ()
    directory: str = ""
    page: str | None = None
