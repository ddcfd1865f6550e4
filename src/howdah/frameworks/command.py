"""Plain programs: Howdah tells each who the others are, and assumes nothing else.

In mode ``gang`` the tasks may depend on each other (they all know all addresses), so a failure
restarts them together; in mode ``each`` they are independent, and a failure restarts the one task.
``restart`` says otherwise. No program shows that it found peers, so started counts as joined.

Every tracked role is ranked; rank 0 is in the role ``chief`` or ``master``, else in the first.
"""

from __future__ import annotations

from howdah.core.plan import Join
from howdah.frameworks.base import Framework, RoleDefaults, chief_role, tracked_roles
from howdah.spec.model import Job, Mode, Restart


class PlainCommand(Framework):
    """The variables every program gets (HOWDAH_*), and no more."""

    name = "command"

    def role(self, job: Job, role: str) -> RoleDefaults:
        alone = job.mode is Mode.EACH
        tracked = tracked_roles(job)
        return RoleDefaults(
            restart=Restart.TASK if alone else Restart.GANG,
            ranked=role in tracked,
            chief=role == chief_role(job, *tracked),
            join=Join.NOW,
            restart_grace_s=2.0,
        )
