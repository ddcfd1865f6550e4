"""A list of all jobs that can be searched: an SQLite file, made from the job directories alone.

A job that has ended is read once. Remove the file and it is made again. A look for new jobs reads the
folder's entries only, and not even those while nothing was made or removed in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from howdah.client.lookup.states import STATES
from howdah.portal.access_control import JobAcl, Reader
from howdah.portal.rows import Row, row_of
from howdah.storage import layout
from howdah.storage.files import make_private_folder
from howdah.storage.jobdir import (
    JobDirectory,
    NotYours,
    check_folder_of_jobs,
    order,
    own,
)

VERSION = 3
"""A number for each shape of the tables; part of the file's name."""
PAGE = 50
"""Jobs of one page, unless more are asked for."""
PAGE_MAX = 1000
BATCH = 200
"""Jobs taken in at once: nobody's page waits longer for the next one."""
RARE = 10_000
"""A text or tag that so many jobs have at most is looked up; a commoner one is met soon, newest first."""
COUNTED = 5000
"""More jobs than this are not counted."""
SHORT = 3
"""A text of fewer characters is looked for in names only: it stands in nearly all reasons."""
SETTLED_NS = 2_000_000_000
"""A folder that was changed this short a time ago may be changed again without its time changing."""
CHOICES = 200
"""Values offered to choose from."""
CHOOSERS = 100
"""Readers whose choices are remembered until a job changes."""

_TABLES = """
pragma locking_mode = exclusive;
pragma journal_mode = wal;
pragma synchronous = normal;
create table if not exists jobs (
  id integer primary key, job_id text not null, name text, user text, framework text, backend text,
  queue text, tags text, state text, cause text, reason text, submitted real, finished real,
  took real, restarts integer, tasks integer, ended integer);
create index if not exists newest on jobs (submitted, job_id);
create index if not exists by_state on jobs (state, submitted, job_id);
create index if not exists by_name on jobs (name, submitted, job_id);
create index if not exists by_user on jobs (user, submitted, job_id);
create index if not exists longest on jobs (took, submitted, job_id);
create index if not exists by_framework on jobs (framework, submitted, job_id);
create index if not exists by_backend on jobs (backend, submitted, job_id);
create index if not exists by_queue on jobs (queue, submitted, job_id);
create index if not exists by_cause on jobs (cause, submitted, job_id);
create table if not exists tagged (tag text, id integer, primary key (tag, id)) without rowid;
create table if not exists allowed (
  who text, what text, id integer, primary key (who, what, id)) without rowid;
create index if not exists allowed_of on allowed (id);
"""
_WORDS = "create virtual table if not exists words using fts5(text, tokenize = 'trigram')"


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are wanted, and in what order. What is empty lets all through."""

    text: str = ""
    """A part of the id, the name, the user, a tag or the reason; upper and lower case are alike. Of
    fewer than `SHORT` characters: of the name."""
    states: tuple[str, ...] = ()
    """Any of them."""
    name: str = ""
    """A pattern, as of file names."""
    user: str = ""
    tag: str = ""
    backend: str = ""
    queue: str = ""
    framework: str = ""
    cause: str = ""
    since: float | None = None
    """Submitted then or later, in seconds since the epoch."""
    sort: str = "-submitted"
    """One of `SORTS`; with a minus the largest comes first."""
    skip: int = 0
    limit: int = PAGE


SORTS = ("submitted", "took", "name", "user")


class FoundJobs(msgspec.Struct, frozen=True, kw_only=True):
    """One page of an answer."""

    rows: tuple[Row, ...]
    more: bool
    """There are others behind these."""
    total: int | None
    """How many there are in all; None where they are more than are counted."""


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs can be chosen by."""

    states: Mapping[str, int]
    """How many jobs are in each state."""
    users: tuple[str, ...]
    frameworks: tuple[str, ...]
    backends: tuple[str, ...]
    queues: tuple[str, ...]
    causes: tuple[str, ...]
    tags: tuple[str, ...]


Share = Callable[[Row], tuple[Row, JobAcl]]
"""A job as it may be shown to others, and who they are."""


class JobIndex:
    """The list of the jobs below one folder. May be used by several threads.

    Args:
        base: the folder of job directories.
        folder: a private one, for the file. While another program has the file open, the list is
            made in memory.
        share: says who may see a job. Without it a reader other than the user sees none.
    """

    def __init__(self, base: Path, folder: Path, share: Share | None = None) -> None:
        self._base = base
        self._share = share
        make_private_folder(folder)
        name = hashlib.sha256(os.fsencode(base)).hexdigest()[:16]
        self._lock = threading.RLock()
        self._refreshing = threading.Lock()
        self._database, self._has_words = _open(folder / f"jobs-{name}-{VERSION}.sqlite")
        rows = self._database.execute("select job_id, id, ended from jobs").fetchall()
        self._ids: dict[str, int] = {job_id: number for job_id, number, _ in rows}
        self._next = max(self._ids.values(), default=0) + 1
        self._unended: set[str] = {job_id for job_id, _, ended in rows if not ended}
        self._rows: dict[str, Row] = {}
        """Of jobs that have not ended: they are asked again and again, and seldom change."""
        self._passed_over: set[str] = set()
        self._changed_ns: int | None = None
        self._choices: dict[Reader | None, Choices] = {}
        self.left_out: int = 0
        """Directories that are not the user's own."""
        self.to_come: int | None = None
        """Jobs that were found and are still to be read; None before the folder was looked through."""

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def __len__(self) -> int:
        return len(self._ids)

    # -- taking in -------------------------------------------------------------------------------

    def refresh(self, ended: Callable[[], bool] = lambda: False) -> list[JobDirectory]:
        """Take in jobs that are new, forget those that are gone.

        Returns the directories of jobs that have not ended, newest first. Stops early once ``ended``
        says so.

        Raises:
            NotYours: others could put jobs there.
        """
        with self._refreshing:
            fresh = self._look()
            left = self.to_come = len(fresh)
            try:
                for start in range(0, len(fresh), BATCH):
                    if ended():
                        break
                    batch = fresh[start : start + BATCH]
                    self.put(row_of(directory) for directory in batch)
                    left -= len(batch)
                    self.to_come = left
            finally:
                if left:
                    self._changed_ns = None
                self.to_come = 0
            with self._lock:
                names = sorted(self._unended, key=order, reverse=True)
            return [JobDirectory(self._base / name) for name in names]

    def put(self, rows: Iterable[Row]) -> None:
        """Lay what is known better over what was known before."""
        rows = list(rows)
        with self._lock, self._database:
            for row in rows:
                if self._rows.get(row.job_id) != row:
                    self._put(row)
                    self._choices.clear()

    def _look(self) -> list[JobDirectory]:
        """New jobs, newest first; what is gone is forgotten."""
        check_folder_of_jobs(self._base)
        try:
            changed_ns = self._base.stat().st_mtime_ns
        except FileNotFoundError:
            changed_ns = 0
        if changed_ns == self._changed_ns:
            return []
        there = _names(self._base)
        settled = time.time_ns() - changed_ns > SETTLED_NS
        self._changed_ns = changed_ns if settled else None
        with self._lock:
            gone = [name for name in self._ids if name not in there]
            self._forget(gone)
            unknown = there - self._ids.keys() - self._passed_over
        fresh: list[JobDirectory] = []
        for name in sorted(unknown, key=order, reverse=True):
            directory = JobDirectory(self._base / name)
            try:
                own(directory)
            except NotYours:
                self._passed_over.add(name)
                continue
            # A folder that is called like a job is one, even if it was never finished.
            if order(name)[0] or os.path.exists(directory.path / layout.META):
                fresh.append(directory)
        self._passed_over &= there
        self.left_out = len(self._passed_over)
        return fresh

    def _forget(self, names: list[str]) -> None:
        if not names:
            return
        with self._database:
            for name in names:
                number = self._ids.pop(name)
                self._unended.discard(name)
                self._rows.pop(name, None)
                self._remove(number)
                self._database.execute("delete from jobs where id = ?", (number,))
        self._choices.clear()

    def _remove(self, number: int) -> None:
        self._database.execute("delete from tagged where id = ?", (number,))
        self._database.execute("delete from allowed where id = ?", (number,))
        if self._has_words:
            self._database.execute("delete from words where rowid = ?", (number,))

    def _put(self, known: Row) -> None:
        row, access = known, None
        if self._share is not None:
            row, access = self._share(known)
        number = self._ids.get(row.job_id)
        if number is None:
            number = self._ids[row.job_id] = self._next
            self._next += 1
        else:
            self._remove(number)
        values = [_stored(getattr(row, name)) for name in Row.__struct_fields__]
        marks = ", ".join("?" * (len(values) + 1))
        self._database.execute(f"insert or replace into jobs values ({marks})", (number, *values))  # noqa: S608
        self._database.executemany(
            "insert or ignore into tagged values (?, ?)",
            [(_clean(tag), number) for tag in row.tags],
        )
        if access is not None:
            marks = [("view", access.viewers()), ("modify", access.modifiers())]
            self._database.executemany(
                "insert or ignore into allowed values (?, ?, ?)",
                [(_clean(who), what, number) for what, all_ in marks for who in all_],
            )
        if self._has_words:
            self._database.execute(
                "insert into words (rowid, text) values (?, ?)", (number, _text(row))
            )
        if row.ended:
            self._unended.discard(row.job_id)
            self._rows.pop(row.job_id, None)
        else:
            self._unended.add(row.job_id)
            self._rows[row.job_id] = known

    # -- asking ----------------------------------------------------------------------------------

    def find(self, query: JobQuery, reader: Reader | None = None) -> FoundJobs:
        """Jobs that match, of those that the reader may see; None is the user, who may see all."""
        with self._lock:
            conditions, values = self._conditions(query)
            seen, marks = _allowed(reader)
            conditions += seen
            values += marks
            where = " and ".join(conditions) or "1"
            column, way = query.sort.removeprefix("-"), "desc" if query.sort[:1] == "-" else "asc"
            assert column in SORTS
            by = dict.fromkeys((column, "submitted", "job_id"))
            ordered = ", ".join(f"{each} {way}" for each in by)
            names = ", ".join(Row.__struct_fields__)
            limit = max(1, min(query.limit, PAGE_MAX))
            # Conditions and order are made of names above; what a reader gives is bound.
            found = self._database.execute(
                f"select {names} from jobs where {where} order by {ordered} limit ? offset ?",  # noqa: S608
                [*values, limit + 1, max(0, query.skip)],
            ).fetchall()
            rows = tuple(_row(each) for each in found[:limit])
            total = len(self._ids)
            if conditions:
                (total,) = self._database.execute(
                    f"select count(*) from (select 1 from jobs where {where} limit ?)",  # noqa: S608
                    [*values, COUNTED + 1],
                ).fetchone()
        return FoundJobs(
            rows=rows,
            more=len(found) > limit,
            total=total if total <= COUNTED or not conditions else None,
        )

    def get(self, job_id: str, reader: Reader | None = None) -> Row | None:
        """That job, if it is known and the reader may see it."""
        names = ", ".join(Row.__struct_fields__)
        seen, marks = _allowed(reader)
        where = " and ".join(("id = ?", *seen))
        with self._lock:
            number = self._ids.get(job_id)
            found = self._database.execute(
                f"select {names} from jobs where {where}",  # noqa: S608
                (number, *marks),
            ).fetchone()
        return _row(found) if found else None

    def may_stop(self, job_ids: Iterable[str], reader: Reader | None = None) -> frozenset[str]:
        """Which of these jobs the reader may stop. Only for those that they may see."""
        with self._lock:
            numbers = {self._ids[each]: each for each in job_ids if each in self._ids}
            if reader is None or reader.is_admin:
                return frozenset(numbers.values())
            marks = reader.marks()
            found = self._database.execute(
                f"select distinct id from allowed where what = 'modify' "  # noqa: S608
                f"and who in ({_places(marks)}) and id in ({_places(numbers)})",
                [*map(_clean, marks), *numbers],
            ).fetchall()
        return frozenset(numbers[number] for (number,) in found)

    def before(self, row: Row, reader: Reader | None = None) -> Row | None:
        """The run of that name, by that user, that was submitted last before it, of those that the
        reader may see."""
        names = ", ".join(Row.__struct_fields__)
        seen, marks = _allowed(reader)
        where = " and ".join(("name = ? and user = ? and (submitted, job_id) < (?, ?)", *seen))
        with self._lock:
            found = self._database.execute(
                f"select {names} from jobs where {where} "  # noqa: S608
                "order by submitted desc, job_id desc limit 1",
                (_clean(row.name), _clean(row.user), row.submitted, row.job_id, *marks),
            ).fetchone()
        return _row(found) if found else None

    def choices(self, reader: Reader | None = None) -> Choices:
        """What jobs can be chosen by, of those that the reader may see."""
        with self._lock:
            if reader not in self._choices:
                if len(self._choices) >= CHOOSERS:
                    self._choices.clear()
                seen, marks = _allowed(reader)
                where = f"where {seen[0]}" if seen else ""
                counts = dict(
                    self._database.execute(
                        f"select state, count(*) from jobs {where} group by state",  # noqa: S608
                        marks,
                    ).fetchall()
                )
                self._choices[reader] = Choices(
                    states={each: counts[each] for each in STATES if each in counts},
                    users=self._values("user", "jobs", reader),
                    frameworks=self._values("framework", "jobs", reader),
                    backends=self._values("backend", "jobs", reader),
                    queues=self._values("queue", "jobs", reader),
                    causes=self._values("cause", "jobs", reader),
                    tags=self._values("tag", "tagged", reader),
                )
            return self._choices[reader]

    def _values(self, column: str, table: str, reader: Reader | None) -> tuple[str, ...]:
        """Different values of an indexed column: a step for each value, not for each row; of the rows that
        a reader may see a step for each of those."""
        seen, marks = _allowed(reader)
        if seen:
            some = self._database.execute(
                f"select distinct {column} from {table} where {seen[0]} "  # noqa: S608
                f"order by {column} limit ?",
                [*marks, CHOICES],
            )
            return tuple(value for (value,) in some if value and value != "?")
        found = self._database.execute(
            f"with recursive each(v) as (select min({column}) from {table} union all "  # noqa: S608
            f"select (select min({column}) from {table} where {column} > v) from each "
            "where v is not null limit ?) select v from each",
            (CHOICES,),
        )
        return tuple(value for (value,) in found if value and value != "?")

    def _conditions(self, query: JobQuery) -> tuple[list[str], list[Any]]:
        """What rows must be, and what is bound."""
        conditions: list[str] = []
        values: list[Any] = []
        for name in ("user", "backend", "queue", "framework", "cause"):
            if value := getattr(query, name):
                conditions.append(f"{name} = ?")
                values.append(value)
        if query.states:
            conditions.append(f"state in ({', '.join('?' * len(query.states))})")
            values += query.states
        if query.name:
            conditions.append("name glob ?")
            values.append(query.name)
        if query.since is not None:
            conditions.append("submitted >= ?")
            values.append(query.since)
        if query.tag:
            rare = self._rare("select id from tagged where tag = ?", query.tag)
            conditions.append(
                f"id in ({rare})" if rare is not None
                else "exists (select 1 from tagged where tagged.id = jobs.id and tag = ?)"
            )  # fmt: skip
            values += [] if rare is not None else [query.tag]
        if query.text:
            rare = None
            if self._has_words and len(query.text) >= SHORT:
                quoted = '"' + query.text.replace('"', '""') + '"'
                rare = self._rare("select rowid from words where text match ?", quoted)
            if rare is not None:
                conditions.append(f"id in ({rare})")
            else:
                where = "name"
                if len(query.text) >= SHORT:
                    where = " || char(10) || ".join(("job_id", "name", "user", "tags", "reason"))
                conditions.append(f"instr(lower({where}), ?)")
                values.append(query.text.lower())
        return conditions, values

    def _rare(self, question: str, value: str) -> str | None:
        """The numbers of the jobs, if they are few."""
        found = self._database.execute(f"{question} limit {RARE + 1}", (value,)).fetchall()
        return None if len(found) > RARE else ", ".join(str(number) for (number,) in found)


def _allowed(reader: Reader | None) -> tuple[list[str], list[str]]:
    """What rows must be for the reader to see them, and what is bound."""
    if reader is None or reader.is_admin:
        return [], []
    marks = [_clean(mark) for mark in reader.marks()]
    return [
        f"id in (select id from allowed where what = 'view' and who in ({_places(marks)}))"  # noqa: S608
    ], marks


def _places(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))


def _open(path: Path) -> tuple[sqlite3.Connection, bool]:
    """The file, made anew where it is damaged; and whether it has the table of words."""
    for place in (path, path, ":memory:"):
        if place is path:
            flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
            os.close(os.open(path, flags, 0o600))
        database = sqlite3.connect(place, check_same_thread=False, timeout=0.1)
        try:
            database.executescript(_TABLES)
            # Takes the lock, and finds a file that is none of ours.
            database.execute("begin immediate").connection.commit()
            database.execute("select count(*), max(id) from jobs").fetchone()
        except sqlite3.OperationalError:  # somebody has it
            database.close()
            continue
        except sqlite3.DatabaseError:
            database.close()
            for each in (path, Path(f"{path}-wal")):
                each.unlink(missing_ok=True)
            continue
        # Built without it, SQLite finds texts by reading all rows.
        with contextlib.suppress(sqlite3.OperationalError):
            database.execute(_WORDS)
            return database, True
        return database, False
    raise AssertionError("memory can always be had")


def _names(base: Path) -> set[str]:
    try:
        with os.scandir(base) as entries:
            return {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
    except FileNotFoundError:
        return set()


def _stored(value: Any) -> Any:
    if isinstance(value, tuple):
        return "\n".join(map(_clean, value))
    return _clean(value) if isinstance(value, str) else value


def _clean(text: str) -> str:
    """Text that SQLite takes: of bytes that were no UTF-8 only their place is left."""
    return text.encode("utf-8", "replace").decode()


def _text(row: Row) -> str:
    return _clean("\n".join((row.job_id, row.name, row.user, *row.tags, row.reason)))


def _row(values: tuple[Any, ...]) -> Row:
    fields = dict(zip(Row.__struct_fields__, values))
    fields["tags"] = tuple(filter(None, fields["tags"].split("\n")))
    fields["ended"] = bool(fields["ended"])
    return Row(**fields)
