"""What each of TonY's keys and options is in a job file, or why nothing needs it. Data.

`howdah.compat.tony.convert` follows it, the migration page of the documentation shows it, and a
test holds it against TonY's own keys. ``<type>`` stands for a task type, ``<group>`` for a group,
``<resource>`` for what is counted (memory, vcores, gpus, instances).

Source: ``TonyConfigurationKeys``, ``tony-default.xml`` and ``TonyClient`` of TonY 0.5.3.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Any

import msgspec

from howdah.compat.tony import values

_PLACEHOLDERS = {
    "<type>": r"(?P<type>[A-Za-z][A-Za-z0-9_-]*)",
    "<group>": r"(?P<group>[A-Za-z0-9_-]+)",
    "<resource>": r"(?P<resource>[A-Za-z][A-Za-z0-9_./-]*)",
}


class Kind(enum.Enum):
    """What becomes of a key."""

    MAPPED = "mapped"
    """It is a key of the job file."""
    CHECKED = "checked"
    """It is looked at when the configuration is read, and no part of the job."""
    NOT_NEEDED = "not needed"
    """Nothing needs it; the words say why."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One key."""

    key: str
    default: str = ""
    kind: Kind = Kind.MAPPED
    to: str = ""
    """Where it goes in the job file."""
    read: Callable[[str], Any] | None = None
    """How its value is read, where it goes there as it is; else several keys make the value."""
    words: str = ""

    def match(self, key: str) -> re.Match[str] | None:
        """The key with what stands for its placeholders, if it is one of this row."""
        return _pattern(self.key).fullmatch(key)


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One option of TonY's command line."""

    name: str
    value: str = ""
    """What is written behind it; empty for a switch."""
    repeated: bool = False
    kind: Kind = Kind.MAPPED
    to: str = ""
    words: str


_compiled: dict[str, re.Pattern[str]] = {}


def _pattern(key: str) -> re.Pattern[str]:
    if key not in _compiled:
        text = re.escape(key)
        for name, pattern in _PLACEHOLDERS.items():
            text = text.replace(re.escape(name), pattern)
        _compiled[key] = re.compile(text)
    return _compiled[key]


def row_of(key: str) -> tuple[Row, dict[str, str]] | None:
    """The row of a key, and what stands for its placeholders; None for a key that is not TonY's."""
    for row in ROWS:
        found = row.match(key)
        if found is not None and found.groupdict().get("type") not in NO_TYPES:
            return row, found.groupdict()
    return None


def _not_needed(key: str, words: str, default: str = "") -> Row:
    return Row(key=key, default=default, kind=Kind.NOT_NEEDED, words=words)


def _gone(key: str, words: str) -> Row:
    return Row(key=key, kind=Kind.NOT_NEEDED, words=f"{words} (a key of older TonY)")


_PORTAL = "a setting of TonY's portal, not of a job"
_HISTORY = (
    "a job's directory is its history, complete from the first moment and readable while the job "
    "runs; `store` in the job or site file says where it is"
)
_JVM = "there is no JVM beside your programs"
_BEATS = (
    "a closed connection is noticed at once, a silent agent after some missed beats; a slow "
    "program is no silent agent"
)
_OWN_TESTS = "it makes TonY fail on purpose, for its own tests"

_APPLICATION = (
    Row(
        key="tony.application.name",
        default="TonyApplication",
        to="name",
        words="what is no letter, digit, `.`, `_` or `-` becomes `-`",
    ),
    Row(
        key="tony.application.framework",
        default="tensorflow",
        to="framework",
        words="`standalone` is `command` with one task; without any task (single node) it is "
        "`command` too",
    ),
    Row(
        key="tony.application.distributed-mode",
        default="GANG",
        to="mode",
        words="`GANG` is `gang`, `FCFS` is `each`",
    ),
    Row(key="tony.yarn.queue", default="default", to="queue", read=values.text),
    Row(key="tony.application.tags", to="tags", read=values.words),
    Row(
        key="tony.application.node-label",
        to="roles.<type>.label, master.label",
        words="for every role, and the master, without a label of its own",
    ),
    Row(
        key="tony.application.timeout",
        default="0",
        to="timeouts.total",
        read=values.milliseconds,
        words="milliseconds; 0 is `off`",
    ),
    Row(
        key="tony.application.enable-preprocess",
        default="false",
        to="preprocess",
        words="the common command is run once before all roles, with `PREPROCESSING_JOB=true`; "
        "what it prints behind `Model parameters: ` is `MODEL_PARAMS` of all programs",
    ),
    Row(
        key="tony.application.untracked.jobtypes",
        default="ps",
        to='roles.<type>.tracking = "untracked"',
    ),
    Row(
        key="tony.application.sidecar.jobtypes",
        default="tensorboard",
        to='roles.<type>.tracking = "sidecar"',
    ),
    Row(
        key="tony.application.stop-on-failure-jobtypes",
        default="ps",
        to="roles.<type>.stop-on-failure",
    ),
    Row(
        key="tony.application.prepare-stage",
        to="roles.<type>.prepare",
        words="their containers are asked for first, those of the others once their tracked tasks "
        "have succeeded",
    ),
    Row(
        key="tony.application.training-stage",
        kind=Kind.CHECKED,
        words="every role that is not in the prepare stage; one that is in both is refused",
    ),
    Row(
        key="tony.application.group.<group>",
        to="roles.<type>.linger.after",
        words="names the roles that a time-out waits for",
    ),
    Row(
        key="tony.application.dependency.<type>.timeout.after.<group>",
        to="roles.<type>.linger.limit",
        words="seconds after the last task of the group has ended",
    ),
    Row(
        key="tony.application.dependency.<type>.timeout.after.<group>.ignored",
        default="false",
        to='roles.<type>.linger.then = "stop"',
        words="`true`: such tasks are stopped and no longer count; else the job has timed out",
    ),
    Row(
        key="tony.application.tensorboard-log-dir",
        to="tensorboard.folder",
        words="TensorBoard runs beside the job and is on its page",
    ),
    Row(
        key="tony.application.placement-spec",
        to="roles.<type>.placement",
        words="as `tony.<type>.placement-spec`, for roles without one",
    ),
    Row(
        key="tony.application.hdfs-conf-path",
        to="hadoop.conf",
        words="the folder the file is in",
    ),
    Row(
        key="tony.application.yarn-conf-path",
        to="hadoop.conf",
        words="the folder the file is in; both files must be in one",
    ),
    Row(
        key="tony.other.namenodes",
        to="hadoop.name-nodes",
        read=values.words,
    ),
    _not_needed(
        "tony.application.type",
        "YARN shows Howdah's jobs with the type HOWDAH; find yours by name, tag or queue",
        "TONY",
    ),
    _not_needed(
        "tony.application.fail-on-worker-failure-enabled",
        "every failure of a tracked role counts, always: a job never succeeds with a failed worker",
        "false",
    ),
    _not_needed(
        "tony.application.num-client-rm-connect-retries",
        "calls have one deadline, and failing over between ResourceManagers is in it",
        "3",
    ),
    _not_needed(
        "tony.application.security.enabled",
        "the cluster's own configuration says whether it is secure",
        "true",
    ),
    _not_needed("tony.application.mapred-conf-path", "nothing of MapReduce is used"),
    _not_needed("tony.application.hadoop.location", f"no Hadoop is shipped: {_JVM}"),
    _not_needed(
        "tony.application.hadoop.classpath",
        f"{_JVM}; for readers that use libhdfs, `hadoop.classpath = true` takes the node's own",
    ),
    _not_needed("tony.application.test.horovod-driver-fail-enable", _OWN_TESTS, "false"),
    _not_needed("tony.application.test.horovod-test-mode-enable", _OWN_TESTS, "false"),
    _not_needed("tony.horovod.mode.test", _OWN_TESTS, "false"),
    _not_needed("tony.horovod.mode.test.fast.fail", _OWN_TESTS, "false"),
    _not_needed(
        "tony.horovod.driver.mode.debug",
        "a role `driver` with a command of its own takes the rendezvous server's place",
        "false",
    ),
    _gone("tony.application.single-node", "a job without instances runs as one task"),
)

_TASKS = (
    Row(
        key="tony.task.executor.execution-timeout-ms",
        default="0",
        to="timeouts.run",
        read=values.milliseconds,
    ),
    Row(
        key="tony.task.executor.registry-timeout-sec",
        default="0",
        to="timeouts.registration",
        read=values.in_seconds,
    ),
    Row(
        key="tony.container.allocation.timeout",
        default="-1",
        to="timeouts.allocation",
        read=values.milliseconds,
        words="the whole gang must be there within this; a part of it is never held longer than "
        "`timeouts.hold`",
    ),
    Row(
        key="tony.container.registration.timeout",
        default="-1",
        to="timeouts.registration",
        read=values.milliseconds,
        words="a container that does not answer is replaced, it does not end the job",
    ),
    Row(
        key="tony.task.max-total-instances",
        default="-1",
        kind=Kind.CHECKED,
        to="limits.max-instances (site file)",
        words="a job over it is refused; in a site file it holds for every job",
    ),
    Row(
        key="tony.task.max-total-gpus",
        default="-1",
        kind=Kind.CHECKED,
        to="limits.max-gpus (site file)",
        words="likewise",
    ),
    Row(
        key="tony.task.max-total-<resource>",
        default="-1",
        kind=Kind.CHECKED,
        to="limits.max-memory, limits.max-cores (site file)",
        words="likewise, for memory (megabytes) and vcores",
    ),
    _not_needed("tony.task.heartbeat-interval-ms", _BEATS, "1000"),
    _gone("tony.task.heartbeat-interval", _BEATS),
    _not_needed("tony.task.max-missed-heartbeats", _BEATS, "25"),
    _not_needed(
        "tony.task.metrics-interval-ms", "every task is measured each second, at no cost", "5000"
    ),
    _not_needed("tony.task.gpu-metrics.enabled", "GPUs are measured where a task has some", "true"),
    _not_needed(
        "tony.task.executor.execution.error-message-max-depth",
        "a failure shows the last lines of the task, and `howdah logs` all of them",
        "20",
    ),
    _not_needed("tony.task.executor.jvm.opts", _JVM, "-Xmx1536m"),
    _not_needed("tony.task.am.jvm.opts", _JVM),
)

_MASTER = (
    Row(
        key="tony.am.memory",
        default="2g",
        to="master.memory",
        words="leave it out: the master needs no 2 GB of a JVM. Without any task (single node) it "
        "is the memory of the one task",
    ),
    Row(
        key="tony.am.vcores",
        default="1",
        to="master.cores",
        words="of the one task, if the job has no other (single node)",
    ),
    Row(
        key="tony.am.gpus",
        default="0",
        to="roles.worker.gpus",
        words="for a job without any task (single node); otherwise the master needs none",
    ),
    Row(key="tony.am.node-label", to="master.label", read=values.text),
    Row(
        key="tony.am.retry-count",
        default="0",
        to="attempts",
        words="one more than it; a lost node or a preempted container spends none. The master "
        "itself has `master.attempts`, and does not start the training anew",
    ),
    Row(
        key="tony.am.startup-timeout",
        default="0",
        to="master.startup",
        read=values.milliseconds,
    ),
    Row(
        key="tony.am.resources",
        to="roles.worker.files",
        words="the one task's, if the job has no other (single node); the master needs none",
    ),
    _not_needed(
        "tony.am.wait-client-signal-stop-timeout-sec",
        "a job ends without being told: its end is in its directory",
        "15",
    ),
)

_TYPES = (
    Row(
        key="tony.<type>.instances",
        default="0",
        to="roles.<type>.instances",
        words="0 is no such role; without any role the job is one task (single node)",
    ),
    Row(
        key="tony.<type>.max-instances",
        default="-1",
        kind=Kind.CHECKED,
        to="limits.max-instances (site file)",
        words="a job over it is refused; a site file limits the sum of all roles",
    ),
    Row(
        key="tony.<type>.memory",
        default="2g",
        to="roles.<type>.memory",
        read=values.memory,
    ),
    Row(key="tony.<type>.vcores", default="1", to="roles.<type>.cores", read=values.count),
    Row(key="tony.<type>.gpus", default="0", to="roles.<type>.gpus", read=values.count),
    Row(key="tony.<type>.command", to="roles.<type>.command", read=values.text),
    Row(
        key="tony.<type>.resources",
        to="roles.<type>.files",
        words="`SRC::NAME` is `SRC -> NAME`, `SRC#archive` is `SRC -> SRC/` (unpacked)",
    ),
    Row(key="tony.<type>.node-label", to="roles.<type>.label", read=values.text),
    Row(
        key="tony.<type>.placement-spec",
        to="roles.<type>.placement",
        words="`NOTIN,NODE,tag` is `apart` (or `spread`, if it is its own), `IN,NODE,tag` is "
        "`near` (or `pack`); node attributes and racks need a node label here",
    ),
    Row(
        key="tony.<type>.allocation-tags",
        kind=Kind.CHECKED,
        words="says which roles a placement spec means; the role's name is its tag here",
    ),
    Row(
        key="tony.<type>.timeout",
        default="0",
        to="roles.<type>.timeouts.run",
        read=values.milliseconds,
        words="milliseconds (a key of older TonY)",
    ),
    _not_needed(
        "tony.<type>.depends-on",
        "TonY reads it nowhere; `after` orders starts, `prepare` makes a stage",
    ),
    Row(key="tony.containers.command", to="command", read=values.text),
    Row(key="tony.containers.resources", to="files", words="as `tony.<type>.resources`"),
    Row(
        key="tony.containers.envs",
        to="env",
        words="what has no `NAME=` belongs to the value before it, so that values may have commas",
    ),
    Row(key="tony.execution.envs", to="env", words="likewise; wins over `tony.containers.envs`"),
    Row(
        key="tony.containers.placement-spec",
        to="roles.<type>.placement",
        words="as `tony.<type>.placement-spec`, for roles without one",
    ),
    Row(
        key="tony.containers.allocation-tags",
        kind=Kind.CHECKED,
        words="as `tony.<type>.allocation-tags`",
    ),
    Row(
        key="tony.docker.enabled",
        default="false",
        to="roles.<type>.image",
        words="`false`: images and mounts are left out",
    ),
    Row(key="tony.docker.containers.image", to="roles.<type>.image"),
    Row(key="tony.docker.containers.mount", to="roles.<type>.mounts"),
    Row(key="tony.docker.<type>.image", to="roles.<type>.image"),
    Row(
        key="tony.application.docker.enabled",
        default="false",
        to="roles.<type>.image",
        words="a key of older TonY",
    ),
    Row(
        key="tony.application.docker.image",
        to="roles.<type>.image",
        words="a key of older TonY",
    ),
    Row(
        key="tony.python-exec-path",
        to="environment.python",
        words="TonY's client sets it from `-python_binary_path`",
    ),
    _not_needed("tony.gpu-exec-path", "GPUs are looked at through the driver's library (NVML)"),
    _gone("tony.chief.name", "the chief is the role `chief`, else `worker:0`"),
    _gone("tony.chief.index", "the chief is task 0"),
)

_SITE = (
    *(
        _not_needed(key, _HISTORY, default)
        for key, default in (
            ("tony.history.location", "/path/to/tony-history"),
            ("tony.history.intermediate", "<location>/intermediate"),
            ("tony.history.finished", "<location>/finished"),
            ("tony.history.mover-interval-ms", "300000"),
            ("tony.history.finished-dir-timezone", "UTC"),
        )
    ),
    *(
        _not_needed(key, "job directories are kept until you remove them", default)
        for key, default in (
            ("tony.history.retention-sec", "2592000"),
            ("tony.history.purger-interval-ms", "21600000"),
        )
    ),
    _gone("tony.history.host", _HISTORY),
    _gone("tony.history.cache.max-entries", _PORTAL),
    _gone("tony.history.maxAppends", _HISTORY),
    *(
        _not_needed(key, _PORTAL, default)
        for key, default in (
            ("tony.portal.url", "https://localhost:19886"),
            ("tony.portal.cache.max-entries", "10000"),
            ("tony.keytab.user", "user"),
            ("tony.keytab.location", "/path/to/tony.keytab"),
            ("tony.http.port", "disabled"),
            ("tony.https.port", "19886"),
            ("tony.https.keystore.path", "/path/to/keystore.jks"),
            ("tony.https.keystore.type", "JKS"),
            ("tony.https.keystore.password", ""),
            ("tony.https.keystore.algorithm", "SunX509"),
            ("tony.secret.key", ""),
            ("tony.init.module", "Startup"),
        )
    ),
    *(
        _not_needed(f"tony.version-info.{name}", "TonY's client writes it for itself")
        for name in ("version", "revision", "branch", "user", "date", "url", "checksum")
    ),
)

SECTIONS: tuple[tuple[str, tuple[Row, ...]], ...] = (
    ("Application", _APPLICATION),
    ("Tasks", _TASKS),
    ("Application master", _MASTER),
    ("Task types and containers", _TYPES),
    ("History, portal, and what TonY writes itself", _SITE),
)
"""All rows as a reader meets them."""

ROWS = tuple(
    sorted(
        (row for _, rows in SECTIONS for row in rows),
        # A key written out is looked for before a pattern it would also fit.
        key=lambda row: ("<" in row.key, -len(row.key)),
    )
)

NO_TYPES = frozenset(
    "am application container containers docker execution history horovod http https "
    "init keytab other portal secret task version-info yarn".split()
)
"""Second words of keys that are no task types."""

OPTIONS = (
    Option(
        name="executes",
        value="COMMAND",
        to="command",
        words="with the interpreter of `-python_binary_path` before it and `-task_params` behind",
    ),
    Option(name="task_params", value="TEXT", to="command", words="put behind `-executes`"),
    Option(
        name="python_binary_path",
        value="PATH",
        to="environment.python",
        words="absolute, a name on PATH, or inside the archive of `-python_venv`",
    ),
    Option(
        name="python_venv",
        value="FILE",
        to="files",
        words="unpacked as `venv`, as TonY has it; `environment` builds and ships one by itself",
    ),
    Option(
        name="src_dir",
        value="FOLDER",
        to="source",
        words="an archive is unpacked beside the working folder's files instead",
    ),
    Option(
        name="shell_env",
        value="NAME=VALUE",
        repeated=True,
        to="env",
        words="values may have commas",
    ),
    Option(
        name="container_env",
        value="NAME=VALUE",
        repeated=True,
        to="env",
        words="likewise; `-shell_env` wins. `SKIP_HADOOP_PATH=true` leaves `hadoop.classpath` out",
    ),
    Option(
        name="conf",
        value="KEY=VALUE",
        repeated=True,
        to="as the key",
        words="wins over all files; adds to `tony.containers.envs`, `tony.execution.envs` and "
        "`tony.containers.resources`",
    ),
    Option(
        name="conf_file",
        value="FILE",
        to="as its keys",
        words="the same as `--tony`; `tony.xml` in the current folder without it",
    ),
    Option(
        name="sidecar_tensorboard_log_dir",
        value="FOLDER",
        to="tensorboard.folder",
        words="as `tony.application.tensorboard-log-dir`",
    ),
    Option(
        name="hdfs_classpath",
        value="URLS",
        kind=Kind.NOT_NEEDED,
        words=f"these are TonY's own jars, and {_JVM}; what your programs need goes into `files`",
    ),
    Option(
        name="debug",
        kind=Kind.NOT_NEEDED,
        words="what was run stays in the job's directory anyway",
    ),
    Option(name="help", kind=Kind.NOT_NEEDED, words="`howdah run --help`"),
)
