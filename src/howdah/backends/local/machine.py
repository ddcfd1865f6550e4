"""What this machine has, and whether a job can ever run on it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from howdah.backends.base import BackendError, RoleResources, role_resources
from howdah.backends.gpus import Device, GpuError, Lister, allowed, nvml_devices, unusable
from howdah.backends.interpreter import missing
from howdah.backends.local.allocation import MachineCapacity, impossible, overcommitted
from howdah.core.plan import Plan
from howdah.frameworks import planning
from howdah.spec.model import Job
from howdah.wire.addresses import NoInterface, address_of


def look(
    with_gpus: bool, lister: Lister = nvml_devices, visible: str | None = None
) -> tuple[MachineCapacity, Sequence[Device]]:
    """What is here, and the GPUs that ``CUDA_VISIBLE_DEVICES=visible`` leaves.

    GPUs are looked for only where one is wanted: the driver may take seconds.
    """
    problem = ""
    every: Sequence[Device] = ()
    if with_gpus:
        try:
            every = lister()
        except GpuError as error:
            problem = str(error)
    devices = allowed(every, visible)
    machine = MachineCapacity(
        memory_mb=_memory_mb(),
        cores=os.cpu_count() or 1,
        gpus=len(devices),
        all_gpus=len(allowed(every, None)),
        unusable_gpus=unusable(every),
        gpu_problem=problem,
    )
    return machine, devices


NEVER = "This machine can never run the job:\n"
"""Before the reasons."""


def refuse_impossible(
    roles: Mapping[str, RoleResources], plan: Plan | None, machine: MachineCapacity
) -> None:
    """Refuse a job this machine can never run.

    Raises:
        BackendError: with every reason.
    """
    if problems := impossible(roles, plan, machine):
        raise BackendError(NEVER + "\n".join(f"  {p}" for p in problems))


def check(
    job: Job,
    env: Mapping[str, str] = os.environ,
    lister: Lister = nvml_devices,
    source: str | None = None,
) -> None:
    """Refuse an expanded job before anything of it is started. Takes the time of `look`.

    ``source`` is the job's source folder.

    Raises:
        BackendError: this machine can never run it; with every reason.
    """
    problems: list[str] = []
    if problem := missing(job, source):
        problems.append(f"environment.python: {problem}")
    if job.network.interface is not None:
        try:
            address_of(job.network.interface)
        except NoInterface as error:
            problems.append(f"network.interface: {error}")
    if problems:
        raise BackendError(f"This machine cannot run the job: {'; '.join(problems)}")
    roles = role_resources(job)
    with_gpus = any(role.gpus for role in roles.values())
    machine, _ = look(with_gpus, lister, env.get("CUDA_VISIBLE_DEVICES"))
    refuse_impossible(roles, planning.plan(job, "check"), machine)


def shared(job: Job) -> list[str]:
    """What an expanded job asks for together and this machine has not, a line each: it runs all the same.

    Of a job that this machine can never run there is nothing to say: it is refused.
    """
    roles, plan = role_resources(job), planning.plan(job, "check")
    machine, _ = look(any(role.gpus for role in roles.values()))
    return [] if impossible(roles, plan, machine) else overcommitted(roles, plan, machine)


def _memory_mb() -> int:
    """This machine's memory, or what the control group we are in leaves of it."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text("utf-8"))
    except (OSError, ValueError):  # "max", or no such group
        limit = physical
    return min(physical, limit) >> 20
