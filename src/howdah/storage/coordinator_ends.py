"""How coordinators of a job ended that did not bring it to its end: one small file each in the job
directory, which the next coordinator reads and tells.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from howdah.core.messages import Level, Record
from howdah.storage.files import read_regular, write_atomically
from howdah.wire.decoders import document_decoder

RECORD = "coordinator-died"
NO_ROOM = 75
"""Exit code of a coordinator for which there is no room just now: disk, open files or memory."""
FORGET_S = 600.0
"""A death so long ago has nothing to do with one of now."""
FIRST_PAUSE_S = 10.0
LONGEST_PAUSE_S = 60.0

_PREFIX = "coordinator-died-"


class CoordinatorEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one coordinator."""

    who: str
    """Which one: its container, or its process."""
    reason: str
    time: float
    lived_s: float | None = None


def write(folder: Path, end: CoordinatorEnd) -> str:
    """Write it down; the name of the file."""
    # A process of that id may end once more: of the next machine or container, where ids begin anew.
    name = f"{_PREFIX}{re.sub(r'[^A-Za-z0-9_.-]', '-', end.who)}-{end.time:.0f}.json"
    write_atomically(folder / name, msgspec.json.format(msgspec.json.encode(end), indent=2) + b"\n")
    return name


def read(folder: Path) -> list[CoordinatorEnd]:
    """All that are written down, oldest first; damaged ones are left out."""
    found: list[CoordinatorEnd] = []
    for path in folder.glob(f"{_PREFIX}*.json"):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            found.append(document_decoder(CoordinatorEnd)(read_regular(path)))
    return sorted(found, key=lambda end: end.time)


def records(folder: Path, recorded: Iterable[Record]) -> list[Record]:
    """Those that the job's records do not have yet, as records."""
    known = {
        (record.data.get("who"), record.data.get("time"))
        for record in recorded
        if record.kind == RECORD
    }
    return [_record(end) for end in read(folder) if (end.who, end.time) not in known]


def pause_s(ends: Sequence[CoordinatorEnd], lived_s: float, now: float | None = None) -> float:
    """How long a coordinator that has failed waits before its process ends and the next one begins.
    Each in a row waits longer: what it failed at may take a while to be mended."""
    now = time.time() if now is None else now
    recent = sum(end.time > now - FORGET_S for end in ends)
    longest_s = min(FIRST_PAUSE_S * 2 ** max(0, recent - 1), LONGEST_PAUSE_S)
    return max(0.0, longest_s - lived_s)


def _record(end: CoordinatorEnd) -> Record:
    after = "" if end.lived_s is None else f" after {end.lived_s:.0f} s"
    return Record(
        kind=RECORD,
        text=f"the coordinator {end.who} died{after}: {end.reason}",
        level=Level.WARNING,
        data={"who": end.who, "time": end.time},
    )
