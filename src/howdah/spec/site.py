"""The site file: what an administrator sets for every job, as defaults or as limits.

It is a job file without the parts that make a job: its keys are defaults that a job's own win
over, except ``[limits]``, which no job can change. ``backend`` says where jobs run that do not say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from howdah.spec.problems import KeyPath, Problems, closest, listed, shown
from howdah.spec.readers.document import Document, read_file
from howdah.spec.values import Table, is_table

VARIABLE = "HOWDAH_SITE"
SYSTEM_FILE = Path("/etc/howdah/site.toml")
USER_FILE = Path(".config/howdah/site.toml")

BACKEND = "backend"
"""The one key that job files have not."""

_NOT_FOR_SITES = ("name", "framework", "command", "source", "roles", "preprocess")
_WHOLE = (("environment",),)
"""Tables whose keys exclude each other: a job's own replaces the site's altogether."""
_EITHER: dict[KeyPath, str] = {("hadoop", "python"): "runtime", ("hadoop", "runtime"): "python"}
"""A key that a job's own other one excludes, of the same table."""


def find(env: Mapping[str, str]) -> Path | None:
    """The site file in force, if there is one.

    ``HOWDAH_SITE`` names it (empty: none); else the system's, else the user's own.
    """
    if (named := env.get(VARIABLE)) is not None:
        return Path(named) if named else None
    candidates = [SYSTEM_FILE]
    if home := env.get("HOME"):
        candidates.append(Path(home) / USER_FILE)
    return next((path for path in candidates if path.is_file()), None)


def read(
    path: Path, env: Mapping[str, str], backends: Callable[[str], Sequence[str]] = lambda name: ()
) -> Document:
    """The site file.

    ``backends`` is given the name of a backend, and gives those that there are where that is none.

    Raises:
        JobFileError: it cannot be read, or has keys or values that no site file may have: all of them.
    """
    from howdah.spec.checks import hints, shape  # backends begin before job files are checked
    from howdah.spec.substitute import in_environment

    document = read_file(path)
    problems = Problems(document.origins)
    table = dict(document.table)
    for key in _NOT_FOR_SITES:
        if key in table:
            problems.add((key,), "belongs in a job file, not in the site's")
    backend = table.pop(BACKEND, None)
    if backend is not None and not isinstance(backend, str):
        problems.add((BACKEND,), "must be the name of a backend", 'for example "yarn"')
    elif backend is not None and (known := backends(backend)):
        near = closest(backend, known)
        hint = f"did you mean {shown(near)}?" if near else f"known are {listed(known)}"
        problems.add((BACKEND,), f"there is no backend {shown(backend)}", hint)
    if near := closest(BACKEND, table.keys() - hints.tables_with().keys()):
        problems.add((near,), "unknown key", f"did you mean {BACKEND}?")
        del table[near]
    # No problem where a job's own value wins: what is in force is looked at once there is a job.
    unset = Problems()
    problems.table = table = in_environment(table, env, unset)
    problems.doubt_as(unset)
    shape.check(table, problems)
    problems.raise_any()
    return document


def merge(site: Document, job: Document, problems: Problems) -> Document:
    """The job with the site's defaults below it and the site's limits in force.

    A job that brings limits of its own is a problem, unless they say the same or nothing: a
    stored ``job.json`` has them, and is a job file too.
    """
    limits = site.table.get("limits")
    own = job.table.get("limits")
    empty = ("limits",) in job.origins.empty
    if empty or (not _says_nothing(own) and _spoken(own) != _spoken(limits)):
        problems.add(("limits",), "only a site file may set limits", "remove the table")
    merged = Document(dict(job.table), job.origins)
    merged.table.pop("limits", None)
    if limits is not None:
        merged.table["limits"] = limits
        merged.origins.take(site.origins, ("limits",))
    defaults: Table = {
        key: value for key, value in site.table.items() if key not in ("limits", BACKEND)
    }
    _put_below(merged.table, defaults, (), merged, site)
    return merged


def _put_below(table: Table, defaults: Table, path: KeyPath, job: Document, site: Document) -> None:
    for key, default in defaults.items():
        at = (*path, key)
        own = table.get(key)
        if own is None and at in job.origins.empty:
            continue  # neither that value nor the default is meant: refused as any key without a value
        if own is None and (other := _EITHER.get(at)) and table.get(other) is not None:
            continue
        if own is None:
            table[key] = default
            job.origins.take(site.origins, at)
        elif is_table(own) and is_table(default) and at not in _WHOLE:
            table[key] = dict(own)
            _put_below(table[key], default, at, job, site)


def _says_nothing(value: Any) -> bool:
    return value is None or (is_table(value) and not _spoken(value))


def _spoken(value: Any) -> Any:
    """A table without the keys that say nothing."""
    if not is_table(value):
        return value
    return {key: item for key, item in value.items() if not _says_nothing(item)}
