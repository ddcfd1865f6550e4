"""What a Spark application has, and why a job can never run in it. All but reading is pure."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from howdah.backends.base import RoleResources
from howdah.backends.spark.sessions import SparkAccess, query_setting
from howdah.core.plan import Plan, RolePlan
from howdah.spec.model import Job, Role, Slots
from howdah.storage import layout

POLL_S = 0.2
"""Between two looks for executors that are still registering."""
IDLE = "spark.sql.execution.pyspark.udf"
"""Prefix of Spark's settings for silent Python workers."""
SETTLED_S = 10.0
"""An application that has executors, and gets no more for so long, has all it will get."""
_SHARED_DIR = re.compile(
    rb"\$\{?HOWDAH_SHARED_DIR\b(?!\}?/\.\./" + layout.FUNCTION.encode() + rb"/)"
)
"""Its use in a job file. A function's own folder, beside it, is in every container's job directory."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The settings and sizes of an application that matter here."""

    master: str = ""
    capacity: int | None = None
    """Tasks of the job that can run at the same time; None if that cannot be told: on Connect, and where
    executors come and go with the tasks."""
    query_capacity: int | None = None
    """The same for tasks of the session's own queries, those that feed among them."""
    query_cpus: int = 1
    """Cores of one of these."""
    executors: int | None = None
    """Registered now; None if that cannot be told."""
    dynamic_allocation: bool = False
    max_executors: str = ""
    speculation: bool = False
    task_cpus: int = 1
    executor_cores: str = ""
    cores_max: str = ""
    instances: str = ""
    task_gpus: float = 0.0
    executor_gpus: float = 0.0
    profile: bool = False
    """The job's tasks have a resource profile of their own."""
    idle_kill_s: int = 0
    """Spark kills Python workers that have answered nothing for so many seconds; 0: it does not."""
    age_s: float = 0.0
    """Of the application."""

    @property
    def local(self) -> bool:
        """Everything is in one process of one machine."""
        return self.master.startswith("local")

    @property
    def promised(self) -> int | None:
        """Slots the application will have at the most by its settings; None where these do not tell.

        Spark's "Configuration": with dynamic allocation there are up to
        ``spark.dynamicAllocation.maxExecutors``; without it YARN and Kubernetes give
        ``spark.executor.instances`` (2) executors of ``spark.executor.cores`` (1), a Standalone
        master ``spark.cores.max`` cores.
        """
        if self.dynamic_allocation:
            if self.profile or not (self.max_executors and self.executor_cores):
                return None
            return int(self.max_executors) * int(self.executor_cores) // self.task_cpus
        if self.master.startswith("spark:"):
            cores = int(self.cores_max) if self.cores_max else None
        elif self.master.startswith(("yarn", "k8s")):
            cores = int(self.instances or 2) * int(self.executor_cores or 1)
        else:
            return None
        return None if cores is None else cores // self.task_cpus

    def taken(self, tasks: int) -> int:
        """Slots of the session's own queries that so many held tasks of the job take, at the most."""
        return tasks * -(-self.task_cpus // self.query_cpus)

    def left(self, tasks: int, others: int = 0) -> int | None:
        """Slots left to the tasks that feed while so many tasks are held, and other jobs take
        ``others``; None if that cannot be told."""
        slots = self.promised if self.dynamic_allocation else self.query_capacity
        return None if slots is None else slots - self.taken(tasks) - others


def read(session: SparkAccess) -> Facts:
    """The facts of a session's application."""
    query_cpus = float(session.setting("spark.task.cpus", "1"))
    task_cpus = session.task_amount("cpus")
    task_gpus = session.task_amount("gpu")
    if task_gpus is None:
        task_gpus = float(session.setting("spark.task.resource.gpu.amount", "0"))
    dynamic = _true(session.setting("spark.dynamicAllocation.enabled"))
    profile = session.profile
    query_capacity = None if dynamic else session.capacity(None)
    capacity = query_capacity if dynamic or profile is None else session.capacity(profile)
    return Facts(
        master=session.setting("spark.master"),
        capacity=capacity,
        query_capacity=query_capacity,
        query_cpus=int(query_cpus),
        executors=session.executors(),
        dynamic_allocation=dynamic,
        max_executors=session.setting("spark.dynamicAllocation.maxExecutors"),
        speculation=_true(session.setting("spark.speculation")),
        task_cpus=int(query_cpus if task_cpus is None else task_cpus),
        executor_cores=session.setting("spark.executor.cores"),
        cores_max=session.setting("spark.cores.max"),
        instances=session.setting("spark.executor.instances"),
        task_gpus=task_gpus,
        executor_gpus=float(session.setting("spark.executor.resource.gpu.amount", "0")),
        profile=profile is not None,
        idle_kill_s=_idle_kill_s(session),
        age_s=session.age_s(),
    )


def read_when_there(
    session: SparkAccess, needed: int, wait_s: float, spare: int = 0, executors: int = 0
) -> Facts:
    """The facts once there are so many slots, and ``spare`` more if they were held, on so many
    executors, or there can never be: after ``wait_s`` without one that is promised, sooner where nothing
    says that more will come."""
    begin = changed = time.monotonic()
    before: int | None = 0
    while True:
        facts = read(session)
        if facts.capacity is None or facts.local:
            return facts
        enough = facts.capacity >= needed
        left = facts.left(needed)
        apart = facts.executors is None or facts.executors >= executors
        enough_to_feed = enough and (left is None or left >= spare)
        if enough_to_feed and apart:
            return facts
        now = time.monotonic()
        if facts.capacity != before:
            before, changed = facts.capacity, now
        if facts.promised is not None:
            settled = facts.promised < needed or facts.capacity >= facts.promised
            settled = settled or (enough_to_feed and now - changed > SETTLED_S)
        else:
            still_s = max(now - changed, facts.age_s if enough else 0.0)
            settled = facts.capacity > 0 and still_s > SETTLED_S
        if settled or now - begin > wait_s:
            return facts
        time.sleep(POLL_S)


def slots_use(
    facts: Facts, asked: Slots | None, *, feeds: bool, tasks: int, others: int
) -> tuple[Slots, str]:
    """What becomes of the Spark tasks of a job, and the line to say of it, if there is one.

    Args:
        asked: what the user wants.
        feeds: Spark feeds the job's programs, which takes a slot.
        tasks: slots of the job at the same time, at the most.
        others: slots that other jobs of this program hold.
    """
    if asked is not None:
        return asked, ""
    if not feeds or facts.dynamic_allocation or facts.task_gpus:
        return Slots.HELD, ""
    left = facts.left(tasks, others)
    if left is not None and left > 0:
        return Slots.HELD, ""
    if left is None:
        why = "Spark does not say here how many slots there are, and one must be left to feed"
        more = 'slots="held" where there are enough'
    else:
        held = f" and other clusters {others}" if others else ""
        why = (
            f"the cluster takes {tasks} of the application's {facts.query_capacity} slots{held}, "
            "which leaves none to feed it"
        )
        more = "with one slot more they are held"
    return Slots.SHARED, (
        f'slots="shared" is assumed: {why}. Its processes outlive the Spark tasks that start them: '
        "Spark counts neither their cores nor their memory, and killing an executor does not end "
        f"them; {more}"
    )


def sharing(facts: Facts, processes: int) -> str:
    """The line to say where there are fewer executors than processes, each of which was to have one; empty
    where there are enough, or that cannot be told, as where executors come with the tasks."""
    if facts.local or facts.dynamic_allocation or facts.executors is None:
        return ""
    if facts.executors >= processes:
        return ""
    return (
        f"the cluster's {processes} processes share {facts.executors} executor(s), though each was to have "
        "one of its own, with its memory and disk. Give the application as many executors "
        "(spark.executor.instances; on a Standalone master spark.cores.max and spark.executor.cores)"
    )


def slots_needed(plan: Plan, on_driver: frozenset[str]) -> int:
    """Slots a job needs at the same time, at the least."""
    return _slots(plan, on_driver, lambda role: role.minimum)


def most_slots(plan: Plan, on_driver: frozenset[str]) -> int:
    """Slots a job takes at the same time, at the most."""
    return _slots(plan, on_driver, lambda role: role.maximum)


def _slots(plan: Plan, on_driver: frozenset[str], of: Callable[[RolePlan], int]) -> int:
    stages: dict[int, int] = {}
    for role in plan.roles:
        if role.name not in on_driver:
            stages[role.stage] = stages.get(role.stage, 0) + of(role)
    return max(stages.values(), default=0)


def first_slots(plan: Plan, on_driver: frozenset[str], capacity: int | None) -> int:
    """How many slots the job will ask for first; 0 if that cannot be told for sure."""
    first = min((role.stage for role in plan.roles), default=0)
    count = sum(
        role.maximum for role in plan.roles if role.stage == first and role.name not in on_driver
    )
    return count if capacity is None or count <= capacity else 0


def refusals(
    facts: Facts,
    slots: Slots,
    needed: int,
    job: Job,
    on_driver: frozenset[str],
    left: int | None = None,
) -> list[str]:
    """Why the job can never run in this application, every reason; empty if it can.

    Args:
        slots: what becomes of its tasks.
        needed: slots at the same time, at the least.
        left: slots left to the tasks that feed it, where it is fed and that can be told.
    """
    problems: list[str] = []
    have = facts.promised if facts.dynamic_allocation else facts.capacity
    if have is not None and have < needed:
        problems.append(_too_few(facts, needed))
    elif slots is Slots.HELD and left is not None and left < 1:
        problems.append(_none_to_feed(facts, needed))
    if slots is Slots.SHARED:
        problems += _not_shared(facts)
    if facts.speculation:
        problems.append(
            "spark.speculation = true: a second copy of a task that takes long would be started, "
            "and the first one ended. Start the application with spark.speculation = false"
        )
    if facts.idle_kill_s:
        problems.append(
            f"{IDLE}.killOnIdleTimeout = true: Spark would kill the tasks that hold the job's slots and "
            f"those that feed it, for they answer nothing for more than {IDLE}.idleTimeoutSeconds = "
            f"{facts.idle_kill_s} s. Set {IDLE}.killOnIdleTimeout to false in this session"
        )
    problems += _gpus(facts, job, on_driver)
    return problems


def unseen(job: Job, role: str, host: str) -> str:
    """Why a role of an expanded job cannot run on a host that does not see the job directory; empty if
    it can."""
    if job.checkpoint is not None and job.checkpoint.store is None:
        return (
            f"checkpoint.store: {host} does not see the job directory, where checkpoints would be "
            "kept. Give a folder that all hosts see, or a URL such as hdfs:///checkpoints"
        )
    own = job.roles.get(role, Role())
    concerns = msgspec.structs.replace(
        job, command=own.command or job.command, roles={role: own}, preprocess=None
    )
    if _SHARED_DIR.search(msgspec.json.encode(concerns)):
        return (
            f"HOWDAH_SHARED_DIR: {host} does not see the job directory, where that folder is. Give the "
            "commands a folder that all hosts see, or a URL, instead"
        )
    return ""


def role_gpus(
    roles: Mapping[str, RoleResources], role: str, given: tuple[str, ...]
) -> tuple[str, ...]:
    """Of the GPUs that Spark gives the task, the role's. Where any role says how many it needs, the
    roles that do not say so get none."""
    if any(each.gpus for each in roles.values()):
        return given[: roles[role].gpus] if role in roles else ()
    return given


def too_few_gpus(roles: Mapping[str, RoleResources], role: str, given: Sequence[str]) -> str:
    """Why the role cannot run where Spark gives these GPUs; empty if it can."""
    wanted = roles[role].gpus
    if wanted <= len(given):
        return ""
    return (
        f"roles.{role}.gpus: {wanted} are asked for, Spark gives a task {len(given)}: set "
        f"spark.task.resource.gpu.amount = {wanted} (and spark.executor.resource.gpu.amount)"
    )


def _not_shared(facts: Facts) -> Iterator[str]:
    """Why tasks have to hold their slots, by the setting."""
    outlive = 'with slots = "shared" the programs outlive the Spark tasks that start them'
    if facts.dynamic_allocation:
        yield (
            f"spark.dynamicAllocation.enabled = true: {outlive}, and executors without a task are "
            'taken away, the slots of the job with them. Leave slots out, or set it to "held"'
        )
    if facts.task_gpus:
        where = "resources" if facts.profile else "spark.task.resource.gpu.amount"
        yield (
            f"{where} gives each task {facts.task_gpus:g} GPU: {outlive}, and Spark gives their GPUs "
            'to others. Leave slots out, or set it to "held"'
        )


def _none_to_feed(facts: Facts, needed: int) -> str:
    text = (
        f"the job holds {needed} of the application's slots, and none is left for the tasks that "
        f"feed it ({sizes(facts)})"
    )
    if facts.task_gpus and not facts.profile:
        return (
            f"spark.task.resource.gpu.amount = {facts.task_gpus:g}: {text}, which take a GPU each, "
            "too. Leave that setting out and give the GPUs to the training tasks alone, by resources= "
            '(a ResourceProfile, Spark 4), have a GPU more, or read the data in mode="foreground"'
        )
    return (
        f"{text}. It takes a slot more (spark.executor.cores, "
        "spark.executor.instances, spark.cores.max), or fewer workers"
    )


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
    cores = needed * facts.task_cpus
    if facts.dynamic_allocation:
        return (
            f"{have} at the most ({sizes(facts)}). It takes spark.dynamicAllocation.maxExecutors "
            f"times spark.executor.cores of at least {cores}, or fewer tasks"
        )
    return (
        f"{have} ({sizes(facts)}). It takes spark.executor.instances times "
        f"spark.executor.cores of at least {cores} (on a Standalone master spark.cores.max >= "
        f"{cores}), or fewer tasks; roles such as ps can be on the driver"
    )


def sizes(facts: Facts) -> str:
    """The settings that say how many slots there are."""
    settings = {
        "spark.executor.instances": facts.instances,
        "spark.dynamicAllocation.maxExecutors": facts.max_executors,
        "spark.executor.cores": facts.executor_cores,
        "spark.cores.max": facts.cores_max,
        "spark.task.cpus": str(facts.task_cpus),
    }
    return ", ".join(f"{name} = {value}" for name, value in settings.items() if value)


def _gpus(facts: Facts, job: Job, on_driver: frozenset[str]) -> list[str]:
    return [
        f"roles.{name}.gpus = {role.gpus}: spark.task.resource.gpu.amount is "
        f"{facts.task_gpus:g}. Start the application with spark.task.resource.gpu.amount = "
        f"{role.gpus} and spark.executor.resource.gpu.amount >= {role.gpus}"
        for name, role in job.roles.items()
        if role.gpus > facts.task_gpus and name not in on_driver
    ]


def _idle_kill_s(session: SparkAccess) -> int:
    """Of the session's own queries (Spark 4.1), which are like the application's unless they say so."""
    if not _true(query_setting(session.spark, f"{IDLE}.killOnIdleTimeout")):
        return 0
    return int(query_setting(session.spark, f"{IDLE}.idleTimeoutSeconds") or 0)


def _true(value: str) -> bool:
    return value.strip().lower() == "true"
