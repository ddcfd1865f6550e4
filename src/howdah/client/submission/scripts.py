"""The script that a command starts: what can be said of it before it is run."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from howdah.frameworks.programs import is_single_call
from howdah.spec.checks.paths import near_name
from howdah.spec.model import Command, Job
from howdah.spec.problems import dotted, printable, shown

_PYTHON = re.compile(r"python[0-9.]*")
_SHELL = re.compile(r"(ba|da|k|z)?sh")
_ELSEWHERE = re.compile(r"-s?|-[A-Za-z]*[cm]")
"""Options after which there is no script: standard input, a program in the command line, a module."""
_EXPANDED = re.compile(r"[$`*?\[{~<>]")
"""In a word: the shell, or the cluster, may make something else of it."""
_SCRIPTS = (".py", ".sh", ".bash")


def missing(job: Job, source: Path | None, *, absolute: bool) -> Iterator[tuple[str, str]]:
    """Scripts that commands start and that are not there: the key, what is wrong, what to do.

    Only what is certain: not in an image, which may hold anything, and not what another part of the
    job may put there.

    Args:
        job: of the right shape.
        source: the source folder; None if the job has none, or if it is not known.
        absolute: look for those with an absolute path, otherwise for those without.
    """
    if source is None and not absolute:
        return
    if job.in_place and (job.preprocess or any(role.prepare for role in job.roles.values())):
        return
    for key, command, files in _commands(job):
        name = _script(command)
        if name is None or name.startswith("/") != absolute:
            continue
        if not absolute and _may_be_put(os.path.normpath(name).partition("/")[0], files):
            continue
        file = Path(source or "/", name)
        if not os.path.lexists(file):
            near = _near(file, source)
            hint = f"did you mean {shown(near)}?" if near else "programs start in the source folder"
            yield key, f"there is no file {printable(os.path.normpath(file))}; {hint}"


def _script(command: Command) -> str | None:
    """The file that the command starts, as it is written; None where only the shell can tell."""
    if isinstance(command, str) and not is_single_call(command.strip()):
        return None
    words = shlex.split(command) if isinstance(command, str) else list(command)
    program = os.path.basename(words[0]) if words else ""
    if _PYTHON.fullmatch(program):
        with_value = ("-W", "-X", "--check-hash-based-pycs")
    elif _SHELL.fullmatch(program):
        with_value = ("-o", "-O", "+o", "+O", "--rcfile", "--init-file")
    else:
        words, with_value = ["", *(w for w in words[:1] if "/" in w and w.endswith(_SCRIPTS))], ()
    at = 1
    while at < len(words) and words[at].startswith(("-", "+")):
        if _ELSEWHERE.fullmatch(words[at]):
            return None
        at += 2 if words[at] in with_value else 1
    found = words[at] if at < len(words) else None
    return None if found is None or _EXPANDED.search(found) else found


def _commands(job: Job) -> Iterator[tuple[str, Command, tuple[str, ...]]]:
    """Commands that run outside images, each with its key and the ``files`` of where it runs."""
    if job.preprocess is not None:
        yield "preprocess.command", job.preprocess.command, job.files
    users = [role for role in job.roles.values() if role.command is None]
    used = users or not job.roles
    if job.command is not None and used and not any(role.image for role in users):
        of_users = (line for role in users for line in role.files)
        yield "command", job.command, (*job.files, *of_users)
    for name, role in job.roles.items():
        if role.command is not None and not role.image:
            yield dotted(("roles", name, "command")), role.command, (*job.files, *role.files)


def _may_be_put(first: str, files: tuple[str, ...]) -> bool:
    """Whether what begins with that name in a task's folder may come from elsewhere than the source."""
    for line in files:
        place, arrow, name = line.partition("->")
        if "://" in place or "::" in place:  # a folder there has names that are not known here
            return True
        if first == os.path.basename((name if arrow else place).strip().rstrip("/")):
            return True
    return first == ".."


def _near(missing: Path, source: Path | None) -> str | None:
    """What was probably meant, as a command would say it: a near name beside it, or the same name in
    another folder of the source."""
    near = near_name(missing)
    found = missing.with_name(near) if near is not None else None
    if found is None and source is not None:
        found = next(source.glob(f"[!.]*/{glob.escape(missing.name)}"), None)
    if found is None:
        return None
    return found.name if source is None else os.path.relpath(found, source)
