"""JAX: the arguments of ``jax.distributed.initialize``, as variables.

Sources: docs.jax.dev "Introduction to multi-controller JAX" and ``jax/_src/distributed.py``
and ``jax/_src/clusters/ompi_cluster.py`` (0.10). JAX itself reads JAX_COORDINATOR_ADDRESS and
JAX_LOCAL_DEVICE_IDS; number and id of the process are arguments, or what it finds of a launcher it
knows. ``jax.distributed.initialize()`` without arguments finds Open MPI's variables here, and a script
that passes arguments takes them from JAX_NUM_PROCESSES and JAX_PROCESS_ID.

Process 0 serves the coordination service on its first port. gRPC binds it with SO_REUSEPORT
(``grpc.so_reuseport``, on by default on Linux), so the agent holds it until then;
``TF_GRPC_REUSE_PORT`` is how it is told so, JAX itself does not read it. JAX_LOCAL_DEVICE_IDS shares the GPUs
of a task out among its programs: Open MPI's would be one each, also for a single program.

As observed with JAX 0.10 and gloo collectives: SIGTERM is swallowed, survivors of a dead process
need up to 97 s to end, none can rejoin alone. So the whole gang restarts, with a short grace.
"""

from __future__ import annotations

from howdah.core.messages import Member, Topology
from howdah.frameworks import addresses
from howdah.frameworks.base import Collective
from howdah.spec.model import Job


class Jax(Collective):
    """One process of a multi-controller JAX program each."""

    name = "jax"

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
        gpus = job.roles[member.task.role].gpus
        hints = {
            # Only that it is there counts: the address is known.
            "OMPI_MCA_orte_hnp_uri": "0.0;tcp://127.0.0.1:1",
            "OMPI_COMM_WORLD_SIZE": env["JAX_NUM_PROCESSES"],
            "OMPI_COMM_WORLD_RANK": env["JAX_PROCESS_ID"],
            "OMPI_COMM_WORLD_LOCAL_RANK": str(process),
        }
        if gpus:
            begin, end = (at * gpus // member.processes for at in (process, process + 1))
            own = range(begin, end) or (process % gpus,)
            hints["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, own))
        if member.rank == 0 and topology.world_size > 1:
            hints["TF_GRPC_REUSE_PORT"] = "1"
        env |= addresses.unless_set(job, member, hints)
        return env | addresses.interface_hints(job, member, "NCCL_SOCKET_IFNAME")
