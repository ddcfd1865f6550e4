"""MXNet's parameter server (ps-lite): scheduler, servers, workers.

Sources: mxnet.apache.org "Distributed Training in MXNet" ("Manually launching jobs", "Environment
variables": DMLC_*), ps-lite's "Environment Variables", and TonY's ``MXNetRuntime`` (DMLC_LOCAL).

* All three roles run the same program: ``import mxnet`` turns it into a scheduler or server where
  DMLC_ROLE says so. ``scheduler`` is added if the job has none.
* Start order: scheduler, servers, workers. The documentation asks for an address, not a host name, in
  DMLC_PS_ROOT_URI; with host names set ``[network] address``.
* "If a worker crashes, it halts the progress of all workers" (dist_sync): all restart.
* Scheduler and servers leave when all workers have; they are untracked and only serve, so their
  silence is no hang.

MXNet was retired in 2023. No wheel of it exists for the Pythons Howdah runs on, so this file is
tested against its documentation and a stand-in process only.
"""

from __future__ import annotations

from msgspec.structs import replace

from howdah.core.messages import Member, Topology
from howdah.frameworks import addresses
from howdah.frameworks.base import (
    INDEPENDENT,
    SERVER,
    Framework,
    Problem,
    RoleDefaults,
    at_most_one,
    needs_one_of,
    only_gang,
)
from howdah.spec.model import Job, Role


class MXNet(Framework):
    """DMLC_*."""

    name = "mxnet"
    many_processes = False

    def collective(self, job: Job) -> bool:
        return True

    def check(self, job: Job) -> list[Problem]:
        found = needs_one_of(job, "server", what="the role that holds the weights") + needs_one_of(
            job, "worker"
        )
        return found + at_most_one(job, "scheduler") + only_gang(job)

    def helpers(self, job: Job) -> dict[str, Role]:
        return {"scheduler": Role()}

    def command(self, job: Job, role: str) -> list[str] | str | None:
        # A scheduler that the job file lacks runs what the workers run.
        if role != "scheduler" or job.command is not None or "worker" not in job.roles:
            return None
        return job.roles["worker"].command

    def role(self, job: Job, role: str) -> RoleDefaults:
        match role:
            case "scheduler":
                return SERVER
            case "server":
                return replace(SERVER, after=("scheduler",))
            case "worker":
                # Not after the servers: they join only when the workers have come too.
                return RoleDefaults(chief=True, after=("scheduler",))
            case _:
                return INDEPENDENT

    def environment(
        self, job: Job, topology: Topology, member: Member, process: int
    ) -> dict[str, str]:
        role = member.task.role
        if role not in ("scheduler", "server", "worker"):
            return {}
        scheduler = addresses.only(topology, "scheduler")
        env = {
            "DMLC_ROLE": role,
            "DMLC_PS_ROOT_URI": scheduler.host,
            "DMLC_PS_ROOT_PORT": str(scheduler.ports[0]),
            "DMLC_LOCAL": "0",
            "DMLC_NUM_SERVER": str(len(addresses.of_role(topology, "server"))),
            "DMLC_NUM_WORKER": str(len(addresses.of_role(topology, "worker"))),
        }
        return env | addresses.interface_hints(job, member, "DMLC_INTERFACE")
