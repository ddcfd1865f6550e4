"""What each of TonY's keys and options is in a job file, or why nothing needs it. Data.

`howdah.compat.tony.convert` follows it, the migration page of the documentation shows it, and a
test holds it against TonY's own keys. ``<type>`` stands for a task type, ``<group>`` for a group,
``<resource>`` for what is counted (memory, vcores, gpus, instances).

Source: ``TonyConfigurationKeys``, ``tony-default.xml`` and ``TonyClient`` of TonY 0.5.3.
"""

from __future__ import annotations

from howdah.compat.tony.jobkeys import APPLICATION
from howdah.compat.tony.table_row import (
    HISTORY,
    JVM,
    PORTAL,
    Option,
    RowKind,
    TonyRow,
    gone,
    not_needed,
)
from howdah.compat.tony.taskkeys import MASTER, TASKS, TYPES

__all__ = ["NO_TYPES", "OPTIONS", "ROWS", "SECTIONS", "RowKind", "Option", "TonyRow", "row_of"]

_SITE = (
    *(
        not_needed(key, HISTORY, default)
        for key, default in (
            ("tony.history.location", "/path/to/tony-history"),
            ("tony.history.intermediate", "<location>/intermediate"),
            ("tony.history.finished", "<location>/finished"),
            ("tony.history.mover-interval-ms", "300000"),
            ("tony.history.finished-dir-timezone", "UTC"),
        )
    ),
    *(
        not_needed(key, "job directories are kept until you remove them", default)
        for key, default in (
            ("tony.history.retention-sec", "2592000"),
            ("tony.history.purger-interval-ms", "21600000"),
        )
    ),
    gone("tony.history.host", HISTORY),
    gone("tony.history.cache.max-entries", PORTAL),
    gone("tony.history.maxAppends", HISTORY),
    *(
        not_needed(key, PORTAL, default)
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
        not_needed(f"tony.version-info.{name}", "TonY's client writes it for itself")
        for name in ("version", "revision", "branch", "user", "date", "url", "checksum")
    ),
)

SECTIONS: tuple[tuple[str, tuple[TonyRow, ...]], ...] = (
    ("Application", APPLICATION),
    ("Tasks", TASKS),
    ("Application master", MASTER),
    ("Task types and containers", TYPES),
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
        kind=RowKind.NOT_NEEDED,
        words=f"these are TonY's own jars, and {JVM}; what your programs need goes into `files`",
    ),
    Option(
        name="debug",
        kind=RowKind.NOT_NEEDED,
        words="what was run stays in the job's directory anyway",
    ),
    Option(name="help", kind=RowKind.NOT_NEEDED, words="`howdah run --help`"),
)


def row_of(key: str) -> tuple[TonyRow, dict[str, str]] | None:
    """The row of a key, and what stands for its placeholders; None for a key that is not TonY's."""
    for row in ROWS:
        found = row.match(key)
        if found is not None and found.groupdict().get("type") not in NO_TYPES:
            return row, found.groupdict()
    return None
