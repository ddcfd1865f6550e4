"""The job of a cluster: roles, command and files from the arguments of `Cluster.start`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from howdah.client.errors import BadInput
from howdah.client.lookup.find import find
from howdah.client.submission.functions import INSIDE, FunctionJob, function_title, job_name
from howdah.client.submission.resubmission import adopt
from howdah.spark.context import Wiring
from howdah.spark.feed.trainer import run
from howdah.spec.model import Checkpoint, Job, Restart, Role, TensorBoard, Timeouts, Tracking
from howdah.storage import layout
from howdah.storage.files import write_atomically
from howdah.storage.jobdir import JobDirectory, NoSuchJob

WIRING = "wiring.json"
"""Beside the pickled call: where the feeds' controller is."""

CHIEFS = ("chief", "master")
_IDLE = frozenset({"ps", "evaluator", "scheduler", "tensorboard"})


class ClusterJob:
    """Everything of a cluster that is known before it runs."""

    def __init__(
        self,
        function: Any,
        args: Any,
        *,
        workers: int,
        ps: int,
        chief: int,
        evaluator: bool,
        roles: Mapping[str, int | Role] | None,
        framework: str,
        tensorboard: bool | TensorBoard,
        checkpoint: Checkpoint | Mapping[str, Any] | bool | None,
        env: Mapping[str, str] | None,
        restarts: int,
        name: str | None,
        gpus: int,
        resume: str | None,
        fields: Mapping[str, Any],
    ) -> None:
        """
        Raises:
            BadInput: the arguments do not fit each other, or cannot be pickled; there is no job of
                that name to resume.
        """
        if chief not in (0, 1):
            raise BadInput(f"chief is {chief}: a cluster has one chief or none")
        if workers + chief < 1:
            raise BadInput(f"workers is {workers}: a cluster needs at least one worker or a chief")
        more: dict[str, Any] = dict(fields)
        more.setdefault("timeouts", Timeouts(startup="off"))
        more.setdefault("restart", Restart.GANG)
        if tensorboard:
            given = tensorboard if isinstance(tensorboard, TensorBoard) else TensorBoard()
            more.setdefault("tensorboard", given)
        if checkpoint:
            more["checkpoint"] = _checkpoint(checkpoint)
        call = FunctionJob(
            run,
            (function, args),
            roles=_roles(workers, ps, chief, evaluator, roles, gpus),
            framework=framework,
            title=function_title(function),
            name=name or job_name(function),
            env=dict(env or {}),
            attempts=restarts + 1,
            **more,
        )
        command = f'HOWDAH_SPARK_WIRING="{INSIDE}/{WIRING}" exec {call.job.command}'
        self.job: Job = msgspec.structs.replace(call.job, command=command)
        self._call = call
        self._before = _earlier(resume, self.job) if resume else None
        self.fed_roles: frozenset[str] = frozenset(
            name for name, role in self.job.roles.items() if name not in _IDLE and not role.command
        )
        """Roles whose ranks are fed: what computes, and does not serve or judge."""
        self.trainers: int = sum(_count(self.job.roles[name]) for name in self.fed_roles)
        """How many ranks are fed."""

    def populate(self, directory: JobDirectory, wiring: Wiring) -> None:
        """Put the call and the wiring into the job's directory."""
        self._call.populate(directory)
        document = msgspec.structs.replace(wiring, job_id=directory.job_id)
        write_atomically(directory.path / layout.FUNCTION / WIRING, msgspec.json.encode(document))
        if self._before is not None:
            adopt(self._before, directory)


def _roles(
    workers: int,
    ps: int,
    chief: int,
    evaluator: bool,
    others: Mapping[str, int | Role] | None,
    gpus: int,
) -> dict[str, Role]:
    counts: dict[str, int | Role] = {"chief": chief, "worker": workers, "ps": ps}
    counts["evaluator"] = 1 if evaluator else 0
    found: dict[str, Role] = {}
    for name, value in {**counts, **(others or {})}.items():
        if isinstance(value, Role):
            found[name] = value
        elif value:
            computes = name in ("worker", *CHIEFS)
            # Servers and judges never end by themselves, whatever the framework calls them.
            found[name] = Role(
                instances=value,
                gpus=gpus if computes else 0,
                tracking=Tracking.UNTRACKED if name in ("ps", "evaluator") else None,
            )
    return found


def _count(role: Role) -> int:
    if not isinstance(role.instances, int) or not isinstance(role.processes, int):
        raise BadInput(
            "A cluster that is fed has a fixed number of processes: give a number of instances, and "
            'of processes, instead of a range or "gpus"'
        )
    return role.instances * role.processes


def _earlier(resume: str, job: Job) -> JobDirectory:
    if job.checkpoint is None:
        raise BadInput(
            f"resume={resume!r} wants a checkpoint folder to put that job's last checkpoint into: "
            "give checkpoint=True"
        )
    try:
        return find(resume, job.store)
    except NoSuchJob as error:
        raise BadInput(f"resume={resume!r}: {error}") from error


def _checkpoint(given: Checkpoint | Mapping[str, Any] | bool) -> Checkpoint:
    if isinstance(given, Checkpoint):
        return given
    try:
        return msgspec.convert({} if given is True else dict(given or {}), Checkpoint)
    except msgspec.ValidationError as error:
        raise BadInput(f"checkpoint: {error}") from error
