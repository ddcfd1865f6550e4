"""Ray: a head, worker nodes, and a driver that is the user's program.

Sources: docs.ray.io "Launching an On-Premise Cluster" (``ray start``), "Configuring Ray" (ports),
"Token authentication", "Fault tolerance", and Ray 2.60 as run with two nodes on one machine.

* The roles are ``head`` (added if the job has none), ``worker`` and ``driver``. Head and worker
  need no command: they run ``ray start --block`` with their reserved ports. The job's command is
  the driver's; ``ray.init()`` connects it by RAY_ADDRESS.
* Ray wants one of its nodes on the driver's host. Where there is none, RAY_ADDRESS names the head's
  Ray Client server (``ray://``) instead.
* A stranger who reaches a Ray port can run code, so token authentication is on: each task makes the token of
  what only the job's tasks have (``helpers/ray_token.py``).
* The driver's end is the job's. Head and workers only serve, so they are untracked and their
  silence is no hang.
* Ray's own waits at start-up suit an idle machine: a cluster that starts on busy nodes would fail.
  `PATIENCE` makes them longer where a job's ``env`` does not say otherwise; what bounds the start is
  the job's own limit.
* A dead worker node or driver is replaced alone; a dead head has lost the cluster: all restart.
"""

from __future__ import annotations

from msgspec.structs import replace

from howdah.core.messages import Member, Topology
from howdah.core.plan import Join
from howdah.frameworks import addresses
from howdah.frameworks.base import (
    INDEPENDENT,
    SERVER,
    Framework,
    Problem,
    RoleDefaults,
    at_most_one,
    needs_one_of,
)
from howdah.spec.model import Job, Restart, Role, Tracking
from howdah.spec.units import octets

START = '"$HOWDAH_PYTHON" "$HOWDAH_HELPERS/ray_main.py"'

HEAD_PORTS = 9
"""GCS, Ray Client server, those of every node, the dashboard: see ``helpers/ray_main.py``."""
NODE_PORTS = 6
CLIENT_SERVER = 1
"""Which of the head's ports the Ray Client server has."""

OBJECT_STORE = 0.3
"""Share of a container's memory for the object store, as Ray's own default."""

PATIENCE = {
    "RAY_raylet_start_wait_time_s": "120",  # 30: until a node is known to its cluster
    "RAY_NUM_REDIS_GET_RETRIES": "120",  # 20, of 1 to 2 s each: for the head, then for its node
    "RAY_gcs_rpc_server_connect_timeout_s": "60",  # 5
    "RAY_py_gcs_connect_timeout_s": "60",  # 30
    "RAY_agent_register_timeout_ms": "120000",  # 30 s: for the node's helper processes
    "RAY_worker_register_timeout_seconds": "180",  # 60: for a process that runs tasks
}
"""Limits at start-up, with Ray's own: ``src/ray/common/ray_config_def.h``, ``ray_constants.py``."""


class Ray(Framework):
    """RAY_ADDRESS, and ``ray start`` for the roles that serve."""

    name = "ray"
    many_processes = False

    def check(self, job: Job) -> list[Problem]:
        return needs_one_of(job, "driver", what="the role of your program") + at_most_one(
            job, "head", "driver"
        )

    def helpers(self, job: Job) -> dict[str, Role]:
        return {"head": Role()}

    def command(self, job: Job, role: str) -> str | None:
        if role not in ("head", "worker"):
            return None
        own = job.roles[role]
        # Where there are workers, the head gets no tasks unless it is given cores: it serves the cluster.
        cores = 0 if role == "head" and "worker" in job.roles else 1
        options = f" --num-cpus {own.cores or cores} --num-gpus {own.gpus}"
        if own.memory is not None:
            options += f" --object-store-memory {int(octets(own.memory) * OBJECT_STORE)}"
        return START + options

    def role(self, job: Job, role: str) -> RoleDefaults:
        match role:
            case "head":
                return replace(SERVER, ports=HEAD_PORTS, restart_grace_s=4.0)
            case "worker":
                return replace(
                    SERVER,
                    restart=Restart.TASK,
                    ports=NODE_PORTS,
                    after=("head",),
                    restart_grace_s=4.0,
                )
            case "driver":
                return RoleDefaults(
                    restart=Restart.TASK, chief=True, join=Join.NOW, after=("head", "worker")
                )
            case _:
                return INDEPENDENT

    def environment(
        self, job: Job, topology: Topology, member: Member, process: int
    ) -> dict[str, str]:
        env = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
        env |= addresses.unless_set(job, member, PATIENCE)
        if member.task.role == "head" or not addresses.reachable(topology, "head"):
            return env
        head = addresses.only(topology, "head")
        nodes = (*addresses.reachable(topology, "head"), *addresses.reachable(topology, "worker"))
        if member.task.role == "worker" or any(node.host == member.host for node in nodes):
            return env | {"RAY_ADDRESS": addresses.address(head)}
        return env | {"RAY_ADDRESS": f"ray://{addresses.address(head, CLIENT_SERVER)}"}

    def launcher(self, job: Job, role: str) -> str | None:
        return None if job.roles[role].tracking is Tracking.SIDECAR else "ray_token.py"
