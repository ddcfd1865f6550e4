"""What a process of ours has to be told of where its modules are."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

_OWN = ("stdlib", "platstdlib", "purelib", "platlib")


def told(path: Sequence[str] | None = None) -> str:
    """PYTHONPATH for another process of this interpreter: of this one's path (``sys.path``) what the
    interpreter does not find by itself.

    Never its own library: a program of another Python may inherit the variable.
    """
    places = sysconfig.get_paths()
    own = {Path(places[name]) for name in _OWN}
    own.add(Path(places["stdlib"]).parent / f"python{sys.version_info[0]}{sys.version_info[1]}.zip")
    entries = sys.path if path is None else path
    return os.pathsep.join(
        entry
        for entry in entries
        if entry and not any(Path(entry).is_relative_to(folder) for folder in own)
    )
