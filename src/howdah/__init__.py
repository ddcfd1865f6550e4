"""Howdah: distributed training jobs from one job file.

The names below are imported when they are used: ``from howdah import task`` inside a training
script costs nothing but the standard library. `howdah.aio` has the same for asyncio programs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from howdah.backends.base import BackendError
    from howdah.client.accounting import Usage
    from howdah.client.api import connect, history, jobs, load, run, submit, sweep
    from howdah.client.errors import (
        BadInput,
        ExitCode,
        HowdahError,
        JobFailed,
        NotSaved,
        Refused,
        Unreachable,
    )
    from howdah.client.following.items import JobEvent, LogLine
    from howdah.client.handle import AsyncJobHandle
    from howdah.client.measurements import Measurement
    from howdah.client.outputs import NoOutputs, Output
    from howdah.client.sweep import Trial
    from howdah.client.sync import JobHandle
    from howdah.spec.model import (
        Acl,
        Checkpoint,
        Docker,
        Environment,
        Hadoop,
        Job,
        Linger,
        Lingering,
        Logs,
        Master,
        Mode,
        Network,
        Outputs,
        Placement,
        Preprocess,
        Restart,
        Role,
        RoleTimeouts,
        Slots,
        Spark,
        TensorBoard,
        Timeouts,
        Tracking,
    )
    from howdah.spec.problems import JobFileError
    from howdah.storage.jobdir import NoSuchJob
    from howdah.version import __version__ as __version__
    from howdah.wire.status import FailureView, JobView, TaskView

_HOMES = {
    "howdah.backends.base": ("BackendError",),
    "howdah.client.accounting": ("Usage",),
    "howdah.client.api": ("connect", "history", "jobs", "load", "run", "submit", "sweep"),
    "howdah.client.errors": (
        "BadInput",
        "ExitCode",
        "HowdahError",
        "JobFailed",
        "NotSaved",
        "Refused",
        "Unreachable",
    ),
    "howdah.client.handle": ("AsyncJobHandle",),
    "howdah.client.following.items": ("JobEvent", "LogLine"),
    "howdah.client.measurements": ("Measurement",),
    "howdah.client.outputs": ("NoOutputs", "Output"),
    "howdah.client.sweep": ("Trial",),
    "howdah.client.sync": ("JobHandle",),
    "howdah.wire.status": ("FailureView", "JobView", "TaskView"),
    "howdah.spec.model": (
        "Acl",
        "Checkpoint",
        "Docker",
        "Environment",
        "Hadoop",
        "Job",
        "Linger",
        "Lingering",
        "Logs",
        "Master",
        "Mode",
        "Network",
        "Outputs",
        "Placement",
        "Preprocess",
        "Restart",
        "Role",
        "RoleTimeouts",
        "Slots",
        "Spark",
        "TensorBoard",
        "Timeouts",
        "Tracking",
    ),
    "howdah.spec.problems": ("JobFileError",),
    "howdah.storage.jobdir": ("NoSuchJob",),
    "howdah.version": ("__version__",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Acl",
    "AsyncJobHandle",
    "BackendError",
    "BadInput",
    "Checkpoint",
    "Docker",
    "Environment",
    "ExitCode",
    "FailureView",
    "Hadoop",
    "HowdahError",
    "Job",
    "JobEvent",
    "JobFailed",
    "JobFileError",
    "JobHandle",
    "JobView",
    "Linger",
    "Lingering",
    "LogLine",
    "Logs",
    "Master",
    "Measurement",
    "Mode",
    "Network",
    "NoOutputs",
    "NoSuchJob",
    "NotSaved",
    "Output",
    "Outputs",
    "Placement",
    "Preprocess",
    "Refused",
    "Restart",
    "Role",
    "RoleTimeouts",
    "Slots",
    "Spark",
    "TaskView",
    "TensorBoard",
    "Timeouts",
    "Tracking",
    "Trial",
    "Unreachable",
    "Usage",
    "connect",
    "history",
    "jobs",
    "load",
    "run",
    "submit",
    "sweep",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'howdah' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
