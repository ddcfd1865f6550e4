"""What a framework is to Howdah: defaults for roles, and a topology turned into environment.

A framework is one file with one class and a line in `howdah.frameworks.registry`, or an entry
point in the group ``howdah.frameworks``. It is pure: no I/O, no clock.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from howdah.core.commands import Member, Topology
from howdah.core.plan import Completion, Join
from howdah.spec.model import Job, Restart, Tracking


class RoleDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a role of some name unless the job file says otherwise."""

    tracking: Tracking = Tracking.TRACKED
    restart: Restart = Restart.GANG
    stop_on_failure: bool = False
    ranked: bool = True
    chief: bool = False
    ports: int = 1
    sticky_ports: bool = False
    join: Join = Join.NETWORK
    watched: bool = True
    after: tuple[str, ...] = ()
    restart_grace_s: float = 0.5


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something in a job this framework cannot run: dotted key, what is wrong, what to do."""

    key: str
    message: str


class Framework(Protocol):
    """Rules of one framework; sources are in each file."""

    name: str
    completion: Completion

    def check(self, job: Job) -> list[Problem]:
        """What is wrong with the job's roles for this framework; empty if nothing."""
        ...

    def role(self, job: Job, role: str) -> RoleDefaults:
        """Defaults for that role of the job."""
        ...

    def environment(
        self, job: Job, topology: Topology, member: Member, process: int
    ) -> dict[str, str]:
        """Variables of one process (``process`` is its local rank) under this topology."""
        ...

    def helpers(self, job: Job) -> dict[str, Any]:
        """Roles the framework adds by itself (a tracker, a rendezvous server): name → Role."""
        ...
