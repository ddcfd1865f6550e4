"""The variables that a script written for TonY reads. Pure.

Every job's programs get them, with Howdah's meaning where that differs: a task's role, not the whole
job, is counted. A job with ``compat = "tony"`` gets them exactly as TonY has them.

Sources, all of TonY 0.5.3: ``ApplicationMaster.ContainerLauncher`` (JOB_NAME, TASK_NUM, IS_CHIEF,
JOB_ID, SESSION_ID), ``TonySession.isChief`` and ``getTotalTrackedTasks``, ``TaskExecutor.setupPorts``
(TB_PORT), ``Utils.constructTFConfig``.
"""

from __future__ import annotations

from howdah.core.messages import Member, Task, Topology
from howdah.core.plan import Plan
from howdah.frameworks import addresses
from howdah.frameworks.sidecars import is_preprocess
from howdah.spec.model import Compat, Job, Mode, Tracking

EVALUATOR = "evaluator"


def exact(job: Job) -> bool:
    """Whether its programs expect TonY."""
    return job.compat is Compat.TONY


def chief_role(job: Job) -> str:
    """The role whose task (of ``chief``: each task) is the chief, by the names alone."""
    return "chief" if "chief" in job.roles else "worker"


def is_chief(job: Job, task: Task) -> bool:
    """Every ``chief`` is one; without that role it is ``worker:0``."""
    role = chief_role(job)
    return task.role == role and (role == "chief" or task.index == 0)


def variables(
    job: Job,
    plan: Plan,
    topology: Topology,
    member: Member,
    attempt: int,
    *,
    chief: bool,
    application: str,
) -> dict[str, str]:
    """TonY's names for one process; ``chief``: it is rank 0. ``application`` is the cluster's id of
    the job, if it has one."""
    task, gang = member.task, job.mode is Mode.GANG
    found = {
        "JOB_NAME": task.role,
        "TASK_INDEX": str(task.index),
        # TonY counts sessions from 0, one for each time it restarts all tasks.
        "SESSION_ID": str(max(topology.generation - 1, 0)),
        "DISTRIBUTED_MODE": "GANG" if gang else "FCFS",
    }
    if not exact(job):
        tasks = (
            len(addresses.of_role(topology, task.role)) if gang else plan.role(task.role).maximum
        )
        return found | {
            "TASK_NUM": str(tasks),
            "IS_CHIEF": "true" if chief else "false",
            "JOB_ID": plan.job_id,
            "ATTEMPT_NUMBER": str(attempt),
        }
    found |= {
        "TASK_NUM": str(_tracked_tasks(job, plan)),
        "JOB_ID": application or plan.job_id,
        "ATTEMPT_NUMBER": str(max(attempt - 1, 0)),
    }
    return found | ({"IS_CHIEF": "true"} if is_chief(job, task) else {})


def _tracked_tasks(job: Job, plan: Plan) -> int:
    """TonY runs the preprocess step in its master: it is no task there."""
    return sum(
        role.maximum
        for role in plan.roles
        if role.tracking is Tracking.TRACKED and not is_preprocess(job, role.name)
    )


def cluster_and_task(
    job: Job, topology: Topology, member: Member
) -> tuple[dict[str, list[str]], dict[str, str | int]]:
    """The two parts of TF_CONFIG as TonY makes them: all roles, whether TensorFlow knows them or not;
    an evaluator is in its own only. Sidecars are left out, of which TonY leaves out TensorBoard alone.
    """
    task = member.task
    cluster = {
        name: tasks
        for name, tasks in addresses.cluster(job, topology).items()
        if name.lower() != EVALUATOR or task.role.lower() == EVALUATOR
    }
    return cluster, {"type": task.role, "index": task.index}
