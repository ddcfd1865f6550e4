"""A job in your hands, for asyncio programs.

`howdah.client.sync.JobHandle` has the same for all others, and says of each method what it does and raises.
"""

from __future__ import annotations

import asyncio
import inspect
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from howdah.backends.base import BackendError, PerhapsSubmitted, Running, Submission
from howdah.client.errors import (
    Abandoned,
    BadInput,
    ExitCode,
    HowdahError,
    JobFailed,
    NotSaved,
    Refused,
    Unreachable,
    exit_code_of,
    not_saved,
)
from howdah.client.following import offline_job
from howdah.client.following.items import JobEvent, LogLine, job_event, log_line
from howdah.client.following.log_lines import FollowerPosition, LogBlock, LogId, TimedLines
from howdah.client.following.remote import Remote, Update
from howdah.client.history import NO_RECORDS, History
from howdah.client.measurements import Measurement, measurements
from howdah.client.outputs import Output, fetch, outputs
from howdah.client.submission.begin import begin
from howdah.core.messages import Task
from howdah.core.state import Outcome
from howdah.spec.units import instance_range
from howdah.storage import legacy_names
from howdah.storage.jobdir import JobDirectory, StorageError
from howdah.wire.messages import (
    Answer,
    AskStacks,
    AskStatus,
    AskStop,
    LogUpdate,
    RecordUpdate,
    StacksReply,
    StatusUpdate,
)
from howdah.wire.status import JobView


class Callbacks(msgspec.Struct, frozen=True, kw_only=True):
    """What is called as a job goes on: plain functions, or coroutine functions on asyncio."""

    on_event: Callable[[JobEvent], Any] | None = None
    on_state: Callable[[JobView], Any] | None = None
    """The phase, the outcome, or the state of a task has changed."""
    on_log: Callable[[LogLine], Any] | None = None

    def __bool__(self) -> bool:
        return any((self.on_event, self.on_state, self.on_log))


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)


async def submitted(
    submit: Callable[[Submission], JobDirectory],
    backend: str | None,
    take_back: Callable[[AsyncJobHandle], Awaitable[object]],
) -> AsyncJobHandle:
    """The job that ``submit`` submits, which runs in a thread.

    Cancelled, it asks the submission to end. A job that has been submitted all the same is
    ``take_back``'s to stop.
    """
    begun: list[Submission] = []

    def work() -> AsyncJobHandle:
        begun.append(begin(backend))
        return AsyncJobHandle(submit(begun[0]))

    async def end() -> None:
        try:
            handle = await submitting
        except PerhapsSubmitted as error:
            _warn(str(error))
            return
        except Exception:
            return  # why it was not submitted, nobody asks any more
        await take_back(handle)

    submitting = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(submitting)
    except asyncio.CancelledError:
        for submission in begun:
            submission.cancel()
        await asyncio.shield(end())
        raise


async def stop_or_say(handle: AsyncJobHandle, why: str) -> None:
    """Stop a job whose program ends. That it goes on, where it can't be stopped, is a `RuntimeWarning`."""
    try:
        await handle.stop(why)
    except (HowdahError, BackendError, StorageError, OSError) as error:
        _warn(
            f"{handle.job_id} goes on, as it could not be stopped: {error}. "
            f"howdah stop {handle.job_id} stops it"
        )


class AsyncJobHandle:
    """A submitted job: running, or long since over.

    Handles are cheap, hold nothing open, and any number may look at the same job from any number
    of programs. The job does not depend on them.

    As an asynchronous context manager: leaving the block normally waits for the job's end; leaving
    it by an exception stops the job.
    """

    def __init__(self, directory: JobDirectory, callbacks: Callbacks | None = None) -> None:
        self._directory = directory
        self._remote = Remote(directory)
        self._history = History(self._remote)
        self._callbacks = callbacks or Callbacks()
        self._calling: asyncio.Task[JobView] | None = None

    @property
    def job_id(self) -> str:
        return self._directory.job_id

    @property
    def directory(self) -> Path:
        """The job directory."""
        return self._directory.path

    @property
    def job_directory(self) -> JobDirectory:
        """The same, to be read."""
        return self._directory

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.job_id!r})"

    async def __aenter__(self) -> AsyncJobHandle:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            await self.stop(f"{type(error).__name__} in the program that submitted it")
        await self.wait()

    # -- looking ---------------------------------------------------------------------------------

    async def status(self) -> JobView:
        """The job's status document now.

        Raises:
            Unreachable: the coordinator does not answer.
        """
        if await self._remote.final() is None:
            state = await self._remote.running()
            if state is not Running.YES:
                return await self._unattended(state)
            reply = await self._remote.ask(AskStatus(), StatusUpdate)
            if reply is not None:
                return legacy_names.view(reply.status)
        return offline_job.view(self._directory)

    async def _unattended(self, state: Running) -> JobView:
        """The status document of a job whose coordinator has not begun, or has gone for good."""
        site = self._remote.site
        if site.at_hand:
            view = offline_job.view(self._directory)
        else:
            if state is Running.NO:
                await asyncio.to_thread(site.bring_story)
            view = offline_job.view(self._directory)
            if state is Running.NOT_YET:
                why = await asyncio.to_thread(site.waiting)
                view = msgspec.structs.replace(view, reason=why)
        if state is not Running.NO:
            return view
        left = await asyncio.to_thread(site.left_running)
        lost = await asyncio.to_thread(site.lost)
        return msgspec.structs.replace(
            view,
            lost=True,
            reason=lost.what,
            advice=lost.remedy,
            tasks=view.tasks if left else offline_job.ended(view.tasks),
        )

    def ended(self) -> JobView | None:
        """The final status document; None while the job has not ended.

        May wait for a network where the job runs elsewhere.
        """
        return self._directory.final() or self._remote.site.final()

    async def wait(self, timeout_s: float | None = None, *, check: bool = False) -> JobView:
        """As `howdah.JobHandle.wait`."""
        try:
            async with asyncio.timeout(timeout_s) as limit:
                view = await (self._called() if self._callbacks else self._end())
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TimeoutError(
                f"{self.job_id} has not ended within {timeout_s:g} s; it goes on: wait again, or "
                "stop it"
            ) from error
        if check:
            raise_unless_succeeded(view)
        return view

    async def events(self, *, after: int = 0, follow: bool = True) -> AsyncIterator[JobEvent]:
        """The job's event log after record ``after``; with ``follow`` until the job has ended."""
        if not follow:
            for update in await self._history.records(after):
                yield job_event(update)
            return
        async for update in self.follow(FollowerPosition(after), logs=False):
            if isinstance(update, RecordUpdate):
                yield job_event(update)

    async def logs(
        self,
        *tasks: str,
        attempt: int | None = None,
        follow: bool = True,
        tail: int | None = None,
        since: float | None = None,
    ) -> AsyncIterator[LogLine]:
        """As `howdah.JobHandle.logs`."""
        async for block in self.log_blocks(
            *tasks, attempt=attempt, follow=follow, tail=tail, since=since
        ):
            for offset, line in block.lines:
                yield log_line(block.stream, offset, line, block.time)

    async def log_blocks(
        self,
        *names: str,
        attempt: int | None = None,
        follow: bool = True,
        tail: int | None = None,
        since: float | None = None,
        note: Callable[[str], None] = _warn,
    ) -> AsyncIterator[LogBlock]:
        """As `logs`, in blocks of lines. ``note`` is told what is left out."""
        tasks = self.tasks(*names)
        over = not follow or await self._remote.final() is not None
        position = FollowerPosition(NO_RECORDS)
        if tail is not None:
            position.offsets |= await self._history.tails(tasks, tail, following=not over)
        if over and attempt is not None:
            await self._check_attempt(names, tasks, attempt)
        before = [at for log, at in position.offsets.items() if attempt in (None, log.attempt)]
        logged, noted = False, False

        def tell(text: str) -> None:
            nonlocal noted
            noted = True
            note(text)

        async for block in self._all_blocks(tasks, attempt, position, over, since, tell):
            logged = True
            if since is None or block.time is None or block.time >= since:
                yield block
        if over and not logged:
            await self._raise_if_lost()
            if any(before) and not noted:
                note("The last lines did not come in time: ask for them once more")

    async def _all_blocks(
        self,
        tasks: tuple[Task, ...],
        attempt: int | None,
        position: FollowerPosition,
        over: bool,
        since: float | None,
        note: Callable[[str], None],
    ) -> AsyncIterator[LogBlock]:
        """What there is and, unless that is ``over``, what comes."""
        cut = TimedLines()
        try:
            async for block in self._history.log_blocks(
                tasks, attempt, position, cut, since=since, note=note if over else None
            ):
                yield block
        except (BackendError, Unreachable):
            if over:
                raise
            # What cannot be brought from where it is kept, the coordinator may still send, or its
            # successor: following waits for it.
        if over:
            return
        async for update in self.follow(position, tasks=tasks):
            if isinstance(update, LogUpdate) and attempt in (None, update.attempt):
                stream = LogId(update.task, update.attempt)
                for block in cut.feed(stream, update.offset, update.data, update.times):
                    yield block
        for block in cut.finish_all():
            yield block

    async def _raise_if_lost(self) -> None:
        """A job without logs because it was lost is no job that has printed nothing."""
        if await self._remote.final() is None and await self._remote.running() is Running.NO:
            raise Abandoned(str(self._remote.site.lost()))

    async def _check_attempt(
        self, names: tuple[str, ...], tasks: tuple[Task, ...], attempt: int
    ) -> None:
        streams = await self._history.streams(tasks)
        if all(stream.attempt != attempt for stream in streams):
            known = ", ".join(map(str, sorted({each.attempt for each in streams}))) or "none"
            raise BadInput(
                f"{', '.join(names) or self.job_id} has no log of attempt {attempt}; there is: {known}"
            )

    def follow(
        self, position: FollowerPosition, *, logs: bool = True, tasks: tuple[Task, ...] = ()
    ) -> AsyncIterator[Update]:
        """Records, log bytes and status documents together: see `howdah.client.following.remote`."""
        return self._remote.follow(position, logs=logs, tasks=tasks)

    async def position(self, tail: int | None) -> FollowerPosition:
        """Where to begin to follow: at the beginning, or with only the last ``tail`` lines of each
        log and no earlier records."""
        position = FollowerPosition()
        if tail is not None:
            for update in await self._history.records(0):
                position.seq = update.seq
            position.offsets |= await self._history.tails((), tail, following=True)
        return position

    def task(self, name: str) -> Task:
        """The job's task of that name.

        Raises:
            BadInput: there is none; the text says which there are.
        """
        for task in self.all_tasks():
            if str(task) == name:
                return task
        raise self._no_such_task(name)

    def tasks(self, *names: str) -> tuple[Task, ...]:
        """The tasks of these names: ``worker:1``, or ``worker`` for all of a role.

        Raises:
            BadInput: there is none of that name; the text says which there are.
        """
        found: dict[Task, None] = {}
        for name in names:
            meant = [task for task in self.all_tasks() if name in (str(task), task.role)]
            if not meant:
                raise self._no_such_task(name)
            found |= dict.fromkeys(meant)
        return tuple(found)

    def all_tasks(self) -> list[Task]:
        """Those the job file names, in its order; of an elastic role as many as it may grow to."""
        roles = self._directory.job().roles.items()
        return [Task(role, i) for role, r in roles for i in range(instance_range(r.instances)[1])]

    def _no_such_task(self, name: str) -> BadInput:
        tasks = self.all_tasks()
        known = ", ".join(str(task) for task in tasks[:8])
        known += f" and {len(tasks) - 8} more" if len(tasks) > 8 else ""
        return BadInput(f"{self.job_id} has no task {name!r}; it has {known}")

    def page(self, to: str = "") -> str | None:
        """As `howdah.JobHandle.page`."""
        from howdah.client.following.tunnel import page_base
        from howdah.wire.messages import SHORT_TICKET_PROTOCOL
        from howdah.wire.tickets import login_link

        address = self._remote.address
        if address is None or not address.http_port:
            return None
        begins = page_base(self.job_id, address.host, address.http_port)
        short = self._remote.protocol >= SHORT_TICKET_PROTOCOL
        return login_link(begins, self._directory.token(), self.clock(), to, short=short)

    def clock(self) -> float:
        """The job's clock, as far as its coordinator has been asked anything: seconds since the epoch."""
        return time.time() + self._remote.ahead_s

    # -- acting ----------------------------------------------------------------------------------

    async def stop(self, reason: str = "", *, firm: bool = False, by: str = "") -> None:
        """As `howdah.JobHandle.stop`."""
        site = self._remote.site
        why = f"stopped by {by}" + (f": {reason}" if reason else "") if by else reason
        if await self._remote.not_begun():
            # No coordinator can be asked yet, and the job may wait in its queue for days.
            if await self._remote.final() is None:
                await asyncio.to_thread(site.end, why)
            return
        try:
            answer = await self._remote.ask(AskStop(firm=firm, reason=reason, by=by), Answer)
        except Unreachable:
            if site.at_hand or not firm:
                raise
            await asyncio.to_thread(site.end, why)
            return
        if answer is not None and answer.problem:
            raise Refused(f"{self.job_id} was not stopped: {answer.problem}")

    async def stacks(self, task: str) -> str:
        """As `howdah.JobHandle.stacks`."""
        reply = await self._remote.ask(AskStacks(task=self.task(task)), StacksReply)
        if reply is None:
            raise BadInput(f"{self.job_id} has ended: {task} has no stacks to show")
        if reply.problem:
            raise Refused(f"the stacks of {task} could not be taken: {reply.problem}")
        return reply.text

    async def metrics(self, *tasks: str, since: float | None = None) -> list[Measurement]:
        """As `howdah.JobHandle.metrics`."""
        floor = float("-inf") if since is None else since
        wanted = self.tasks(*tasks)
        return await asyncio.to_thread(lambda: list(measurements(self._directory, wanted, floor)))

    async def outputs(self, *tasks: str) -> list[Output]:
        """As `howdah.JobHandle.outputs`."""
        return await asyncio.to_thread(outputs, self._directory, self.tasks(*tasks))

    async def fetch(self, output: Output, to: str | Path = ".") -> Path:
        """As `howdah.JobHandle.fetch`."""
        return await asyncio.to_thread(fetch, output, Path(to))

    # -- callbacks -------------------------------------------------------------------------------

    def start_calling(self) -> None:
        """Begin to call the callbacks, with everything from the job's beginning on."""
        if self._callbacks and self._calling is None:
            self._calling = asyncio.create_task(self._call())

    async def _called(self) -> JobView:
        self.start_calling()
        assert self._calling is not None
        return await asyncio.shield(self._calling)

    async def _call(self) -> JobView:
        lines = TimedLines()
        shape: object = None
        wants = self._callbacks
        position = FollowerPosition(0 if wants.on_event else NO_RECORDS)
        async for update in self.follow(position, logs=wants.on_log is not None):
            if isinstance(update, LogUpdate):
                stream = LogId(update.task, update.attempt)
                for block in lines.feed(stream, update.offset, update.data, update.times):
                    await self._tell_lines(block)
            elif isinstance(update, RecordUpdate):
                await self._tell(wants.on_event, job_event(update))
            elif isinstance(update, JobView):
                if update.outcome is not None:
                    for block in lines.finish_all():
                        await self._tell_lines(block)
                if state_shape(update) != shape:
                    shape = state_shape(update)
                    await self._tell(wants.on_state, update)
        return offline_job.view(self._directory)

    async def _tell_lines(self, block: LogBlock) -> None:
        for line in block.lines:
            await self._tell(self._callbacks.on_log, log_line(block.stream, *line, time=block.time))

    async def _tell(self, callback: Callable[[Any], Any] | None, item: object) -> None:
        if callback is not None:
            result = callback(item)
            if inspect.isawaitable(result):
                await result

    async def _end(self) -> JobView:
        async for _ in self.follow(FollowerPosition(NO_RECORDS), logs=False):
            pass
        return offline_job.view(self._directory)


def state_shape(view: JobView) -> object:
    """What of a status document is a state, not a measurement: equal while nothing happened."""
    tasks = [(task.state, task.attempt, task.joined) for task in view.tasks]
    return view.phase, view.outcome, view.generation, tasks


def raise_unless_succeeded(view: JobView) -> None:
    """Turn a job's failure into an exception.

    Raises:
        JobFailed: its outcome is anything but success.
        NotSaved: it succeeded, and not all it made could be saved.
    """
    if view.outcome is None or exit_code_of(view) is ExitCode.SUCCEEDED:
        return
    if view.outcome == Outcome.SUCCEEDED.value:
        raise NotSaved(not_saved(view), view)
    text = f"{view.job_id} {view.outcome}: {view.reason}"
    tail = view.failures[-1].tail if view.failures else ()
    lines = "".join(f"\n    {line}" for line in tail)
    raise JobFailed(text + (f"\n{view.advice}" if view.advice else "") + lines, view)
