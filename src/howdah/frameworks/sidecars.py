"""Roles a job file adds by a table instead of by name: ``[preprocess]`` and ``[tensorboard]``."""

from __future__ import annotations

import shlex

from howdah.core.plan import Join
from howdah.frameworks.base import SIDECAR, RoleDefaults, WebPage
from howdah.spec.model import Job, Restart, Role, RoleTimeouts, Tracking

PREPROCESS = "preprocess"
TENSORBOARD = "tensorboard"
NOTEBOOK = "notebook"
"""The role of a job that ``howdah notebook`` has made, and a tag of it."""

ANSWER = "Model parameters: "
"""What a line of the preprocess step's output begins with, or has in it, whose rest all programs get.

Source: TonY's ``ApplicationMaster.doPreprocessingJob``.
"""

PREPROCESS_DEFAULTS = RoleDefaults(
    restart=Restart.TASK, ranked=False, join=Join.NOW, watched=False, ports=0
)
"""The step before all others. It may be silent for long; its own time-out limits it."""


def preprocess_role(job: Job) -> Role | None:
    """The role of the ``[preprocess]`` table: one task, one life of its own fault."""
    step = job.preprocess
    if step is None:
        return None
    return Role(
        command=step.command,
        memory=step.memory,
        env=step.env,
        tracking=Tracking.TRACKED,
        restart=Restart.TASK,
        attempts=1,
        timeouts=RoleTimeouts(run=step.timeout),
    )


def tensorboard_role(job: Job) -> Role | None:
    """The role of the ``[tensorboard]`` table.

    TensorBoard keeps the proxy's path (``--path_prefix``), binds the task's own address only, and
    is started through a launcher of ours that locks it and keeps it from importing TensorFlow. Its
    faster loader is left off: it is a second program, whose own port would answer anybody.
    """
    if job.tensorboard is None:
        return None
    python = job.tensorboard.python
    interpreter = '"$HOWDAH_PYTHON"' if python is None else shlex.quote(python)
    return Role(
        command=f'{interpreter} "$HOWDAH_HELPERS/tensorboard_main.py" '
        '--logdir "$HOWDAH_TENSORBOARD_DIR" --host "$HOWDAH_HOST" --port "$HOWDAH_PORT" '
        f'--path_prefix "/proxy/{TENSORBOARD}:$HOWDAH_INDEX" --reload_interval 2 --load_fast false',
        memory=job.tensorboard.memory,
        tracking=Tracking.SIDECAR,
        restart=Restart.TASK,
    )


def defaults(job: Job, role: str) -> RoleDefaults | None:
    """Defaults of such a role, or None if the role is the framework's to describe.

    A role that the job file calls ``tensorboard`` is a sidecar, as in TonY.
    """
    if is_preprocess(job, role):
        return PREPROCESS_DEFAULTS
    if is_tensorboard(job, role):
        return SIDECAR
    return None


def is_preprocess(job: Job, role: str) -> bool:
    """Whether the role is the step of the ``[preprocess]`` table."""
    return role == PREPROCESS and job.preprocess is not None


def is_tensorboard(job: Job, role: str) -> bool:
    """Whether the role is a TensorBoard sidecar, ours or the user's own."""
    return role == TENSORBOARD


def tensorboard_page(job: Job) -> WebPage:
    """TensorBoard's page; only our own start tells it to keep the proxy's path and locks it."""
    own = tensorboard_role(job)
    ours = own is not None and job.roles.get(TENSORBOARD) == own
    return WebPage(name="TensorBoard", keeps_prefix=ours, locked=ours)
