"""What a container's agent is told, where its holder is known. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from howdah.agent.launch import HERE, AgentLaunch
from howdah.backends.base import RoleResources
from howdah.backends.spark import inside, luggage
from howdah.backends.spark.messages import Here
from howdah.storage import layout


def completed(
    launch: AgentLaunch, here: Here, coordinator: tuple[str, int], gpus: tuple[str, ...]
) -> AgentLaunch:
    """The launch with the folders of a container of that holder."""
    secrets = f"{HERE}/{luggage.SECRETS}"
    return msgspec.structs.replace(
        launch,
        coordinator_file=f"{inside.HOME}/{layout.COORDINATOR}",
        coordinators=(coordinator,),
        ca=f"{secrets}/ca.pem",
        certificate=f"{secrets}/agent.pem",
        key=f"{secrets}/agent.key",
        work_dir=f"{here.base}/{launch.container_id}",
        log_dir=f"{inside.HOME}/{layout.LOGS}",
        gpus=gpus,
        last_lines=not here.sees,
    )


def share(roles: Mapping[str, RoleResources], role: str, given: tuple[str, ...]) -> tuple[str, ...]:
    """Of the GPUs that Spark gives the task, the role's: where roles say how many, those only that
    say so get any."""
    if any(each.gpus for each in roles.values()):
        return given[: roles[role].gpus] if role in roles else ()
    return given


def too_few_gpus(roles: Mapping[str, RoleResources], role: str, given: Sequence[str]) -> str:
    """Why the role cannot be where Spark gives these; empty if it can."""
    wanted = roles[role].gpus
    if wanted <= len(given):
        return ""
    return (
        f"roles.{role}.gpus: {wanted} are asked for, Spark gives a task {len(given)}: set "
        f"spark.task.resource.gpu.amount = {wanted} (and spark.executor.resource.gpu.amount)"
    )
