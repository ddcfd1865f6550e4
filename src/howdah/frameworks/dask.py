"""Dask: a scheduler, workers, and a client that is the user's program.

Sources: docs.dask.org "Command Line" (dask scheduler, dask worker), "Configuration" (variables
``DASK_…``; ``scheduler-address`` is what both ``Client()`` and a worker use when told nothing),
"Resilience", and the observations of distributed 2026.8 below.

* The roles are ``scheduler`` (added if the job has none), ``worker`` and ``client``. Scheduler and
  worker need no command: they run Dask's own. The job's command is the client's.
* The client finds the scheduler by itself: ``Client()``.
* The client's end is the job's. Scheduler and workers only serve, so they are untracked and their
  silence is no hang. (A worker exits 0 when its scheduler dies: no success.)
* A dead worker is replaced alone, as is a dead client: the scheduler gives a lost worker's tasks
  to others, and computes again what only it held. What a client *scattered* to that worker alone is
  lost for good (scatter with ``broadcast=True``). A dead scheduler has lost everything: all
  restart.
* A worker runs under its nanny, as `dask worker` has it: ``Client.restart`` needs one, and without it ends
  every worker for good. Howdah restarts what takes the nanny along. A worker gives up after 60 s without
  a scheduler.
* The client starts once the scheduler serves and knows all workers: a program that asks how many it has is
  right. A worker's nanny listens long before the scheduler knows the worker, so it says so itself
  (``helpers/dask_joined.py``); a command of the job's own for workers is only seen to listen.
* At the end all are told to stop at once, and the scheduler lets its workers leave first
  (``helpers/dask_last.py``).
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
    WebPage,
    at_most_one,
    needs_one_of,
)
from howdah.spec.model import Job, Restart, Role
from howdah.spec.units import mebibytes

SCHEDULER = (
    '"$HOWDAH_PYTHON" -m distributed.cli.dask_scheduler --host "$HOWDAH_HOST" '
    '--port "$HOWDAH_PORT" --dashboard-address "$HOWDAH_HOST:${HOWDAH_PORTS##*,}" '
    '--preload "$HOWDAH_HELPERS/dask_last.py"'
)
WORKER = (
    '"$HOWDAH_PYTHON" -m distributed.cli.dask_worker --host "$HOWDAH_HOST" '
    '--worker-port "$HOWDAH_PORT" --nanny-port "${HOWDAH_PORTS##*,}" --nanny '
    '--no-dashboard --death-timeout 60 --preload-nanny "$HOWDAH_HELPERS/dask_joined.py"'
)


class Dask(Framework):
    """DASK_SCHEDULER_ADDRESS, and commands for the roles that serve."""

    name = "dask"
    many_processes = False

    def check(self, job: Job) -> list[Problem]:
        return (
            needs_one_of(job, "worker", what="the role that computes")
            + needs_one_of(job, "client", what="the role of your program")
            + at_most_one(job, "scheduler", "client")
        )

    def helpers(self, job: Job) -> dict[str, Role]:
        return {"scheduler": Role()}

    def command(self, job: Job, role: str) -> str | None:
        if role == "scheduler":
            return SCHEDULER
        return worker_command(job.roles[role]) if role == "worker" else None

    def role(self, job: Job, role: str) -> RoleDefaults:
        match role:
            case "scheduler":
                return replace(SERVER, ports=2)
            case "worker":
                return replace(
                    SERVER,
                    restart=Restart.TASK,
                    ports=2,
                    after=("scheduler",),
                    join=Join.REPORT if _own_worker(job) else Join.NETWORK,
                )
            case "client":
                return RoleDefaults(restart=Restart.TASK, chief=True, after=("scheduler", "worker"))
            case _:
                return INDEPENDENT

    def environment(
        self, job: Job, topology: Topology, member: Member, process: int
    ) -> dict[str, str]:
        if member.task.role == "scheduler" or not addresses.reachable(topology, "scheduler"):
            return {}
        scheduler = addresses.only(topology, "scheduler")
        return {"DASK_SCHEDULER_ADDRESS": f"tcp://{addresses.address(scheduler)}"}

    def page(self, job: Job, role: str) -> WebPage | None:
        return WebPage(name="Dask", port=1) if role == "scheduler" else None


def _own_worker(job: Job) -> bool:
    """Whether workers run `worker_command`, be the job expanded or not."""
    role = job.roles["worker"]
    return role.command in (None, worker_command(role))


def worker_command(role: Role, name: str = '"$HOWDAH_ROLE-$HOWDAH_INDEX"') -> str:
    """What runs one worker: a thread for each core, the role's memory; it needs two ports."""
    memory = role.memory
    limit = f"{mebibytes(memory)}MiB" if memory is not None else "0"
    return f"{WORKER} --name {name} --nthreads {role.cores or 1} --memory-limit {limit}"
