"""Which variables of a job file its programs do not get as they are written. Pure.

Found by making each role's environment as `howdah.frameworks.programs` makes it, for an example of the
job that has two tasks of each role at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from howdah.core.messages import Task
from howdah.core.plan import Plan
from howdah.core.ranks import topology
from howdah.core.state import TaskData
from howdah.frameworks import planning
from howdah.frameworks.addresses import MissingPeer
from howdah.frameworks.programs import ProgramPaths, VariableTooLong, programs
from howdah.frameworks.sidecars import PREPROCESS, is_preprocess
from howdah.spec.model import Job

GPUS = "CUDA_VISIBLE_DEVICES"
_EXAMPLE = ProgramPaths(python="/python", shared_dir="/shared", tensorboard_dir="/tensorboard")
_Key = tuple[str, ...]
_MARK = "as it is written"


def overridden_variables(job: Job) -> dict[_Key, tuple[str, ...]]:
    """The keys of variables that Howdah sets itself, each with the roles whose programs get Howdah's
    value. Of a job that has no problems."""
    own = job.hadoop.container_env or job.env or any(role.env for role in job.roles.values())
    if not (own or (job.preprocess is not None and job.preprocess.env)):
        return {}
    job = _marked(planning.expand(job))
    found: dict[_Key, tuple[str, ...]] = {}
    for role, told in _environments(job, planning.plan(job, "job")):
        for key in _written(job, role):
            if told.get(key[-1]) != _MARK:
                found[key] = (*found.get(key, ()), role)
    return found


def _marked(job: Job) -> Job:
    """The same with values that are nobody else's: a rank in the file may be the example's own."""

    def marked(env: Mapping[str, str]) -> dict[str, str]:
        return dict.fromkeys(env, _MARK)

    replace = msgspec.structs.replace
    return replace(
        job,
        env=marked(job.env),
        roles={name: replace(role, env=marked(role.env)) for name, role in job.roles.items()},
        hadoop=replace(job.hadoop, container_env=marked(job.hadoop.container_env)),
    )


def _environments(job: Job, plan: Plan) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Roles, and what the first program of each is told."""
    tasks = [
        TaskData(
            task=Task(role.name, index),
            attempt=1,
            host="localhost",
            ports=tuple(range(1, role.ports + 1)),
            container_id=f"{role.name}-{index}",
        )
        for role in plan.roles
        for index in range(min(role.maximum, 2))
    ]
    formed = topology(plan, 1, tasks)
    places = msgspec.structs.replace(_EXAMPLE, container_env=job.hadoop.container_env)
    answer = "" if job.preprocess is not None else None
    for role in plan.roles:
        try:
            first, *_ = programs(
                job,
                plan,
                formed,
                Task(role.name, 0),
                1,
                places,
                answer=None if is_preprocess(job, role.name) else answer,
                master=("", 0),
            )
        except (MissingPeer, VariableTooLong):
            continue
        gpus = {GPUS: ""} if job.roles[role.name].gpus else {}
        yield role.name, {**first.env, **gpus}


def _written(job: Job, role: str) -> Iterable[_Key]:
    """The keys of the file's variables that are the role's, without those that another key overrules."""
    own = (PREPROCESS, "env") if is_preprocess(job, role) else ("roles", role, "env")
    tables: list[tuple[_Key, Mapping[str, str]]] = [
        (("hadoop", "container-env"), job.hadoop.container_env),
        (("env",), job.env),
        (own, job.roles[role].env),
    ]
    return {name: (*path, name) for path, table in tables for name in table}.values()
