"""The Python a job's programs run with, on the machine that runs them.

Commands say ``python train.py``. So the interpreter's folder comes first on the programs' PATH,
and where ``python`` and ``python3`` are something else there (``/usr/bin/python3.12``), a folder
with these two names comes before it: never does another interpreter than the job's answer.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from howdah.spec.model import Job

NAMES = ("python", "python3")
_OWN_PATHS = ("stdlib", "platstdlib", "purelib", "platlib")


def interpreter(job: Job, source: str | None, default: str) -> str:
    """The job's interpreter, absolute where it can be found; ``default`` if the job names none.

    A path is relative to the source folder; a plain name is looked up on PATH.
    """
    wanted = job.environment.python
    if wanted is None:
        return default
    if "/" not in wanted:
        return shutil.which(wanted) or wanted
    return os.path.normpath(Path(source or ".", Path(wanted).expanduser()))


def missing(job: Job, source: str | None) -> str | None:
    """What is wrong with the interpreter a job names, in words; None if it can be started."""
    wanted = job.environment.python
    if wanted is None:
        return None
    found = interpreter(job, source, "")
    if os.access(found, os.X_OK) and not os.path.isdir(found):
        return None
    if "/" not in wanted:
        return f"there is no program {wanted!r} on PATH; install it, or give its path"
    what = "is not executable" if os.path.exists(found) else "is not there"
    return f"{found} {what}; a path is absolute or relative to the source folder"


def answers_to_its_names(python: str) -> bool:
    """Whether its own folder, first on PATH, is enough for it to be ``python`` and ``python3``."""
    folder = os.path.dirname(python)
    try:
        return all(Path(folder, name).samefile(python) for name in NAMES)
    except OSError:
        return False


def name(folder: Path, python: str) -> None:
    """Make ``python`` and ``python3`` in the folder start that interpreter.

    Scripts, not links: through a link from elsewhere an interpreter does not find the virtual
    environment it is in.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for own in NAMES:
        file = folder / own
        file.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} "$@"\n', "utf-8")
        file.chmod(0o700)


def python_path(path: Sequence[str] | None = None) -> str:
    """PYTHONPATH for another process of this process's own interpreter: of ``path`` (`sys.path`) what
    the interpreter does not find by itself.

    Never its own library: a program of another Python may inherit the variable.
    """
    paths = sysconfig.get_paths()
    own = {Path(paths[name]) for name in _OWN_PATHS}
    own.add(Path(paths["stdlib"]).parent / f"python{sys.version_info[0]}{sys.version_info[1]}.zip")
    entries = sys.path if path is None else path
    return os.pathsep.join(
        entry
        for entry in entries
        if entry and not any(Path(entry).is_relative_to(folder) for folder in own)
    )
