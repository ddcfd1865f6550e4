"""MPI: ``mpirun`` over the job's tasks, or programs that only read their rank as under Open MPI's.

Sources: docs.open-mpi.org "Launching with SSH" (``plm_rsh_agent``, ``plm_ssh_agent``), "Scheduling
processes across hosts" (hostfiles, slots, oversubscription), "Environment variables defined by mpirun"
(OMPI_*); the MPICH wiki "Using the Hydra Process Manager" (``HYDRA_…``); Intel MPI's reference of
``I_MPI_HYDRA_…``; kubeflow's MPIJob for the role ``launcher``.

* Where the command calls ``mpirun``, rank 0 runs it and every task is a node of it, named
  ``<role>-<index>``. mpirun's daemons are started on the nodes through ``helpers/mpi_remote.py`` in ssh's
  stead. The world is mpirun's own: no OMPI_* is set, which it would take for a run inside another.
* A role named ``launcher`` runs the command, whatever it is, and the other roles are the nodes.
* Otherwise each task runs the command, with OMPI_COMM_WORLD_*. ``MPI_Init`` of an MPI library
  would make each a world of its own: ``helpers/mpi_main.py`` refuses that.
* A container is a node, also where several are on one host: what a rank uses is counted, and limited, where
  it runs. Open MPI's ``coll/han`` takes nodes of one host for one, and hangs: it is switched off there.
  Daemons of one host know nothing of each other, so ranks are bound to no cores.

Programs connect as they like, so started counts as joined. MPI ends all ranks when one dies, so all restart.
"""

from __future__ import annotations

import re

from msgspec.structs import replace

from howdah.core.messages import Member, Topology
from howdah.core.plan import Join
from howdah.frameworks import addresses
from howdah.frameworks.base import (
    SERVER,
    Framework,
    Problem,
    RoleDefaults,
    at_most_one,
    chief_role,
    only_gang,
    tracked_roles,
)
from howdah.spec.model import Job, Tracking

LAUNCHER = "launcher"

_MPIRUN = re.compile(
    r"(^|[\s/'\"])(mpirun|mpiexec|mpiexec\.hydra|orterun|prterun)(\.openmpi|\.mpich)?([\s'\"]|$)"
)


class Mpi(Framework):
    """Hosts and a way to start daemons for mpirun; else OMPI_COMM_WORLD_*."""

    name = "mpi"

    def collective(self, job: Job) -> bool:
        return True

    def check(self, job: Job) -> list[Problem]:
        found = only_gang(job) + at_most_one(job, LAUNCHER)
        if not calls_mpirun(job):
            return found
        for name, role in job.roles.items():
            if role.processes != 1:
                found.append(
                    Problem(
                        key=f"roles.{name}.processes",
                        message="mpirun starts a task's processes itself, as many as its -np says; "
                        "remove processes. The slots of a task are its gpus, or its cores.",
                    )
                )
        return found

    def role(self, job: Job, role: str) -> RoleDefaults:
        tracked = tracked_roles(job)
        if LAUNCHER in job.roles:
            if role == LAUNCHER:
                return RoleDefaults(chief=True, join=Join.NOW)
            return replace(SERVER, join=Join.NOW)
        return RoleDefaults(
            ranked=role in tracked, chief=role == chief_role(job, *tracked), join=Join.NOW
        )

    def environment(
        self, job: Job, topology: Topology, member: Member, process: int
    ) -> dict[str, str]:
        if calls_mpirun(job):
            return _mpirun(job, topology, member)
        if member.rank is None:
            return {}
        return {
            "OMPI_COMM_WORLD_RANK": str(member.rank + process),
            "OMPI_COMM_WORLD_SIZE": str(topology.world_size),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(process),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(member.processes),
            # Open MPI: the rank among all processes of all its jobs on the node, not the node's.
            "OMPI_COMM_WORLD_NODE_RANK": str(process),
        }

    def launcher(self, job: Job, role: str) -> str | None:
        return "mpi_main.py"


def calls_mpirun(job: Job) -> bool:
    """Whether the job's ranks are started by an mpirun."""
    if LAUNCHER in job.roles:
        return True
    first = chief_role(job, *tracked_roles(job))
    command = (job.roles[first].command if first is not None else None) or job.command or ""
    text = command if isinstance(command, str) else " ".join(command)
    return _MPIRUN.search(text) is not None


def _mpirun(job: Job, topology: Topology, member: Member) -> dict[str, str]:
    nodes = _nodes(job, topology)
    if member.rank is None and member not in nodes:
        return {}
    texts = [f"{_name(n)}={addresses.address(n)}*{_slots(job, n)}" for n in nodes]
    env = {
        "HOWDAH_MPI_NODES": ",".join(texts),
        "HOWDAH_MPI_NODE": _name(member) if member in nodes else "",
        "HOWDAH_MPI_HOSTS": ",".join(f"{_name(node)}:{_slots(job, node)}" for node in nodes),
    }
    hints = {
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
    }
    if any(_own_slots(job, node) is None for node in nodes):
        # As many ranks as -np says, dealt to the tasks in turn.
        hints["OMPI_MCA_rmaps_base_mapping_policy"] = "node:OVERSUBSCRIBE"
        hints["PRTE_MCA_rmaps_default_mapping_policy"] = "node:OVERSUBSCRIBE"
    if len({node.host for node in nodes}) < len(nodes):
        hints["OMPI_MCA_coll"] = "^han"
    hints |= addresses.interface_hints(
        job, member, "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include", "HYDRA_IFACE"
    )
    return env | addresses.unless_set(job, member, hints)


def _nodes(job: Job, topology: Topology) -> list[Member]:
    if LAUNCHER not in job.roles:
        return addresses.ranked(topology)
    return [
        member
        for name in job.roles
        if name != LAUNCHER and job.roles[name].tracking in (None, Tracking.UNTRACKED)
        for member in addresses.reachable(topology, name)
    ]


def _name(member: Member) -> str:
    return f"{member.task.role}-{member.task.index}"


def _slots(job: Job, member: Member) -> int:
    return _own_slots(job, member) or 1


def _own_slots(job: Job, member: Member) -> int | None:
    """Ranks that a task of this role has room for, if the job says."""
    role = job.roles[member.task.role]
    return role.gpus or role.cores
