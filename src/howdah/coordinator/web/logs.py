"""Log bytes as text: pages, last lines, search, and following at a readable rate.

Offsets are the log's own: bytes ever written. Nothing here reads more than a bounded part of a log
in one request, however long the log is.
"""

from __future__ import annotations

import asyncio

from howdah.coordinator.clients.live_job import LiveJob, NoLog
from howdah.coordinator.web.documents import LogChange, LogMatch, LogMatches, LogPage
from howdah.core.messages import Task
from howdah.storage.logs import LogPart
from howdah.wire.messages import LogUpdate

PAGE = 64 * 1024
"""Bytes of a page unless asked otherwise."""
PAGE_MAX = 1024 * 1024
TAIL_MAX = 10_000
"""Lines."""
SCAN = 8 * 1024 * 1024
"""Bytes one search request looks at."""
MATCHES = 500
BURST = 256 * 1024
"""Bytes sent to a follower at once; what came before them since the last time is skipped."""


def whole_text(data: bytes) -> tuple[str, int]:
    """The text of bytes that may end inside a UTF-8 sequence, and how many bytes it took.

    Bytes that are no UTF-8 become replacement characters: a log may hold anything.
    """
    end = len(data)
    for back in range(1, min(4, end) + 1):
        byte = data[end - back]
        if byte & 0b1100_0000 == 0b1000_0000:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        if length > back:
            end -= back
        break
    return data[:end].decode("utf-8", "replace"), end


def newest(source: LiveJob, task: Task) -> int:
    """The newest attempt with a log.

    Raises:
        NoLog: there is none yet.
        UnknownTask: the job has no such task.
    """
    attempts = source.log_attempts(task)
    if not attempts:
        raise NoLog(f"{task} has not written a log yet: it has not been started")
    return attempts[-1]


async def page(source: LiveJob, task: Task, attempt: int, offset: int, limit: int) -> LogPage:
    """A part from ``offset``; a negative one counts from the end."""
    part = await source.read_log(task, attempt, offset, max(4, min(limit, PAGE_MAX)))
    text, used = whole_text(part.data)
    whole = used == len(part.data) or (used == 0 and len(part.data) < 4)
    # A sequence that is cut off at the log's very end stays for the next page.
    next_offset = part.next_offset if whole and used else part.offset + used
    return LogPage(
        task=str(task),
        attempt=attempt,
        attempts=source.log_attempts(task),
        offset=part.offset,
        next_offset=next_offset,
        text=text,
    )


async def tail(source: LiveJob, task: Task, attempt: int, lines: int) -> LogPage:
    """The last ``lines`` lines, as far as they fit into one page of the largest size."""
    lines = max(1, min(lines, TAIL_MAX))
    size = PAGE
    while True:
        parts = await _to_end(source, task, attempt, size)
        data = b"".join(part.data for part in parts)
        ends = data.count(b"\n") - data.endswith(b"\n")
        if ends >= lines or size >= PAGE_MAX or (parts and parts[0].offset == 0) or not data:
            break
        size = min(size * 4, PAGE_MAX)
    start = 0
    for _ in range(ends - lines + 1):
        start = data.index(b"\n", start) + 1
    if start == 0 and parts and parts[0].offset > 0:
        start = data.find(b"\n") + 1
    text, used = whole_text(data[start:])
    return LogPage(
        task=str(task),
        attempt=attempt,
        attempts=source.log_attempts(task),
        offset=_offset(parts, start),
        next_offset=_offset(parts, start + used),
        text=text,
    )


async def _to_end(source: LiveJob, task: Task, attempt: int, size: int) -> list[LogPart]:
    """Parts from ``size`` bytes before the end; several where the log's middle was dropped."""
    parts: list[LogPart] = []
    at, left = -size, size
    while left > 0:
        part = await source.read_log(task, attempt, at, left)
        if not part.data:
            break
        parts.append(part)
        at = part.next_offset
        left -= len(part.data)
    return parts


def _offset(parts: list[LogPart], position: int) -> int:
    """The log's offset of a place in the joined data of parts."""
    for part in parts:
        if position < len(part.data):
            return part.offset + position
        position -= len(part.data)
    return parts[-1].next_offset if parts else 0


async def search(source: LiveJob, task: Task, attempt: int, wanted: str, offset: int) -> LogMatches:
    """Lines that hold ``wanted`` (plain text, any case), from ``offset`` on."""
    needle = wanted.lower()
    matches: list[LogMatch] = []
    looked, rest, rest_at, end = 0, b"", offset, False
    while looked < SCAN and len(matches) < MATCHES:
        part = await source.read_log(task, attempt, offset, PAGE_MAX)
        if not part.data:
            end = True
            break
        if not rest:
            rest_at = part.offset
        looked += len(part.data)
        offset = part.next_offset
        lines = (rest + part.data).split(b"\n")
        rest = lines.pop()[-PAGE:]
        for line in lines:
            if len(matches) < MATCHES:
                _match(line, rest_at, needle, matches)
                rest_at += len(line) + 1
            else:
                offset, rest = rest_at, b""
                break
        else:
            rest_at = offset - len(rest)
        await asyncio.sleep(0)
    if end and rest:
        _match(rest, rest_at, needle, matches)
    return LogMatches(
        task=str(task),
        attempt=attempt,
        matches=matches,
        next_offset=offset if end else rest_at,
        end=end,
    )


def _match(line: bytes, offset: int, needle: str, matches: list[LogMatch]) -> None:
    text = line.decode("utf-8", "replace").rstrip("\r")
    if needle in text.lower():
        matches.append(LogMatch(offset=offset, line=text[:4096]))


class Gatherer:
    """What a followed log grew by since the last `take`, bounded: of a burst the end is kept."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._done: list[LogChange] = []
        self._held = bytearray()
        self._attempt = 0
        self._offset = 0
        self._skipped = 0

    def add(self, update: LogUpdate) -> None:
        continues = (update.attempt, update.offset) == (
            self._attempt,
            self._offset + len(self._held),
        )
        if not continues:
            if self._held:
                self._done.append(self._change(final=True))
            self._held.clear()
            self._attempt, self._offset = update.attempt, update.offset
        self._held += update.data
        surplus = len(self._held) - BURST
        if surplus > 0:
            # The first line after the gap is whole, if there is a line end at all.
            surplus = self._held.find(b"\n", surplus) + 1 or surplus
            self._skipped += surplus
            self._offset += surplus
            del self._held[:surplus]
        del self._done[:-8]

    def take(self, *, final: bool = False) -> list[LogChange]:
        """What was gathered; the bytes of an unfinished character stay unless it is ``final``."""
        found, self._done = self._done, []
        if self._held:
            change = self._change(final=final)
            used = change.next_offset - change.offset
            if used:
                found.append(change)
                del self._held[:used]
                self._offset += used
        return found

    def _change(self, *, final: bool) -> LogChange:
        text, used = whole_text(bytes(self._held))
        if final:
            text, used = self._held.decode("utf-8", "replace"), len(self._held)
        skipped, self._skipped = self._skipped, 0
        return LogChange(
            task=str(self._task),
            attempt=self._attempt,
            offset=self._offset,
            next_offset=self._offset + used,
            text=text,
            skipped=skipped,
        )
