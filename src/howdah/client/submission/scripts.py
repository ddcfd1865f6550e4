"""The script that a command starts: what can be said of it before it is run.

In any doubt nothing is said: better to miss a script than to refuse a good job.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from howdah.backends.interpreter import interpreter
from howdah.frameworks import planning, registry
from howdah.frameworks.programs import is_single_call
from howdah.spec.checks.paths import near_name
from howdah.spec.model import Command, Job, Role
from howdah.spec.problems import dotted, printable, shown

_PYTHON = re.compile(r"python[0-9.]*")
_SHELL = re.compile(r"(ba|da|k|z)?sh")
_PYTHON_OPTIONS = re.compile(r"-(?:[bBdEiIOPqRsStuvx]+|[bBdEiIOPqRsStuvx]*[WX](?P<value>.*))")
_SHELL_OPTIONS = re.compile(r"[-+][aefhnprtuvxCEoO]+")
"""Short options written together, after which there may be a script: not so after ``-c``, ``-m`` or ``-s``, and who
knows in which folder after ``-i`` or ``-l``."""
_NOT_PLAIN = re.compile(r"[$`*?\[{~<>#\n]")
"""In a word: the shell, or the cluster, may make something else of it, or it is a program's text."""
_SCRIPTS = (".py", ".sh", ".bash")


def missing(job: Job, source: Path | None, *, absolute: bool) -> Iterator[tuple[str, str]]:
    """Scripts that commands start and that are not there: the key, what is wrong, what to do.

    Only what is certain: not in an image, which may hold anything, and not what another part of the
    job may put there, or an earlier stage.

    Args:
        job: of the right shape.
        source: the source folder; None if the job has none, or if it is not known.
        absolute: look for those with an absolute path, otherwise for those without.
    """
    if source is None and not absolute:
        return
    staged = job.preprocess is not None or any(role.prepare for role in job.roles.values())
    if staged and (absolute or job.in_place):
        return
    for key, command, files in _commands(job):
        name = script_of(command)
        if name is None or name.startswith("/") != absolute:
            continue
        if not absolute and _may_be_put(os.path.normpath(name).partition("/")[0], files):
            continue
        file = Path(source or "/", name)
        if _is_missing(file):
            hint = "correct the path" if absolute else "programs start in the source folder"
            if near := _near(file, source):
                hint = f"did you mean {shown(near)}?"
            yield key, f"there is no file {printable(os.path.normpath(file))}; {hint}"


def not_executable(job: Job, source: Path | None) -> Iterator[tuple[str, str]]:
    """Files of the source folder that commands start and that no one may execute: the key, what is wrong, what to
    do. Tasks get them with the modes that they have here."""
    staged = job.preprocess is not None or any(role.prepare for role in job.roles.values())
    if source is None or (staged and job.in_place):
        return
    for key, command, files in _commands(job):
        name = _words(command)[:1]
        if not name or "/" not in name[0] or name[0].startswith("/") or _NOT_PLAIN.search(name[0]):
            continue
        if _may_be_put(os.path.normpath(name[0]).partition("/")[0], files):
            continue
        file = source / name[0]
        # Not os.access: what this machine mounts without the right to execute, others may.
        if file.is_file() and not file.stat().st_mode & 0o111:
            by = "python" if file.suffix == ".py" else "sh"
            yield (
                key,
                f"{shown(name[0])} is not executable; chmod +x {file}, or start it as `{by} {name[0]}`",
            )


def unknown_programs(job: Job, source: Path | None) -> Iterator[str]:
    """Programs that commands start, and that this machine does not find; each with its key.

    As with scripts, only what is certain: a made environment, or another ``PATH``, may have any.
    """
    python = interpreter(job, str(source) if source else None, sys.executable)
    path = os.pathsep.join((os.path.dirname(python), os.environ.get("PATH", os.defpath)))
    if job.environment.is_made or any(
        "PATH" in each.env for each in (job, job.preprocess or job, *job.roles.values())
    ):
        return
    for key, command, _ in _commands(job):
        name = next(iter(_words(command)), "")
        plain = name and "/" not in name and not _NOT_PLAIN.search(name)
        if plain and not _PYTHON.fullmatch(name) and shutil.which(name, path=path) is None:
            yield f"{key}: there is no program {shown(name)} on PATH here; install it, or correct its name"


def script_of(command: Command) -> str | None:
    """The file that the command starts, as it is written; None where only the shell can tell."""
    words = _words(command)
    program = os.path.basename(words[0]) if words else ""
    is_shell = _SHELL.fullmatch(program) is not None
    at = 0
    if is_shell or _PYTHON.fullmatch(program):
        at = 1
        while at < len(words) and words[at].startswith(("-", "+") if is_shell else "-"):
            if words[at] == "--":
                at += 1
                break
            taken = _shell_options(words[at]) if is_shell else _python_options(words[at])
            if not taken:
                return None
            at += taken
    elif not program.endswith(_SCRIPTS):
        return None
    found = words[at] if at < len(words) else ""
    # Names without a folder are also looked for on PATH, but not by Python.
    if not found or _NOT_PLAIN.search(found) or ("/" not in found and (is_shell or at == 0)):
        return None
    return found


def _words(command: Command) -> list[str]:
    """Of a command that is one call; none where only the shell can tell."""
    if not isinstance(command, str):
        return list(command)
    return shlex.split(command) if is_single_call(command.strip()) else []


def _shell_options(word: str) -> int:
    """How many words they are, with those of their values; 0 if that or what they do is not known."""
    return 1 + word.count("o") + word.count("O") if _SHELL_OPTIONS.fullmatch(word) else 0


def _python_options(word: str) -> int:
    """As `_shell_options`: ``-W`` and ``-X`` take the rest of the word or, if there is none, the next."""
    found = _PYTHON_OPTIONS.fullmatch(word)
    return (2 if found["value"] == "" else 1) if found else 0


def _is_missing(file: Path) -> bool:
    try:
        file.lstat()
    except FileNotFoundError:
        return True
    except (OSError, ValueError):  # no name that a file can have, say
        pass
    return False


def _commands(job: Job) -> Iterator[tuple[str, Command, tuple[str, ...]]]:
    """Commands that run outside images, each with its key and the ``files`` of where it runs."""
    if job.preprocess is not None:
        yield "preprocess.command", job.preprocess.command, job.files
    if job.command is not None:
        users: list[Role] = []  # without those for which their framework has a command
        with contextlib.suppress(registry.UnknownFramework):  # a problem of its own
            users = [role for role in planning.expand(job).roles.values() if role.command is None]
        if users and not any(role.image for role in users):
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
        with contextlib.suppress(OSError, ValueError):  # a folder that cannot be read, say
            found = next(source.glob(f"[!.]*/{glob.escape(missing.name)}"), None)
    if found is None:
        return None
    return found.name if source is None else os.path.relpath(found, source)
