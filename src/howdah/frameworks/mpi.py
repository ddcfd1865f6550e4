"""Programs that read their rank as Open MPI's do, started without ``mpirun``.

Source: docs.open-mpi.org "Environment variables defined by mpirun" (OMPI_*), and for launchers
docs.open-mpi.org "Scheduling processes across hosts" (``--host``, hostfiles). Many tools besides MPI
read OMPI_COMM_WORLD_*. There is no PMI server: a program that calls ``MPI_Init`` of a real MPI
library is alone in its world, unless it is started by a real ``mpirun``.

For that the tasks stand in HOWDAH_MPI_HOSTS (``host:slots,…``, for ``--host``), and
``helpers/mpi_main.py`` writes them into a hostfile, which Open MPI and Hydra (MPICH, Intel MPI) find
by themselves: ``mpirun`` in rank 0's command needs no list of hosts. Reaching the other hosts is the
site's affair (ssh).

A container is a node: local ranks count the programs of a task. Programs connect as they like, so
started counts as joined. MPI ends all ranks when one dies, so all restart.
"""

from __future__ import annotations

from howdah.core.messages import Member, Topology
from howdah.core.plan import Join
from howdah.frameworks import addresses
from howdah.frameworks.base import (
    Framework,
    Problem,
    RoleDefaults,
    chief_role,
    only_gang,
    tracked_roles,
)
from howdah.spec.model import Job


class Mpi(Framework):
    """OMPI_COMM_WORLD_* and a hostfile."""

    name = "mpi"

    def collective(self, job: Job) -> bool:
        return True

    def check(self, job: Job) -> list[Problem]:
        return only_gang(job)

    def role(self, job: Job, role: str) -> RoleDefaults:
        tracked = tracked_roles(job)
        return RoleDefaults(
            ranked=role in tracked, chief=role == chief_role(job, *tracked), join=Join.NOW
        )

    def environment(
        self, job: Job, topology: Topology, member: Member, process: int
    ) -> dict[str, str]:
        if member.rank is None:
            return {}
        slots: dict[str, int] = {}
        for other in addresses.ranked(topology):
            slots[other.host] = slots.get(other.host, 0) + other.processes
        return {
            "OMPI_COMM_WORLD_RANK": str(member.rank + process),
            "OMPI_COMM_WORLD_SIZE": str(topology.world_size),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(process),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(member.processes),
            # Open MPI: the rank among all processes of all its jobs on the node, not the node's.
            "OMPI_COMM_WORLD_NODE_RANK": str(process),
            "OMPI_UNIVERSE_SIZE": str(topology.world_size),
            "HOWDAH_MPI_HOSTS": ",".join(f"{host}:{number}" for host, number in slots.items()),
        }

    def launcher(self, job: Job, role: str) -> str | None:
        return "mpi_main.py"
