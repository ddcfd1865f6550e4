"""PyTorch: torch.distributed's ``env://`` variables, and those ``torchrun`` reads.

Sources: pytorch.org/docs/stable/distributed.html ("Environment variable initialization"),
pytorch.org/docs/stable/elastic/run.html ("Environment Variables", "Definitions"), and
``torch/distributed/argparse_util.py`` (every option of ``torchrun`` has its default in ``PET_…``).

* Ranks are unique over chief and worker; rank 0's first port is the store's (MASTER_PORT).
* A container is a node: LOCAL_RANK counts the programs of the task, and with ``gpus`` it is the
  number of the program's device among those the task can see.
* A ``torchrun`` command works unchanged: it finds nodes, node rank and rendezvous in PET_*, and
  starts one program for each GPU of the task (one without GPUs). With it leave ``processes`` out.
  Restarts stay ours (PET_MAX_RESTARTS=0). PET_RDZV_ENDPOINT is where ``--rdzv-backend=c10d`` meets.
* OMP_NUM_THREADS is a program's share of the task's cores; 1 where the cores are not known and there
  are several programs, as ``torchrun`` has it.
* INIT_METHOD, RANK and WORLD are what TonY gives.

As observed with PyTorch 2.15 and gloo: survivors of a dead rank fail after 2-3 s, one rank alone
cannot rejoin, a missing peer is waited for up to its own time-out. So the whole gang restarts.
"""

from __future__ import annotations

import re

from howdah.core.messages import Member, Topology
from howdah.frameworks import addresses
from howdah.frameworks.base import Collective, Problem
from howdah.spec.model import Job
from howdah.spec.units import instance_range

_TORCHRUN = re.compile(r"(^|[\s/'\"])(torchrun|torch\.distributed\.(run|launch))([\s'\"]|$)")

_STANDALONE = re.compile(r"(torchrun|torch\.distributed\.run)\s.*--standalone\b", re.DOTALL)


class PyTorch(Collective):
    """One process group over the tasks of chief and worker."""

    name = "pytorch"

    def check(self, job: Job) -> list[Problem]:
        found = super().check(job)
        for name, role in job.roles.items():
            command = role.command or job.command or ""
            text = command if isinstance(command, str) else " ".join(command)
            if role.processes != 1 and _TORCHRUN.search(text):
                found.append(
                    Problem(
                        key=f"roles.{name}.processes",
                        message="torchrun starts a task's processes itself, one for each of its "
                        "gpus; remove processes, or run the script without torchrun.",
                    )
                )
            if _STANDALONE.search(text) and instance_range(role.instances)[1] > 1:
                found.append(
                    Problem(
                        key=f"roles.{name}.command" if role.command else "command",
                        message="torchrun --standalone makes each task a job of its own, whose "
                        "programs know nothing of the other tasks; remove --standalone.",
                    )
                )
        return found

    def environment(
        self, job: Job, topology: Topology, member: Member, process: int
    ) -> dict[str, str]:
        if member.rank is None:
            return {}
        master = addresses.first(topology)
        nodes = len(addresses.ranked(topology))
        node = addresses.node_rank(topology, member)
        port = str(master.ports[0])
        programs = max(job.roles[member.task.role].gpus, 1)
        env = {
            "MASTER_ADDR": master.host,
            "MASTER_PORT": port,
            "RANK": str(member.rank + process),
            "WORLD_SIZE": str(topology.world_size),
            "LOCAL_RANK": str(process),
            "LOCAL_WORLD_SIZE": str(member.processes),
            "GROUP_RANK": str(node),
            "GROUP_WORLD_SIZE": str(nodes),
            "NODE_RANK": str(node),
            "INIT_METHOD": f"tcp://{addresses.address(master)}",
            "WORLD": str(topology.world_size),
            "PET_NNODES": str(nodes),
            "PET_NODE_RANK": str(node),
            "PET_NPROC_PER_NODE": str(programs),
            "PET_MASTER_ADDR": master.host,
            "PET_MASTER_PORT": port,
            "PET_RDZV_ENDPOINT": addresses.address(master),
            "PET_MAX_RESTARTS": "0",
        }
        hints: dict[str, str] = {}
        role = job.roles[member.task.role]
        if role.cores is not None:
            hints["OMP_NUM_THREADS"] = str(max(role.cores // max(member.processes, programs), 1))
        elif topology.world_size * programs > 1:
            hints["OMP_NUM_THREADS"] = "1"
        env |= addresses.unless_set(job, member, hints)
        return env | addresses.interface_hints(
            job, member, "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"
        )
