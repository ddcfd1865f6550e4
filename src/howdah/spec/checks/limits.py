"""What a site allows one job, and whether a job stays within it."""

from __future__ import annotations

from collections.abc import Iterator

from howdah.spec import units
from howdah.spec.checks.rules import Breach
from howdah.spec.model import Job, Limits, Role
from howdah.spec.problems import KeyPath, Problems


def check(job: Job, limits: Limits, problems: Problems, site: str | None) -> None:
    """Add every limit the job is past. ``site`` names the file the limits come from.

    An elastic role counts at its greatest. Only roles the job file has are counted: a tracker or
    TensorBoard that is added to them costs little, and the user could not ask for less.
    """
    for path, message, hint, _ in findings(job, limits):
        if not problems.doubted_within(path):
            by = f"the limit is set by {site}" if site else "the limit is the site's"
            problems.add(path, message, f"{hint}; {by}" if hint else by)


def findings(job: Job, limits: Limits) -> Iterator[Breach]:
    """Every limit the job is past."""
    tasks = {name: units.instance_range(role.instances)[1] for name, role in job.roles.items()}
    yield from _most("tasks", tasks, limits.max_instances, "instances")
    cores = {name: tasks[name] * (role.cores or 1) for name, role in job.roles.items()}
    yield from _most("CPU cores", cores, limits.max_cores, "cores")
    gpus = {name: tasks[name] * role.gpus for name, role in job.roles.items()}
    yield from _most("GPUs", gpus, limits.max_gpus, "gpus")
    for resource, most in limits.max_resources.items():
        match resource:  # what roles ask for by keys of their own
            case "yarn.io/gpu":
                yield from _most("GPUs", gpus, most, "gpus")
            case "vcores":
                yield from _most("CPU cores", cores, most, "cores")
            case "memory-mb":
                yield from _memory(job.roles, tasks, f"{most}m")
            case _:
                asked = {
                    n: tasks[n] * each.resources.get(resource, 0) for n, each in job.roles.items()
                }
                yield from _most(resource, asked, most, "resources")
    if limits.max_memory is not None:
        yield from _memory(job.roles, tasks, limits.max_memory)


def _memory(roles: dict[str, Role], tasks: dict[str, int], most: str) -> Iterator[Breach]:
    for name, role in roles.items():
        if role.memory is None:
            message = f"the site limits a job's memory, and the role {name} does not say its own"
            hint = f'write roles.{name}.memory = "2g", or what it needs'
            yield Breach(("roles", name, "memory"), message, hint)
    amounts = {
        name: tasks[name] * units.mebibytes(role.memory)
        for name, role in roles.items()
        if role.memory is not None
    }
    yield from _most("MiB of memory", amounts, units.mebibytes(most), "memory")


def _most(what: str, amounts: dict[str, int], most: int | None, key: str) -> Iterator[Breach]:
    total = sum(amounts.values())
    if most is None or total <= most:
        return
    parts = " + ".join(f"{name} {amount:,}" for name, amount in amounts.items() if amount)
    sum_of = f" ({parts})" if len(amounts) > 1 else ""
    greatest = max(amounts, key=lambda name: amounts[name])
    path: KeyPath = ("roles", greatest, key)
    yield Breach(path, f"the job asks for {total:,} {what}{sum_of}, and may have {most:,}")
