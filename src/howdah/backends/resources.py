"""What the containers of a job's roles need, as numbers."""

from __future__ import annotations

from howdah.backends.base import RoleResources
from howdah.spec.model import Job
from howdah.spec.units import mebibytes


def role_resources(job: Job) -> dict[str, RoleResources]:
    """Resources of every role of an expanded job (`howdah.frameworks.planning.expand`)."""
    return {
        name: RoleResources(
            memory_mb=None if role.memory is None else mebibytes(role.memory),
            cores=role.cores,
            gpus=role.gpus,
            resources=role.resources,
            label=role.label,
            placement=role.placement,
            image=role.image,
            mounts=role.mounts,
        )
        for name, role in job.roles.items()
    }
