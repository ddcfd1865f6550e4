"""TonY's keys of tasks, of the application master, and of task types: the table's second part."""

from __future__ import annotations

from howdah.compat.tony import values
from howdah.compat.tony.table_row import BEATS, JVM, RowKind, TonyRow, gone, not_needed

TASKS = (
    TonyRow(
        key="tony.task.executor.execution-timeout-ms",
        default="0",
        to="timeouts.run",
        read=values.milliseconds,
    ),
    TonyRow(
        key="tony.task.executor.registry-timeout-sec",
        default="0",
        to="timeouts.registration",
        read=values.in_seconds,
    ),
    TonyRow(
        key="tony.container.allocation.timeout",
        default="-1",
        to="timeouts.allocation",
        read=values.milliseconds,
        words="the whole gang must be there within this; a part of it is never held longer than "
        "`timeouts.hold`",
    ),
    TonyRow(
        key="tony.container.registration.timeout",
        default="-1",
        to="timeouts.registration",
        read=values.milliseconds,
        words="a container that does not answer is replaced, it does not end the job",
    ),
    TonyRow(
        key="tony.task.max-total-instances",
        default="-1",
        kind=RowKind.CHECKED,
        to="limits.max-instances (site file)",
        words="a job over it is refused; in a site file it holds for every job",
    ),
    TonyRow(
        key="tony.task.max-total-gpus",
        default="-1",
        kind=RowKind.CHECKED,
        to="limits.max-gpus (site file)",
        words="likewise",
    ),
    TonyRow(
        key="tony.task.max-total-<resource>",
        default="-1",
        kind=RowKind.CHECKED,
        to="limits.max-memory, limits.max-cores (site file)",
        words="likewise, for memory (megabytes) and vcores",
    ),
    not_needed("tony.task.heartbeat-interval-ms", BEATS, "1000"),
    gone("tony.task.heartbeat-interval", BEATS),
    not_needed("tony.task.max-missed-heartbeats", BEATS, "25"),
    not_needed(
        "tony.task.metrics-interval-ms", "every task is measured each second, at no cost", "5000"
    ),
    not_needed("tony.task.gpu-metrics.enabled", "GPUs are measured where a task has some", "true"),
    not_needed(
        "tony.task.executor.execution.error-message-max-depth",
        "a failure shows the last lines of the task, and `howdah logs` all of them",
        "20",
    ),
    not_needed("tony.task.executor.jvm.opts", JVM, "-Xmx1536m"),
    not_needed("tony.task.am.jvm.opts", JVM),
    not_needed("tony.task.default.jvm.opts", JVM),
)

MASTER = (
    TonyRow(
        key="tony.am.memory",
        default="2g",
        to="master.memory",
        words="leave it out: the master needs no 2 GB of a JVM. Without any task (single node) it "
        "is the memory of the one task",
    ),
    TonyRow(
        key="tony.am.vcores",
        default="1",
        to="master.cores",
        words="of the one task, if the job has no other (single node)",
    ),
    TonyRow(
        key="tony.am.gpus",
        default="0",
        to="roles.worker.gpus",
        words="for a job without any task (single node); otherwise the master needs none",
    ),
    TonyRow(key="tony.am.node-label", to="master.label", read=values.text),
    TonyRow(
        key="tony.am.retry-count",
        default="0",
        to="attempts",
        words="one more than it; a lost node or a preempted container spends none. The master "
        "itself has `master.attempts`, and does not start the training anew",
    ),
    TonyRow(
        key="tony.am.startup-timeout",
        default="0",
        to="master.startup",
        read=values.milliseconds,
    ),
    TonyRow(
        key="tony.am.command",
        to="roles.worker.command",
        read=None,
        words="the one task's, if the job has no other (single node), and that of the preprocess step",
    ),
    TonyRow(
        key="tony.am.resources",
        to="roles.worker.files",
        words="the one task's, if the job has no other (single node); the master needs none",
    ),
    not_needed(
        "tony.am.wait-client-signal-stop-timeout-sec",
        "a job ends without being told: its end is in its directory",
        "15",
    ),
)

TYPES = (
    TonyRow(
        key="tony.<type>.instances",
        default="0",
        to="roles.<type>.instances",
        words="0 is no such role; without any role the job is one task (single node)",
    ),
    TonyRow(
        key="tony.<type>.max-instances",
        default="-1",
        kind=RowKind.CHECKED,
        to="limits.max-instances (site file)",
        words="a job over it is refused; a site file limits the sum of all roles",
    ),
    TonyRow(
        key="tony.<type>.memory",
        default="2g",
        to="roles.<type>.memory",
        read=values.memory,
    ),
    TonyRow(key="tony.<type>.vcores", default="1", to="roles.<type>.cores", read=values.count),
    TonyRow(key="tony.<type>.gpus", default="0", to="roles.<type>.gpus", read=values.count),
    TonyRow(key="tony.<type>.command", to="roles.<type>.command", read=values.text),
    TonyRow(
        key="tony.<type>.resources",
        to="roles.<type>.files",
        words="`SRC::NAME` is `SRC -> NAME`, `SRC#archive` is `SRC -> SRC/` (unpacked)",
    ),
    TonyRow(key="tony.<type>.node-label", to="roles.<type>.label", read=values.text),
    TonyRow(
        key="tony.<type>.placement-spec",
        to="roles.<type>.placement",
        words="`IN,NODE,tag` is `together`, `NOTIN,NODE,tag` is `apart` (or `spread`, if it is its own); "
        "cardinalities, node attributes and racks are refused: use a node label",
    ),
    TonyRow(
        key="tony.<type>.allocation-tags",
        kind=RowKind.CHECKED,
        words="says which roles a placement spec means; the role's name is its tag here",
    ),
    TonyRow(
        key="tony.<type>.timeout",
        default="0",
        to="roles.<type>.timeouts.run",
        read=values.milliseconds,
        words="milliseconds (a key of older TonY)",
    ),
    not_needed(
        "tony.<type>.depends-on",
        "TonY reads it nowhere; `after` orders starts, `prepare` makes a stage",
    ),
    TonyRow(key="tony.containers.command", to="command", read=values.text),
    TonyRow(key="tony.containers.resources", to="files", words="as `tony.<type>.resources`"),
    TonyRow(
        key="tony.containers.envs",
        to="env, hadoop.container-env",
        words="what has no `NAME=` belongs to the value before it, so that values may have commas. What YARN "
        "reads (`YARN_CONTAINER_…`) or expands (`$NAME`) goes into the container's launch context",
    ),
    TonyRow(
        key="tony.execution.envs", to="env", words="likewise; wins over `tony.containers.envs`"
    ),
    TonyRow(
        key="tony.containers.placement-spec",
        to="roles.<type>.placement",
        words="as `tony.<type>.placement-spec`, for roles without one",
    ),
    TonyRow(
        key="tony.containers.allocation-tags",
        kind=RowKind.CHECKED,
        words="as `tony.<type>.allocation-tags`",
    ),
    TonyRow(
        key="tony.docker.enabled",
        default="false",
        to="roles.<type>.image",
        words="`false`: images and mounts are left out",
    ),
    TonyRow(key="tony.docker.containers.image", to="roles.<type>.image"),
    TonyRow(key="tony.docker.containers.mount", to="roles.<type>.mounts"),
    TonyRow(key="tony.docker.<type>.image", to="roles.<type>.image"),
    TonyRow(
        key="tony.application.docker.enabled",
        default="false",
        to="roles.<type>.image",
        words="a key of older TonY",
    ),
    TonyRow(
        key="tony.application.docker.image",
        to="roles.<type>.image",
        words="a key of older TonY",
    ),
    TonyRow(
        key="tony.python-exec-path",
        to="environment.python",
        words="TonY's client sets it from `-python_binary_path`",
    ),
    not_needed("tony.gpu-exec-path", "GPUs are looked at through the driver's library (NVML)"),
    gone("tony.chief.name", "the chief is the role `chief`, else `worker:0`"),
    gone("tony.chief.index", "the chief is task 0"),
)
