"""Commands of an environment, made to find the interpreter beside them."""

from __future__ import annotations

import re
from pathlib import Path

_FIRST_LINE = re.compile(rb"#!\s*(\S+)(.*)")
_PYTHON = re.compile(r"python[0-9.]*")

_RELATIVE = b"""#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/python%s "$0" "$@"
' '''
"""
"""Shell and Python at once, as uv writes it for relocatable environments."""


def relative(script: bytes, folder: Path) -> bytes | None:
    """The script started by the ``python`` of its own folder; None if it is none of an interpreter
    in ``folder`` (also before the folder was moved), or finds it by itself already."""
    first, newline, rest = script.partition(b"\n")
    match = _FIRST_LINE.match(first)
    if not match or not newline:
        return None
    program = match[1].decode(errors="replace")
    if program == "/bin/sh" and rest.startswith(b"'''exec' ") and b"' '''\n" in rest:
        line, _, rest = rest.partition(b"' '''\n")
        if b"dirname" in line:
            return None
        # The long form that is used where a path is too long for a first line.
        program, options = line.split()[1].strip(b"'\"").decode(errors="replace"), b""
    else:
        options = match[2].rstrip()
    path = Path(program)
    # One that is not there is that of an environment which was moved.
    ours = _same(path.parent, folder) or not path.exists()
    if not (_PYTHON.fullmatch(path.name) and ours):
        return None
    return _RELATIVE % (options,) + rest


def _same(one: Path, other: Path) -> bool:
    return one == other or one.resolve() == other.resolve()
