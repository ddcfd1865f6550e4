"""JAX: the arguments of ``jax.distributed.initialize``, as variables.

Sources: docs.jax.dev "Introduction to multi-controller JAX" and ``jax/_src/distributed.py``
(0.10): of the variables below JAX itself reads JAX_COORDINATOR_ADDRESS and JAX_LOCAL_DEVICE_IDS;
number and id of the process are arguments, which a script takes from JAX_NUM_PROCESSES and
JAX_PROCESS_ID::

    jax.distributed.initialize(
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
        process_id=int(os.environ["JAX_PROCESS_ID"]))

Process 0 serves the coordination service on its first port. JAX_LOCAL_DEVICE_IDS gives each of a
task's several programs one GPU of its own.

As observed with JAX 0.10 and gloo collectives: SIGTERM is swallowed, survivors of a dead process
need up to 97 s to end, none can rejoin alone. So the whole gang restarts, with a short grace.
"""

from __future__ import annotations

from howdah.core.messages import Member, Topology
from howdah.frameworks import addresses
from howdah.frameworks.base import (
    Framework,
    Problem,
    RoleDefaults,
    at_most_one,
    grouped,
    needs_one_of,
    only_gang,
)
from howdah.spec.model import Job


class Jax(Framework):
    """One process of a multi-controller JAX program each."""

    name = "jax"

    def collective(self, job: Job) -> bool:
        return True

    def check(self, job: Job) -> list[Problem]:
        return (
            needs_one_of(job, "chief", "worker")
            + at_most_one(job, "chief", "master")
            + only_gang(job)
        )

    def role(self, job: Job, role: str) -> RoleDefaults:
        return grouped(job, role, "worker")

    def environment(
        self, job: Job, topology: Topology, member: Member, process: int
    ) -> dict[str, str]:
        if member.rank is None:
            return {}
        env = {
            "JAX_COORDINATOR_ADDRESS": addresses.address(addresses.first(topology)),
            "JAX_NUM_PROCESSES": str(topology.world_size),
            "JAX_PROCESS_ID": str(member.rank + process),
        }
        hints: dict[str, str] = {}
        if member.processes > 1 and job.roles[member.task.role].gpus >= member.processes:
            hints["JAX_LOCAL_DEVICE_IDS"] = str(process)
        env |= addresses.unless_set(job, member, hints)
        return env | addresses.interface_hints(job, member, "NCCL_SOCKET_IFNAME")
