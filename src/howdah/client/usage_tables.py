"""SQL over what jobs held: `howdah.client.accounting`'s jobs as three tables in memory, read-only."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from howdah.client.accounting import ContainerUsage, FailureUsage, JobUsage, Usage, hours, week
from howdah.client.errors import BadInput

_HOURS = tuple(name for name in Usage.__struct_fields__ if name.endswith("_hours"))
_OF_JOB = (
    *("job_id", "name", "user", "backend", "framework", "queue", "state", "reason"),
    *("submitted", "started", "finished", "restarts"),
)
TABLES: dict[str, tuple[str, ...]] = {
    "jobs": (*_OF_JOB, "tags", "week", "took_s", "cause", "containers", "failures", *_HOURS),
    "containers": ("job_id", *ContainerUsage.__struct_fields__),
    "failures": ("job_id", *FailureUsage.__struct_fields__),
}
"""Each table's columns; docs/guides/accounting.md says what they mean."""

_ALLOWED = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_STEPS = 100_000
"""Instructions of SQLite after which Ctrl-C is looked for."""


class QueryResult(NamedTuple):
    """What a query found."""

    columns: list[str]
    rows: list[tuple[Any, ...]]


def query(jobs: Iterable[JobUsage], sql: str) -> QueryResult:
    """Ask the tables. Nothing can be written, nor any file opened.

    Raises:
        BadInput: the SQL is wrong, or no query; the text names the tables and columns there are.
    """
    database = sqlite3.connect(":memory:")
    try:
        for name, columns in TABLES.items():
            database.execute(f"create table {name} ({', '.join(columns)})")
        for job in jobs:
            _insert(database, "jobs", [_job(job)])
            for name in ("containers", "failures"):
                columns = TABLES[name][1:]
                each = getattr(job, name)
                _insert(
                    database, name, [(job.job_id, *(getattr(x, c) for c in columns)) for x in each]
                )
        database.commit()
        database.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
        )
        database.set_progress_handler(lambda: 0, _STEPS)
        try:
            found = database.execute(sql)
            rows = found.fetchall()
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            if "interrupted" in str(error):
                raise KeyboardInterrupt from None
            raise BadInput(f"{_in_words(error)}. {known()}") from None
        if found.description is None:
            raise BadInput(f"There is no query in {sql[:80]!r}. {known()}")
        return QueryResult([each[0] for each in found.description], rows)
    finally:
        database.close()


def known() -> str:
    """The tables and columns there are."""
    lines = [f"  {name}: {', '.join(columns)}" for name, columns in TABLES.items()]
    return "\n".join(["The tables and their columns are", *lines])


def _in_words(error: Exception) -> str:
    text = str(error).rstrip(".")
    if "not authorized" in text or "prohibited" in text:
        return "The tables can only be read: write a select"
    return f"SQLite does not take that: {text}"


def _insert(database: sqlite3.Connection, table: str, rows: Sequence[tuple[object, ...]]) -> None:
    marks = ", ".join("?" * len(TABLES[table]))
    clean = [tuple(_clean(value) for value in row) for row in rows]
    database.executemany(f"insert into {table} values ({marks})", clean)  # noqa: S608


def _clean(value: object) -> object:
    """Bytes that were no UTF-8 leave their place only."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _job(job: JobUsage) -> tuple[object, ...]:
    sums: dict[str, float] = defaultdict(float)
    for each in job.containers:
        for name, amount in hours(each).items():
            sums[name] += amount
    took_s = None if job.finished is None else job.finished - job.submitted
    return (
        *(getattr(job, name) for name in _OF_JOB),
        ",".join(job.tags),
        week(job.submitted),
        took_s,
        job.failures[0].cause if job.failures else None,
        len(job.containers),
        len(job.failures),
        *(sums[name] for name in _HOURS),
    )
