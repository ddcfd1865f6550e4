"""Horovod over gloo, with the rendezvous server in a helper role, ``driver``.

Sources: horovod.readthedocs.io "Horovod with Gloo", ``horovod/common/gloo/gloo_context.cc`` (what a
process reads), ``horovod/runner/http/http_server.py`` (the rendezvous protocol, which
``helpers/horovod_main.py`` speaks), ``horovod/runner/gloo_run.py`` (the variables of
``horovodrun``), and TonY's ``HorovodRuntime`` (the role's name).

* A container is a host: LOCAL_RANK counts the programs of a task, CROSS_RANK the tasks that have a
  program of that local rank. HOROVOD_HOSTNAME names the container, not the machine, since gloo
  pairs local ranks by it and a machine can run several containers.
* HOROVOD_GLOO_TIMEOUT_SECONDS is the role's start-up limit (Horovod's own is 30 s, too short for a
  program that reads much before ``hvd.init()``). It covers a missing peer: programs connect at
  ports of their own choice, so Howdah cannot see them join.
* Rank failures: no rank can rejoin a non-elastic group, so all restart with a new driver, whose
  store must not hold addresses of the dead. The driver never ends by itself and is untracked.
"""

from __future__ import annotations

from msgspec.structs import replace

from howdah.core.messages import Member, Topology
from howdah.core.plan import Join
from howdah.frameworks import addresses
from howdah.frameworks.base import Collective, RoleDefaults
from howdah.spec.model import Job, Role
from howdah.spec.units import seconds

DRIVER = "driver"
UNLIMITED_S = 86400
"""Time-out where the job has none: Horovod knows no "never"."""


class Horovod(Collective):
    """HOROVOD_* for gloo."""

    name = "horovod"
    rendezvous = DRIVER

    def helpers(self, job: Job) -> dict[str, Role]:
        return {DRIVER: Role(memory="256m")}

    def command(self, job: Job, role: str) -> str | None:
        return '"$HOWDAH_PYTHON" "$HOWDAH_HELPERS/horovod_main.py"' if role == DRIVER else None

    def role(self, job: Job, role: str) -> RoleDefaults:
        rules = super().role(job, role)
        return replace(rules, join=Join.NOW, after=(DRIVER,)) if rules.ranked else rules

    def environment(
        self, job: Job, topology: Topology, member: Member, process: int
    ) -> dict[str, str]:
        if member.task.role == DRIVER:
            return {"HOROVOD_SCOPES": addresses.compact(scopes(topology))}
        if member.rank is None:
            return {}
        driver = addresses.only(topology, DRIVER)
        crossing = [m.task for m in _crossing(topology, process)]
        env = {
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": driver.host,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(driver.ports[0]),
            "HOROVOD_RANK": str(member.rank + process),
            "HOROVOD_SIZE": str(topology.world_size),
            "HOROVOD_LOCAL_RANK": str(process),
            "HOROVOD_LOCAL_SIZE": str(member.processes),
            "HOROVOD_CROSS_RANK": str(crossing.index(member.task)),
            "HOROVOD_CROSS_SIZE": str(len(crossing)),
            "HOROVOD_HOSTNAME": hostname(member),
        }
        own = job.roles[member.task.role].timeouts.startup
        limit = seconds(own or job.timeouts.startup)
        timeout = str(UNLIMITED_S if limit is None else max(int(limit), 1))
        env |= addresses.unless_set(job, member, {"HOROVOD_GLOO_TIMEOUT_SECONDS": timeout})
        return env | addresses.interface_hints(
            job, member, "HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"
        )


def hostname(member: Member) -> str:
    """A container's name for gloo: unique, and fit for a path of the rendezvous server."""
    return f"{member.host.replace(':', '-')}-{member.task.role}-{member.task.index}"


def scopes(topology: Topology) -> dict[str, int]:
    """How many programs take part in each rendezvous: all, those of a task, those across tasks."""
    # The scope of all has an underscore at its end or not, depending on Horovod's version.
    found = {"global": topology.world_size, "global_": topology.world_size}
    for member in addresses.ranked(topology):
        found[f"local_{hostname(member)}"] = member.processes
        for process in range(member.processes):
            found[f"cross_{process}"] = len(_crossing(topology, process))
    return found


def _crossing(topology: Topology, process: int) -> list[Member]:
    return [m for m in addresses.ranked(topology) if m.processes > process]
