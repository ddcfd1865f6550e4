"""Jobs from files, flags, programs and earlier runs: checked by every rule there is, all at once."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from howdah.client.submission import scripts
from howdah.frameworks import planning, registry
from howdah.frameworks.base import Problem
from howdah.spec import load
from howdah.spec.load import LoadedJob
from howdah.spec.model import Job
from howdah.storage.jobdir import JobDirectory, NotYours


def load_file(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> LoadedJob:
    """The job in a job file.

    Raises:
        JobFileError: all problems at once.
    """
    return load.load(path, overrides, **_rules())


def load_flags(
    framework: str | None,
    roles: Sequence[str],
    command: Sequence[str],
    overrides: Sequence[str] = (),
    *,
    name: str | None = None,
) -> LoadedJob:
    """The job of a command line without a job file; its source is the current folder.

    Raises:
        JobFileError: all problems at once.
    """
    return load.from_flags(framework, roles, command, overrides, name=name, **_rules())


def load_document(
    document: Mapping[str, Any],
    overrides: Sequence[str] = (),
    *,
    label: str,
    path: Path | None = None,
) -> LoadedJob:
    """A job made of something that is no job file; its paths are relative to the current folder.

    ``label`` is what problems name instead of a file; ``path`` is the job's file all the same.

    Raises:
        JobFileError: all problems at once.
    """
    loaded = load.from_document(document, overrides, label=label, **_rules())
    return msgspec.structs.replace(loaded, path=path)


def load_object(job: Job, overrides: Sequence[str] = ()) -> LoadedJob:
    """A job made by a program; its source is relative to the current folder.

    Raises:
        JobFileError: all problems at once.
    """
    return load.from_job(job, overrides=overrides, **_rules())


def load_again(directory: JobDirectory, overrides: Sequence[str] = ()) -> LoadedJob:
    """The job of an earlier run, to be submitted under another id; its paths mean what they meant there.

    Raises:
        JobFileError: it cannot be run any more (its source folder is gone).
        NotYours: somebody else's commands would be run.
        StorageError: its documents are missing or damaged.
    """
    meta = directory.meta()
    if meta.owner is not None:
        raise NotYours(
            f"{meta.job_id} is {meta.owner}'s: what it runs is not run as you. Ask {meta.owner} to run "
            "it again, or submit a job file of your own"
        )
    # What was substituted stays as it is; only the job's own id, which could not have been written
    # before the job had it, becomes the new one's.
    job = directory.job()
    text = msgspec.json.encode(job).decode()
    text = text.replace("${", "$${").replace(meta.job_id, "${job.id}")
    document: dict[str, Any] = msgspec.json.decode(text)
    document["secrets"] = msgspec.to_builtins(job.secrets)  # references still
    document["source"] = meta.source
    document.pop("limits", None)  # the site's of that time; today's count
    file = Path(meta.job_file) if meta.job_file else None
    # Records of older releases have no folder. Where there was no job file, the source mostly was it.
    folder = meta.folder or (file.parent if file else meta.source) or Path.cwd()
    loaded = load.from_document(
        document, overrides, folder=folder, label=f"the job of {meta.job_id}", **_rules()
    )
    return msgspec.structs.replace(loaded, path=file)


class _Frameworks(Collection[str]):
    """Known names. Plug-ins are looked for only where a built-in's name does not do."""

    def __contains__(self, name: object) -> bool:
        return name in registry.BUILT_IN or name in registry.names()

    def __iter__(self) -> Iterator[str]:
        return iter(registry.names())

    def __len__(self) -> int:
        return len(registry.names())


def _rules() -> Mapping[str, Any]:
    return {"frameworks": _Frameworks(), "further": _further}


def _further(job: Job, source: Path | None) -> Iterator[Problem]:
    yield from planning.problems(job)
    for key, message in scripts.missing(job, source, absolute=False):
        yield Problem(key=key, message=message)
