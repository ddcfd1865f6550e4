"""What a job has told so far, wherever that is: in its directory, or with its coordinator and agents.

Of a job that runs elsewhere the newest journal is its coordinator's, the newest log bytes are its
agents'; both come only by following. So it is followed until every log is as long as the status
document said.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from howdah.backends.base import BackendError, Running
from howdah.client.errors import Unreachable
from howdah.client.following import offline_job
from howdah.client.following.log_lines import FollowerPosition, Lines, LogBlock, LogId, TimedLines
from howdah.client.following.remote import ANSWER_S, Remote
from howdah.coordinator.remote_directory import SpillFiles
from howdah.core.messages import Task
from howdah.storage import legacy_names, logs
from howdah.wire.messages import AskStatus, LogUpdate, RecordUpdate, StatusUpdate
from howdah.wire.status import JobView

NO_RECORDS = 2**62
"""A record number no job reaches: for followers that want no records."""
QUIET_S = 1.5
"""Logs that have not come as far as they were said to within this, after the last news from a coordinator
that was reached, will not."""
SOON_S = 5.0
"""For a coordinator's answer where there is something to show without it."""
MERGED_BYTES = 64 * 1024 * 1024
"""Read at a time of all logs that are merged."""
WINDOW = 256 * 1024
"""Bytes of a log's end that are looked at first for its last lines, where it is elsewhere."""
LONG_LINE = 1024
"""Bytes that few lines have."""
WIDER = 4
"""So many times as many are looked at next, where these are too few lines."""
MOST = 8
"""Logs that are named in a message."""


class _Live(NamedTuple):
    """What the coordinator tells of logs, or the end of the job."""

    sizes: dict[LogId, int]
    """How long each log is that an agent writes elsewhere, as it told last."""
    earlier: set[LogId]
    """Those of attempts that have ended, which are kept."""
    problem: Unreachable | None = None
    """Why the coordinator has told nothing."""


class History:
    """One job's past up to now."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._directory = remote.directory
        self._silent: set[LogId] = set()
        """Logs whose newest bytes were asked for, for what is being read, and did not come."""
        self._unanswered: Unreachable | None = None
        self._unanswered_at = 0.0

    async def records(self, after: int) -> list[RecordUpdate]:
        """The event log after that record."""
        site = self._remote.site
        if not site.at_hand and await self._remote.final() is None:
            if await self._remote.running() is Running.YES:
                return await self._remote.records_so_far(after)
            await asyncio.to_thread(site.bring_story)
        return await asyncio.to_thread(lambda: list(offline_job.records(self._directory, after)))

    async def streams(self, tasks: tuple[Task, ...]) -> list[LogId]:
        """Logs there are, of these tasks or of all."""
        live = await self._live(tasks)
        lacking = live.earlier if await self._bring_logs(tasks, live.sizes) else ()
        kept = await asyncio.to_thread(offline_job.streams, self._directory, tasks)
        return sorted({*kept, *live.sizes, *lacking})

    async def tails(
        self, tasks: tuple[Task, ...], count: int, *, following: bool
    ) -> dict[LogId, int]:
        """Where the last ``count`` lines of each log begin (of at most some 4 MiB). Who is ``following``
        gets more of one that did not come in time."""
        self._silent.clear()
        # Without an answer, who follows would be shown all of what is being written.
        live = (await self._live(tasks, patient=following)).sizes
        await self._bring_logs(tasks, live)

        def look() -> dict[LogId, int]:
            found = [
                each for each in offline_job.streams(self._directory, tasks) if each not in live
            ]
            return {each: offline_job.tail_offset(self._directory, each, count) for each in found}

        kept = await asyncio.to_thread(look)
        found = kept | (await self._live_tails(live, count, following) if count > 0 else live)
        if following:  # nobody tells of them
            self._silent.clear()
        return found

    async def log_blocks(
        self,
        tasks: tuple[Task, ...],
        attempt: int | None,
        position: FollowerPosition,
        cut: TimedLines,
        *,
        since: float | None,
        note: Callable[[str], None] | None,
    ) -> AsyncIterator[LogBlock]:
        """What these tasks (none: all) have written from ``position`` on, merged by time.

        What was written before ``since`` may come as well: it is only what need not be read.

        ``position`` goes on with them, and lines without an end stay in ``cut`` for what follows. With
        ``note`` nothing follows: it is told which logs are left out because the place where they are kept
        does not answer, or that the coordinator does not.

        Raises:
            BackendError: it does not, and no other log is wanted.
            Unreachable: the coordinator does not, and no log is kept.
        """
        silent, self._silent = self._silent, set()  # since `tails`
        live, earlier, unanswered = await self._live(tasks)
        problem = await self._bring_logs(tasks, live)
        finish = note is not None
        with tempfile.TemporaryDirectory(prefix="howdah-logs-") as folder:
            # What is being written elsewhere comes in no order: it is merged once it is here.
            spill = SpillFiles(Path(folder))
            begun = dict(position.offsets)
            async for update in self._live_bytes(live, position.offsets):
                spill.add(update.task, update.attempt, update.offset, update.data, update.times)
            silent, self._silent = silent | self._silent, set()
            paths = {
                stream: spill.path(stream.task, stream.attempt)
                if stream in live
                else self._directory.log_path(stream.task, stream.attempt)
                for stream in sorted({*offline_job.streams(self._directory, tasks), *live})
                if attempt in (None, stream.attempt)
            }
            if since is not None:
                for stream, path in paths.items():
                    begins = logs.LogTimes(path).offset_at(since)
                    position.offsets[stream] = max(begins, position.offsets.get(stream, 0))
            chunk = max(MERGED_BYTES // max(len(paths), 1), 4096)
            parts = [
                _blocks(path, stream, position, cut, min(chunk, offline_job.CHUNK), finish)
                for stream, path in paths.items()
            ]
            shown = {
                each for each in paths if each not in live or spill.size(each.task, each.attempt)
            }
            unread = earlier | {each for each in live if begun.get(each, 0) < live[each]}
            lacking = {each for each in unread - shown if attempt in (None, each.attempt)}
            if problem is not None and lacking and not shown:
                raise problem
            if unanswered is not None and not shown:
                raise unanswered
            for block in heapq.merge(*parts, key=lambda block: block.time or 0.0):
                yield block
        if problem is not None and note is not None and (lacking or not (live or earlier)):
            note(f"{problem}. Left out: {_in_words(lacking) or 'what is not here yet'}")
        if unanswered is not None and note is not None:
            note(f"only what is stored is shown: {unanswered}")
        silent = {each for each in silent if attempt in (None, each.attempt)}
        if silent and note is not None:
            note(
                "not all that was written has come from where the task runs; try again. "
                f"Left out, at least in part: {_in_words(silent)}"
            )

    # -- what is elsewhere -----------------------------------------------------------------------

    async def _bring_logs(
        self, tasks: tuple[Task, ...], live: Collection[LogId]
    ) -> BackendError | None:
        """Why the logs that are kept elsewhere could not be brought, if they could not.

        Raises:
            BackendError: they could not, no agent has any, and none is here.
        """
        if self._remote.site.at_hand:
            return None
        try:
            await asyncio.to_thread(self._remote.site.bring_logs, tasks)
        except BackendError as error:
            if not live and not offline_job.streams(self._directory, tasks):
                raise
            return error
        return None

    async def _live(self, tasks: tuple[Task, ...], *, patient: bool = False) -> _Live:
        """What the coordinator tells of these tasks' logs; nothing where none is elsewhere.

        Raises:
            Unreachable: it does not within `ANSWER_S`, and ``patient`` is set: only its answer will do.
        """
        nothing = _Live({}, set())
        if self._remote.site.at_hand:
            return nothing
        wanted = {str(task) for task in tasks}
        final = await self._remote.final()
        if final is not None:
            told = [each for each in final.tasks if not wanted or each.task in wanted]
            begun = {
                LogId(Task(each.role, each.index), n)
                for each in told
                for n in range(1, each.attempt + 1)
            }
            return _Live({}, begun)
        if await self._remote.running() is not Running.YES:
            return nothing
        if self._unanswered and not patient and time.monotonic() < self._unanswered_at + SOON_S:
            return _Live({}, set(), self._unanswered)  # one look asks several times
        try:
            reply = await self._remote.ask(
                AskStatus(), StatusUpdate, within_s=ANSWER_S if patient else SOON_S
            )
        except Unreachable as error:
            if patient:
                raise
            self._unanswered, self._unanswered_at = error, time.monotonic()
            return _Live({}, set(), error)
        if reply is None:
            return nothing
        told = [
            (Task(each.role, each.index), each)
            for each in legacy_names.view(reply.status).tasks
            if not wanted or each.task in wanted
        ]
        return _Live(
            {LogId(task, each.attempt): each.log_size for task, each in told if each.log_size},
            {LogId(task, n) for task, each in told for n in range(1, each.attempt)},
        )

    async def _live_bytes(
        self, sizes: dict[LogId, int], offsets: dict[LogId, int]
    ) -> AsyncIterator[LogUpdate]:
        missing = {stream for stream, size in sizes.items() if offsets.get(stream, 0) < size}
        position = FollowerPosition(NO_RECORDS)
        position.offsets |= offsets
        updates = self._remote.follow(position, tasks=[stream.task for stream in missing])
        clock = asyncio.get_running_loop().time
        left_s = ANSWER_S  # until the coordinator is reached
        met = False
        while missing:
            began = clock()  # what the reader takes for a line is its own affair
            try:
                async with asyncio.timeout(left_s):
                    update = await anext(updates)
            except (TimeoutError, StopAsyncIteration):
                break
            left_s -= clock() - began
            if not met and isinstance(update, (JobView, LogUpdate)):
                met, left_s = True, QUIET_S
            if isinstance(update, LogUpdate):
                stream = LogId(update.task, update.attempt)
                # News of others does not count: what was lost with its agent would be waited for as long
                # as the job runs.
                if stream in missing:
                    left_s = QUIET_S
                if update.offset + len(update.data) >= sizes.get(stream, 0):
                    missing.discard(stream)
                if stream in sizes:  # earlier attempts are in the directory
                    yield update
        self._silent |= missing

    async def _live_tails(
        self, sizes: dict[LogId, int], count: int, following: bool
    ) -> dict[LogId, int]:
        found: dict[LogId, int] = {}
        window, left = WINDOW, dict(sizes)
        while left:
            begins = {stream: max(size - window, 0) for stream, size in left.items()}
            starts = await self._line_starts(left, begins, count)
            for stream, begin in begins.items():
                own = starts[stream]
                if own:
                    found[stream] = min(own[0], found.get(stream, own[0]))
                silent = stream in self._silent
                whole = begin == 0 or window >= offline_job.TAIL_BYTES
                if silent or whole or len(own) >= count:
                    place = left.pop(stream)
                    # Rather too many lines than none: nobody is told here what is left out.
                    if silent and following:
                        place = max(place - count * LONG_LINE, begin)
                    found.setdefault(stream, place)
            window *= WIDER
        return found

    async def _line_starts(
        self, sizes: dict[LogId, int], begins: dict[LogId, int], count: int
    ) -> dict[LogId, deque[int]]:
        """Where the last lines of each log begin, at most ``count``; what one begins within is left out."""
        found = {stream: deque[int](maxlen=count) for stream in sizes}

        def add(stream: LogId, offset: int) -> None:
            if offset == 0 or offset != begins[stream]:
                found[stream].append(offset)

        lines = Lines()
        async for update in self._live_bytes(sizes, begins):
            stream = LogId(update.task, update.attempt)
            for offset, _ in lines.feed(stream, update.offset, update.data):
                add(stream, offset)
        for stream, offset, _ in lines.finish_all():
            add(stream, offset)
        return found


def _in_words(streams: Collection[LogId]) -> str:
    texts = [f"{each.task} attempt {each.attempt}" for each in sorted(streams)]
    more = f" and {len(texts) - MOST} more" if len(texts) > MOST else ""
    return f"{', '.join(texts[:MOST])}{more}"


def _blocks(
    path: Path, stream: LogId, position: FollowerPosition, cut: TimedLines, chunk: int, finish: bool
) -> Iterator[LogBlock]:
    """One log's part of what is merged."""
    with contextlib.suppress(FileNotFoundError):  # nothing of it has come
        for part in offline_job.log_file(
            path, stream, position.offsets.get(stream, 0), chunk=chunk
        ):
            position.new_bytes(stream, part.offset, part.data)
            yield from cut.feed(stream, part.offset, part.data, part.times)
    if finish:
        yield from cut.finish(stream)
