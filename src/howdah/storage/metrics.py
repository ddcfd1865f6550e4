"""Measurements of a job's tasks over time: ``metrics-0001.jsonl``, …, one line a sample.

They are evidence, not truth: nothing is synchronised to disk, a line a crash tore is skipped.
Each coordinator of a job writes files of its own: the next one may not have its forerunner's at hand.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from howdah.core.messages import Task
from howdah.storage.files import open_regular
from howdah.wire.messages import Sample

SEGMENT_BYTES = 64 * 1024 * 1024
SEGMENTS_EACH = 1000
"""Numbers of files for each coordinator."""

_SEGMENT = re.compile(r"metrics-(\d{4,})\.jsonl")


class TaskSample(msgspec.Struct, frozen=True, kw_only=True):
    """A sample and whose it is: ``{"task":["worker",1],"attempt":2,"sample":{…}}``."""

    task: Task
    attempt: int
    sample: Sample


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(TaskSample)


def append(
    folder: Path,
    samples: Iterable[TaskSample],
    *,
    incarnation: int = 1,
    segment_bytes: int = SEGMENT_BYTES,
) -> None:
    """Add samples to the job directory ``folder``. Many at a time is cheapest; one writer only.

    ``incarnation``: the coordinator's that adds them.

    Raises:
        OSError: they can't be written.
    """
    lines = _encoder.encode_lines(samples)
    if not lines:
        return
    first = (incarnation - 1) * SEGMENTS_EACH + 1
    number = max([first, *map(_number, _segments(folder))])
    while True:
        path = folder / f"metrics-{number:04}.jsonl"
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(file).st_size
            if size and size + len(lines) > segment_bytes:
                number += 1
                continue
            if size and os.pread(file, 1, size - 1) != b"\n":
                lines = b"\n" + lines  # a writer died in the middle of a line
            view = memoryview(lines)
            while view:  # a write may take a part only
                view = view[os.write(file, view) :]
            return
        finally:
            os.close(file)


def read(
    folder: Path, task: Task | None = None, since: float = float("-inf")
) -> Iterator[TaskSample]:
    """Samples in the order they were added, of one task or all, taken later than ``since``."""
    for path in _segments(folder):
        with open_regular(path) as file:
            for line in file:
                try:
                    sample = _decoder.decode(line)
                except (ValueError, RecursionError):  # msgspec's own, or of a key that is no text
                    continue
                if task in (None, sample.task) and sample.sample.time > since:
                    yield sample


def _segments(folder: Path) -> list[Path]:
    return sorted((p for p in folder.iterdir() if _SEGMENT.fullmatch(p.name)), key=_number)


def _number(path: Path) -> int:
    match = _SEGMENT.fullmatch(path.name)
    return int(match[1]) if match else 0
