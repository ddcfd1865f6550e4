"""TensorFlow: TF_CONFIG for MultiWorkerMirroredStrategy and ParameterServerStrategy.

Sources: tensorflow.org/guide/distributed_training ("Setting up TF_CONFIG"),
``tf.distribute.cluster_resolver.TFConfigClusterResolver``, and ``multi_worker_util.py`` (a cluster
may name chief, worker, ps and evaluator only; a ``master`` of TensorFlow 1 is written ``chief``).

TF_CONFIG rules:

* ``cluster`` has chief, worker and ps. An evaluator is in its own TF_CONFIG only: it is no part of
  the training cluster. Sidecars and roles TensorFlow does not know are in no TF_CONFIG.
* ``task`` has the role and the task's place in that role's list. In an elastic gang a place can
  differ from the task's index.
* Without ``chief`` (or ``master``), ``worker`` 0 is the chief.
* In mode ``each`` there is no TF_CONFIG: the programs are on their own.
* With ``compat = "tony"`` it is what TonY makes of it (`howdah.frameworks.tony`), for every role.

Synchronous training (no ``ps``), as observed with TensorFlow 2.21: a missing peer is waited for
silently for ever, a dead one is noticed after 11-13 s, SIGTERM is swallowed, and one process alone
can never rejoin. So: a start-up limit, a restart of the whole gang at once, a very short grace.

Parameter servers with a chief (``ClusterCoordinator``): workers and ps only serve and never end by
themselves, so the chief's success is the job's, and their silence is no hang. A worker comes back
alone at its address; a restarted chief resumes against the same ps and workers; a dead ps loses
variables, so all restart from the checkpoint. Without a chief (TensorFlow 1 style) the workers
train, end by themselves and decide.

``TF_GRPC_REUSE_PORT`` makes the server bind with SO_REUSEPORT, so that the agent holds the port from its
choice to the server's bind (``grpc_server_lib.cc``): TensorFlow takes seconds to be imported, and the
kernel lets nobody but the same user share a port.

The evaluator reads checkpoints and belongs to no group; ``tf.keras.utils.SidecarEvaluator`` by
default never ends, so it is untracked: its failure counts, its end is not waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from howdah.core.messages import Member, Topology
from howdah.core.plan import Completion, Join
from howdah.frameworks import addresses, tony
from howdah.frameworks.base import (
    INDEPENDENT,
    SERVER,
    Framework,
    Problem,
    RoleDefaults,
    at_most_one,
    chief_role,
    needs_one_of,
)
from howdah.spec.model import Job, Mode, Restart, Tracking

CLUSTER = ("chief", "master", "worker", "ps")
"""Roles of the training cluster."""


def coordinated(job: Job) -> bool:
    """A chief drives workers and parameter servers that only serve."""
    return "ps" in job.roles and ("chief" in job.roles or "master" in job.roles)


class TensorFlow(Framework):
    """TF_CONFIG and what TensorFlow's processes do when one of them dies."""

    name = "tensorflow"
    many_processes = False

    def collective(self, job: Job) -> bool:
        return job.mode is Mode.GANG and "ps" not in job.roles

    def completion(self, job: Job) -> Completion:
        return Completion.CHIEF if coordinated(job) else Completion.ALL

    def check(self, job: Job) -> list[Problem]:
        # TonY runs whatever roles there are.
        found = [] if tony.exact(job) else needs_one_of(job, "chief", "worker")
        if "chief" in job.roles and "master" in job.roles:
            found.append(
                Problem(
                    key="roles.master",
                    message="master is TensorFlow 1's name of the chief, and the job has both; "
                    "remove one of them.",
                )
            )
        return found + at_most_one(job, "chief", "master", "evaluator")

    def role(self, job: Job, role: str) -> RoleDefaults:
        if job.mode is Mode.EACH:
            return RoleDefaults(
                restart=Restart.TASK,
                tracking=Tracking.UNTRACKED if role in ("ps", "evaluator") else Tracking.TRACKED,
                ranked=role in ("chief", "master", "worker"),
                chief=role == chief_role(job, "worker"),
                join=Join.NOW,
            )
        servers = "ps" in job.roles
        driven = coordinated(job)
        match role:
            case "ps":
                return SERVER
            case "chief" | "master":
                return RoleDefaults(
                    chief=True,
                    restart=Restart.TASK if servers else Restart.GANG,
                    sticky_ports=servers,
                )
            case "worker":
                return RoleDefaults(
                    chief=chief_role(job, "worker") == "worker",
                    restart=Restart.TASK if servers else Restart.GANG,
                    sticky_ports=servers,
                    watched=not driven,
                )
            case "evaluator":
                return RoleDefaults(
                    tracking=Tracking.UNTRACKED,
                    restart=Restart.TASK,
                    ranked=False,
                    join=Join.NOW,
                    watched=False,
                )
            case _:
                return INDEPENDENT

    def environment(
        self, job: Job, topology: Topology, member: Member, process: int
    ) -> dict[str, str]:
        role = member.task.role
        if job.mode is Mode.EACH:
            return {}
        if tony.exact(job):
            if job.roles[role].tracking is Tracking.SIDECAR:
                return {}
            cluster, task = tony.cluster_and_task(job, topology, member)
        elif role in (*CLUSTER, "evaluator"):
            cluster, task = _cluster_and_task(topology, member)
        else:
            return {}
        env = {"TF_CONFIG": addresses.compact({"cluster": cluster, "task": task})}
        # TonY's jobs are of this framework unless they say otherwise: a head of Ray's binds its port alone.
        if cluster.keys() <= {*CLUSTER, "evaluator"} and sum(map(len, cluster.values())) > 1:
            env |= addresses.unless_set(job, member, {"TF_GRPC_REUSE_PORT": "1"})
        return env | addresses.interface_hints(job, member, "NCCL_SOCKET_IFNAME")


def _cluster_and_task(
    topology: Topology, member: Member
) -> tuple[Mapping[str, Sequence[str]], dict[str, str | int]]:
    """The two parts of TF_CONFIG."""
    role = member.task.role
    cluster = {
        "chief" if name == "master" else name: found
        for name in CLUSTER
        if (found := addresses.addresses(topology, name))
    }
    if role == "evaluator":
        cluster["evaluator"] = addresses.addresses(topology, "evaluator")
    place = addresses.of_role(topology, role).index(member)
    return cluster, {"type": "chief" if role == "master" else role, "index": place}
