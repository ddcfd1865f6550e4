"""What an application is like, and why a job can never run in it. Reading apart, the rest is pure."""

from __future__ import annotations

import time

import msgspec

from howdah.backends.spark.modes import Mode
from howdah.backends.spark.sessions import Session
from howdah.core.plan import Plan
from howdah.spec.model import Job

LOOK_S = 0.2
"""Between two looks for executors that are still registering."""
SETTLED_S = 10.0
"""An application that has executors, and gets no more for so long, has all it will get."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The settings and sizes of an application that matter here."""

    master: str = ""
    capacity: int | None = None
    """Tasks that can run at the same time; None if nobody can tell."""
    dynamic_allocation: bool = False
    speculation: bool = False
    task_cpus: int = 1
    executor_cores: str = ""
    cores_max: str = ""
    instances: str = ""
    task_gpus: float = 0.0
    executor_gpus: float = 0.0

    @property
    def local(self) -> bool:
        """Everything is in one process of one machine."""
        return self.master.startswith("local")

    @property
    def promised(self) -> int | None:
        """Slots the application will have by its settings; None where these do not tell.

        Spark's "Configuration": without dynamic allocation YARN and Kubernetes give
        ``spark.executor.instances`` (2) executors of ``spark.executor.cores`` (1), a Standalone
        master ``spark.cores.max`` cores.
        """
        if self.dynamic_allocation:
            return None
        if self.master.startswith("spark:"):
            cores = int(self.cores_max) if self.cores_max else None
        elif self.master.startswith(("yarn", "k8s")):
            cores = int(self.instances or 2) * int(self.executor_cores or 1)
        else:
            return None
        return None if cores is None else cores // self.task_cpus


def read(session: Session) -> Facts:
    """The facts of a session's application."""
    task_cpus = session.task_amount("cpus")
    task_gpus = session.task_amount("gpu")
    if task_cpus is None:
        task_cpus = float(session.setting("spark.task.cpus", "1"))
    if task_gpus is None:
        task_gpus = float(session.setting("spark.task.resource.gpu.amount", "0"))
    return Facts(
        master=session.setting("spark.master"),
        capacity=session.capacity(),
        dynamic_allocation=_true(session.setting("spark.dynamicAllocation.enabled")),
        speculation=_true(session.setting("spark.speculation")),
        task_cpus=int(task_cpus),
        executor_cores=session.setting("spark.executor.cores"),
        cores_max=session.setting("spark.cores.max"),
        instances=session.setting("spark.executor.instances"),
        task_gpus=task_gpus,
        executor_gpus=float(session.setting("spark.executor.resource.gpu.amount", "0")),
    )


def read_when_there(session: Session, needed: int, wait_s: float) -> Facts:
    """The facts once there are so many slots, or there can never be: after ``wait_s`` without one
    that is promised, sooner where nothing says that more will come."""
    begin = changed = time.monotonic()
    before: int | None = 0
    while True:
        facts = read(session)
        if facts.capacity is None or facts.capacity >= needed or facts.local:
            return facts
        if facts.promised is not None and facts.promised < needed:
            return facts
        now = time.monotonic()
        if facts.capacity != before:
            before, changed = facts.capacity, now
        settled = bool(facts.capacity) and facts.promised is None and now - changed > SETTLED_S
        if settled or now - begin > wait_s:
            return facts
        time.sleep(LOOK_S)


def slots_needed(plan: Plan, on_driver: frozenset[str]) -> int:
    """Slots a job needs at the same time, at the least."""
    stages: dict[int, int] = {}
    for role in plan.roles:
        if role.name not in on_driver:
            stages[role.stage] = stages.get(role.stage, 0) + role.minimum
    return max(stages.values(), default=0)


def first_slots(plan: Plan, on_driver: frozenset[str], capacity: int | None) -> int:
    """How many slots the job will ask for first; 0 if that cannot be told for sure."""
    first = min((role.stage for role in plan.roles), default=0)
    count = sum(
        role.maximum for role in plan.roles if role.stage == first and role.name not in on_driver
    )
    return count if capacity is None or count <= capacity else 0


def refusals(
    facts: Facts, mode: Mode, needed: int, job: Job, on_driver: frozenset[str]
) -> list[str]:
    """Why the job can never run in this application, every reason; empty if it can."""
    problems: list[str] = []
    if facts.capacity is not None and facts.capacity < needed:
        problems.append(_too_few(facts, needed))
    if facts.dynamic_allocation and mode is Mode.FEED:
        problems.append(
            "spark.dynamicAllocation.enabled = true: executors that are idle for a moment are taken "
            "away, and with them the places of the job. Start the application with "
            "spark.dynamicAllocation.enabled = false and as many executors as the job needs"
        )
    if facts.speculation:
        problems.append(
            "spark.speculation = true: a second copy of a task that takes long would be started, "
            "and the first one ended. Start the application with spark.speculation = false"
        )
    problems += _gpus(facts, job, on_driver)
    return problems


def unseen(job: Job, host: str) -> str:
    """Why the job cannot run on a host that does not see its directory; empty if it can."""
    if job.checkpoint is not None and job.checkpoint.store is None:
        return (
            f"checkpoint.store: {host} does not see the job directory, where checkpoints would be "
            "kept. Give a folder that all hosts see, or a URL such as hdfs:///checkpoints"
        )
    return ""


def _too_few(facts: Facts, needed: int) -> str:
    slots = facts.capacity or 0
    if facts.promised is not None and facts.promised < needed:
        slots = max(slots, facts.promised)  # its executors may still be on their way
    have = f"the job needs {needed} slots at the same time, the application has {slots}"
    if facts.local:
        return (
            f"spark.master = {facts.master}: {have}. Use local[{needed * facts.task_cpus}], or fewer "
            "tasks"
        )
    settings = [
        f"{name} = {value}"
        for name, value in (
            ("spark.executor.instances", facts.instances),
            ("spark.executor.cores", facts.executor_cores),
            ("spark.cores.max", facts.cores_max),
            ("spark.task.cpus", str(facts.task_cpus)),
        )
        if value
    ]
    cores = needed * facts.task_cpus
    return (
        f"{have} ({', '.join(settings)}). It takes spark.executor.instances times "
        f"spark.executor.cores of at least {cores} (on a Standalone master spark.cores.max >= "
        f"{cores}), or fewer tasks; roles such as ps can be on the driver"
    )


def _gpus(facts: Facts, job: Job, on_driver: frozenset[str]) -> list[str]:
    problems: list[str] = []
    for name, role in job.roles.items():
        if role.gpus > facts.task_gpus and name not in on_driver:
            problems.append(
                f"roles.{name}.gpus = {role.gpus}: spark.task.resource.gpu.amount is "
                f"{facts.task_gpus:g}. Start the application with spark.task.resource.gpu.amount = "
                f"{role.gpus} and spark.executor.resource.gpu.amount >= {role.gpus}"
            )
    return problems


def _true(value: str) -> bool:
    return value.strip().lower() == "true"
