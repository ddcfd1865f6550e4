"""The environment of a task's programs: what the agent adds to what it was told. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from howdah.agent.processes import MARKER

_OWN = frozenset(
    {
        MARKER,
        "HOWDAH_ATTEMPT",
        "HOWDAH_CHECKPOINT_DIR",
        "HOWDAH_CHECKPOINT_REQUEST",
        "HOWDAH_CLUSTER",
        "HOWDAH_GENERATION",
        "HOWDAH_HOST",
        "HOWDAH_INDEX",
        "HOWDAH_IS_CHIEF",
        "HOWDAH_JOB_ID",
        "HOWDAH_LOCAL_RANK",
        "HOWDAH_LOCAL_WORLD_SIZE",
        "HOWDAH_LOG_DIR",
        "HOWDAH_OUTPUT_DIR",
        "HOWDAH_PORT",
        "HOWDAH_PORTS",
        "HOWDAH_RANK",
        "HOWDAH_RESTORED",
        "HOWDAH_ROLE",
        "HOWDAH_SHARED_DIR",
        "HOWDAH_TASK_SOCKET",
        "HOWDAH_TENSORBOARD_DIR",
        "HOWDAH_WORLD_SIZE",
    }
)
"""What only a task's program has: when Howdah itself runs inside a task of another job, that
task's values must not reach this job's programs."""


class Additions(msgspec.Struct, frozen=True, kw_only=True):
    """What only the agent knows."""

    marker: str
    checkpoint_dir: str
    output_dir: str
    log_dir: str
    task_socket: str
    checkpoint_request: str
    shared_dir: str | None = None
    restored: str | None = None
    python_path: str = ""
    gpus: tuple[str, ...] | None = ()
    """As in `howdah.agent.launch.AgentLaunch`."""


def complete(
    base: Mapping[str, str], told: Mapping[str, str], additions: Additions
) -> dict[str, str]:
    """One program's environment.

    ``base`` is the host's (HOME, LANG, …), ``told`` the coordinator's, which wins over it; what
    the agent adds wins over both.
    """
    env = {name: value for name, value in base.items() if name not in _OWN}
    env |= told
    env |= {
        MARKER: additions.marker,
        "HOWDAH_CHECKPOINT_DIR": additions.checkpoint_dir,
        "HOWDAH_OUTPUT_DIR": additions.output_dir,
        "HOWDAH_LOG_DIR": additions.log_dir,
        "HOWDAH_TASK_SOCKET": additions.task_socket,
        "HOWDAH_CHECKPOINT_REQUEST": additions.checkpoint_request,
    }
    if additions.shared_dir is not None:
        env.setdefault("HOWDAH_SHARED_DIR", additions.shared_dir)
    if additions.restored is not None:
        env["HOWDAH_RESTORED"] = additions.restored
    if additions.python_path:
        # Last: a Howdah installed in the user's own environment is the better one.
        parts = [env.get("PYTHONPATH", ""), additions.python_path]
        env["PYTHONPATH"] = os.pathsep.join(part for part in parts if part)
    if additions.gpus:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(additions.gpus)
    elif additions.gpus is not None:
        # A task that asked for no GPU must not use those another one was given.
        env["CUDA_VISIBLE_DEVICES"] = told.get("CUDA_VISIBLE_DEVICES", "")
    return env
