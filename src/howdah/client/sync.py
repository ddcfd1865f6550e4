"""The same job handle for programs without asyncio, and the event loop in a thread that it has its work done in."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from howdah.client.following.items import JobEvent, LogLine
from howdah.client.handle import AsyncJobHandle, Callbacks
from howdah.client.measurements import Measurement
from howdah.client.outputs import Output
from howdah.storage.jobdir import JobDirectory
from howdah.wire.status import JobView

T = TypeVar("T")


class Background:
    """The process's one background loop, started when it is first needed.

    A child made by `os.fork` gets its own.
    """

    _lock = threading.Lock()
    _loop: asyncio.AbstractEventLoop | None = None
    _pid = 0

    @classmethod
    def call(cls, work: Coroutine[Any, Any, T]) -> T:
        """Run it there and wait for its result. Ctrl-C cancels it."""
        future = cls.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @classmethod
    def start(cls, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it there, now."""
        return asyncio.run_coroutine_threadsafe(work, cls.loop())

    @classmethod
    def iterate(cls, items: AsyncIterator[T]) -> Iterator[T]:
        """The items of an asynchronous iterator, each fetched when it is wanted."""

        async def following() -> list[T]:
            async for item in items:
                return [item]
            return []

        try:
            while got := cls.call(following()):
                yield got[0]
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                cls.call(close())

    @classmethod
    def loop(cls) -> asyncio.AbstractEventLoop:
        """The loop; it runs in a daemon thread."""
        with cls._lock:
            if cls._loop is None or cls._pid != os.getpid():
                cls._loop = asyncio.new_event_loop()
                cls._pid = os.getpid()
                threading.Thread(
                    target=cls._loop.run_forever, name="howdah-client", daemon=True
                ).start()
            return cls._loop


class JobHandle:
    """A submitted job: running, or long since over.

    Handles are cheap, hold nothing open, and any number may look at the same job from any number
    of programs. The job does not depend on them. May be used from any thread. Callbacks are called
    one after the other in a thread of their own; what one raises, `wait` raises.

    As a context manager: leaving the block normally waits for the job's end; leaving it by an
    exception (Ctrl-C too) stops the job.
    """

    def __init__(self, directory: JobDirectory, callbacks: Callbacks | None = None) -> None:
        self._callbacks = callbacks or Callbacks()
        self._handle = AsyncJobHandle(directory, _in_a_thread(self._callbacks))
        if self._callbacks:
            Background.call(self._start_calling())

    async def _start_calling(self) -> None:
        self._handle.start_calling()

    @property
    def job_id(self) -> str:
        return self._handle.job_id

    @property
    def directory(self) -> Path:
        """The job directory."""
        return self._handle.directory

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.job_id!r})"

    def __enter__(self) -> JobHandle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.stop(f"{type(error).__name__} in the program that submitted it")
        self.wait()

    def status(self) -> JobView:
        """The job's status document now.

        Raises:
            Unreachable: the coordinator does not answer.
        """
        return Background.call(self._handle.status())

    def ended(self) -> JobView | None:
        """The final status document; None while the job has not ended."""
        return self._handle.ended()

    def wait(self, timeout_s: float | None = None, *, check: bool = False) -> JobView:
        """Wait for the job's end, and for all callbacks to have been called.

        Raises:
            TimeoutError: it has not ended within ``timeout_s``; the job goes on.
            JobFailed: it did not succeed, and ``check`` is set; `NotSaved` where only a checkpoint or
                an output is missing.
            Unreachable: the job has no coordinator any more.
        """
        return Background.call(self._handle.wait(timeout_s, check=check))

    def events(self, *, after: int = 0, follow: bool = True) -> Iterator[JobEvent]:
        """The job's event log after record ``after``; with ``follow`` until the job has ended."""
        return Background.iterate(self._handle.events(after=after, follow=follow))

    def logs(
        self,
        *tasks: str,
        attempt: int | None = None,
        follow: bool = True,
        tail: int | None = None,
        since: float | None = None,
    ) -> Iterator[LogLine]:
        """What tasks print, whole lines, with ``follow`` until the job has ended.

        Lines of one attempt come in order, each once. Those that are already there come in the order
        of their times; what is printed from now on as it comes. Not guaranteed: the order between
        tasks within a tenth of a second, or while the clock of a host is being set.

        Args:
            tasks: ``worker:1``, or ``worker`` for all tasks of that role; all tasks without them.
            attempt: that attempt alone; without it, all of them.
            follow: go on with what is printed from now on.
            tail: begin with the last so many lines of each log, not with the first.
            since: leave out what was written before, in seconds since the epoch.

        Where earlier attempts' logs cannot be read and running ones can, the others are left out with a
        `RuntimeWarning`.

        Raises:
            BadInput: the job has no such task or attempt.
        """
        return Background.iterate(
            self._handle.logs(*tasks, attempt=attempt, follow=follow, tail=tail, since=since)
        )

    def page(self, to: str = "") -> str | None:
        """A one-time address of the job page, good for ten minutes; None until it is served,
        and once the job has ended: ``howdah page`` and ``howdah ui`` serve it then.

        With ``to``, the ``href`` of one of the status document's links, it goes on to that page.
        """
        return self._handle.page(to)

    def stop(self, reason: str = "", *, firm: bool = False, by: str = "") -> None:
        """Have the job stopped; returns once that is certain to happen.

        Tasks get SIGTERM and their grace, with ``firm`` none. A job that has ended stays as it is.
        ``by``: who wants it, where that is not the user of this process.

        On a cluster a job whose coordinator has not begun is ended by the cluster, and with ``firm``
        also one whose coordinator does not answer.

        Raises:
            Refused: the coordinator will not.
            Unreachable: it does not answer.
            BackendError: the cluster does not end it.
        """
        Background.call(self._handle.stop(reason, firm=firm, by=by))

    def stacks(self, task: str) -> str:
        """Stacks of the Python threads of a running task.

        Raises:
            BadInput: the job has no such task, or has ended.
            Refused: they could not be taken.
        """
        return Background.call(self._handle.stacks(task))

    def metrics(self, *tasks: str, since: float | None = None) -> list[Measurement]:
        """What was measured of tasks and what they reported, in the order it came.

        A running job's measurements come some seconds late.

        Args:
            tasks: ``worker:1``, or ``worker`` for all tasks of that role; all tasks without them.
            since: only what was measured later, in seconds since the epoch.

        Raises:
            BadInput: the job has no such task.
            BackendError: the cluster that keeps them does not answer.
        """
        return Background.call(self._handle.metrics(*tasks, since=since))

    def outputs(self, *tasks: str) -> list[Output]:
        """Files that were kept of the job so far, by name.

        Args:
            tasks: as of `metrics`.

        Raises:
            BadInput: the job has no such task.
            NoOutputs: the place where they are does not answer.
        """
        return Background.call(self._handle.outputs(*tasks))

    def fetch(self, output: Output, to: str | Path = ".") -> Path:
        """Copy a file of `outputs` into that folder, or to that path; where it is then.

        Raises:
            BadInput: there is something of that name already, or no such folder.
            NoOutputs: it cannot be read.
        """
        return Background.call(self._handle.fetch(output, to))


def _in_a_thread(callbacks: Callbacks) -> Callbacks:
    """The callbacks, called one after the other in one thread, so that they may block."""
    thread: ThreadPoolExecutor | None = None

    def elsewhere(callback: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
        if callback is None:
            return None

        async def call(item: object) -> None:
            nonlocal thread
            if thread is None:
                thread = ThreadPoolExecutor(1, thread_name_prefix="howdah-callbacks")
            await asyncio.get_running_loop().run_in_executor(thread, callback, item)

        return call

    return Callbacks(
        on_event=elsewhere(callbacks.on_event),
        on_state=elsewhere(callbacks.on_state),
        on_log=elsewhere(callbacks.on_log),
    )
