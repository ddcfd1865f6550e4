"""LightGBM's socket version: every worker knows every worker.

Source: lightgbm.readthedocs.io "Parameters", section "Network Parameters" (num_machines,
local_listen_port, time_out, machines), and "Parallel Learning Guide". LightGBM reads parameters,
not variables, so each variable is LGBM_ and the parameter's name in capitals; a script hands them over,
numbers as numbers
(`docs/frameworks/lightgbm.md`).

LGBM_RANK is ours: the row of LGBM_MACHINES that is this program, for the choice of its rows (set
``pre_partition`` when each program loads its own). LightGBM finds itself in the list by comparing
addresses, so where Howdah advertises host names a script resolves them first.

As observed with LightGBM 4.7: a missing peer is waited for until ``time_out``; survivors of a dead
one never notice (a busy loop). So: a start-up limit, and a restart of the whole gang at once.
"""

from __future__ import annotations

from msgspec.structs import replace

from howdah.core.messages import Member, Topology
from howdah.frameworks import addresses
from howdah.frameworks.base import Collective, RoleDefaults, processes
from howdah.spec.model import Job


class LightGBM(Collective):
    """One listening program for each entry of the machine list."""

    name = "lightgbm"

    def role(self, job: Job, role: str) -> RoleDefaults:
        rules = super().role(job, role)
        return replace(rules, ports=processes(job.roles[role])) if rules.ranked else rules

    def environment(
        self, job: Job, topology: Topology, member: Member, process: int
    ) -> dict[str, str]:
        if member.rank is None:
            return {}
        machines = [
            addresses.address(other, number)
            for other in addresses.ranked(topology)
            for number in range(other.processes)
        ]
        return {
            "LGBM_MACHINES": ",".join(machines),
            "LGBM_NUM_MACHINES": str(len(machines)),
            "LGBM_LOCAL_LISTEN_PORT": str(member.ports[process]),
            "LGBM_RANK": str(member.rank + process),
        }
