"""From a job file, a document or a command line to a checked `Job`, or to all that is wrong."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from howdah.spec import site as site_files
from howdah.spec.checks import limits, paths, rules, shape
from howdah.spec.model import Job
from howdah.spec.overrides import Loose, apply, parse_key
from howdah.spec.problems import (
    JobFileProblem,
    Origins,
    Problems,
    ValueOrigin,
    closest,
    listed,
    shown,
)
from howdah.spec.readers.document import STDIN, Document, from_mapping, read_file
from howdah.spec.substitute import in_environment
from howdah.spec.substitute import job_id as substitute_job_id
from howdah.spec.values import Table

__all__ = ["LoadedJob", "from_document", "from_flags", "from_job", "load", "substitute_job_id"]


class LoadedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job without problems, and where it came from."""

    job: Job
    path: Path | None = None
    """The job file, absolute; None for a job that was never in one."""
    source: Path | None = None
    """The source folder, absolute; None if the job has none."""
    folder: Path = msgspec.field(default_factory=Path.cwd)
    """What the job's paths are relative to, absolute: the job file's folder, or the present one."""
    origins: Origins = msgspec.field(default_factory=Origins)
    """Where each value was written."""

    def problem(self, key: str, message: str, hint: str | None = None) -> JobFileProblem:
        """A problem that was found later (by a backend, say), with its file and line."""
        origin = self.origins.at(parse_key(key) or ())
        return JobFileProblem(
            file=origin.file, line=origin.line, key=key, message=message, hint=hint
        )


class _Keyed(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def message(self) -> str: ...


Further = Callable[[Job, Path | None], Iterable[_Keyed]]
"""Finds more problems in a job of the right shape, given its source folder if it is known."""


def load(
    path: str | os.PathLike[str],
    overrides: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    site: str | os.PathLike[str] | None = None,
    *,
    frameworks: Collection[str] | None = None,
    further: Further | None = None,
) -> LoadedJob:
    """The job in a TOML, YAML or JSON file; ``-`` is standard input, and the present folder its own.

    Args:
        overrides: ``key=value`` pairs put over the file (``--set``).
        env: what ``${env:NAME}`` means; by default this process's environment.
        site: the site file; by default the one ``env`` or the machine has.
        frameworks: known names, if ``framework`` is to be checked against them.
        further: finds problems that need to know more; those that only follow from what is
            already known to be wrong are dropped.

    Raises:
        JobFileError: with all problems, in the order of the file.
    """
    file = Path(path)
    document = read_file(file)
    folder = file.absolute().parent
    loaded = _resolve(document, folder, overrides, env, site, frameworks, further, _name_of(file))
    return loaded if file == STDIN else msgspec.structs.replace(loaded, path=file.absolute())


def from_document(
    document: Mapping[str, Any],
    overrides: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    site: str | os.PathLike[str] | None = None,
    *,
    folder: str | os.PathLike[str] = ".",
    label: str | None = None,
    frameworks: Collection[str] | None = None,
    further: Further | None = None,
) -> LoadedJob:
    """The job in a document that is not in a file; otherwise as `load`.

    Args:
        folder: what ``source`` is relative to.
        label: what problems name instead of a file.

    Raises:
        JobFileError: with all problems.
    """
    copy = from_mapping(document, label)
    base = Path(folder).absolute()
    return _resolve(copy, base, overrides, env, site, frameworks, further, None)


def from_job(job: Job, **rest: Any) -> LoadedJob:
    """A job made by a program, checked like any other; ``rest`` is as for `from_document`.

    Raises:
        JobFileError: with all problems.
    """
    return from_document(msgspec.to_builtins(job), **rest)


def from_flags(
    framework: str | None,
    roles: Sequence[str],
    command: Sequence[str],
    overrides: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    site: str | os.PathLike[str] | None = None,
    *,
    name: str | None = None,
    folder: str | os.PathLike[str] = ".",
    frameworks: Collection[str] | None = None,
    further: Further | None = None,
) -> LoadedJob:
    """The job of ``howdah run --framework pytorch --role worker=4 -- python train.py --lr 0.1``.

    ``roles`` are ``name=count`` or ``name=min..max`` or a bare name for one task; none at all is
    one ``worker``. A command of one argument with spaces in it is a shell command line, any other
    is run as it is. What flags cannot say, ``overrides`` can.

    Raises:
        JobFileError: with all problems.
    """
    problems = Problems()
    table: Table = {"roles": {}}
    origins: dict[str, ValueOrigin] = {}
    for role in roles or ("worker=1",):
        key, _, count = role.partition("=")
        origin = ValueOrigin(f"--role {role}")
        if not key.strip() or key.strip() in origins:
            message = "names a role twice" if key.strip() else "names no role"
            problems.add((), message, "write --role worker=4", origin=origin)
            continue
        origins[key.strip()] = origin
        table["roles"][key.strip()] = {"instances": Loose(count) if count else 1}
    problems.raise_any()
    if framework is not None:
        table["framework"] = framework
    if command:
        shell = len(command) == 1 and re.search(r"\s", command[0])
        table["command"] = command[0] if shell else list(command)
    document = from_mapping(table, None)
    for key, origin in origins.items():
        document.origins.put(("roles", key), origin)
    document.origins.put(("framework",), ValueOrigin("--framework"))
    document.origins.put(("command",), ValueOrigin("the command line"))
    if name is not None:
        document.table["name"] = name
        document.origins.put(("name",), ValueOrigin("--name"))
    base = Path(folder).absolute()
    default = _name_of_command(command)
    return _resolve(document, base, overrides, env, site, frameworks, further, default)


def _resolve(
    document: Document,
    folder: Path,
    settings: Iterable[str],
    env: Mapping[str, str] | None,
    site_file: str | os.PathLike[str] | None,
    frameworks: Collection[str] | None,
    further: Further | None,
    default_name: str | None,
) -> LoadedJob:
    """Everything between a document and a job, in the order a user would expect it."""
    env = os.environ if env is None else env
    problems = Problems(document.origins)
    apply(document, settings, problems)
    path = Path(site_file) if site_file is not None else site_files.find(env)
    site_document = site_files.read(path, env) if path is not None else from_mapping({}, None)
    document = site_files.merge(site_document, document, problems)
    table = in_environment(document.table, env, problems)
    if default_name is not None and table.get("name") is None:
        table["name"] = default_name
    problems.table = table
    job = shape.check(table, problems)
    if job.source == "":
        job = msgspec.structs.replace(job, source=None)
    rules.check(job, problems)
    source = paths.check(job, folder, problems)
    job = paths.with_whole_stores(job, folder, problems)
    limits.check(job, job.limits, problems, str(path) if path is not None else None)
    _check_framework(job, frameworks, problems)
    for found in further(job, source) if further is not None else ():
        _add_further(found, problems)
    problems.raise_any()
    return LoadedJob(job=job, source=source, folder=folder, origins=document.origins)


def _check_framework(job: Job, frameworks: Collection[str] | None, problems: Problems) -> None:
    if frameworks is None or job.framework in frameworks or problems.doubted(("framework",)):
        return
    near = closest(job.framework, frameworks)
    hint = f"did you mean {shown(near)}?" if near else f"known are {listed(frameworks)}"
    problems.add(("framework",), f"there is no framework {shown(job.framework)}", hint)


def _add_further(found: _Keyed, problems: Problems) -> None:
    key = parse_key(found.key) or ()
    if not (problems.doubted_within(key) if key else problems):
        problems.add(key, found.message)


def _name_of(file: Path) -> str | None:
    """A job file's name is its job's, but ``job.toml`` is called after its folder."""
    stem = file.stem
    if stem in ("job", "howdah") or file == STDIN:
        stem = file.absolute().parent.name
    return _as_name(stem)


def _name_of_command(command: Sequence[str]) -> str | None:
    words = command[0].split() if len(command) == 1 else command
    scripts = [word for word in words if word.endswith((".py", ".sh"))]
    modules = [after for word, after in itertools.pairwise(words) if word == "-m"]
    chosen = next(iter([*scripts, *modules, *words]), "")
    return _as_name(Path(chosen).stem if chosen in scripts else Path(chosen).name)


def _as_name(text: str) -> str | None:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("._-")[:50]
    return name or None
