"""A cluster that runs: its job followed, its failures told apart, its end made sure."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from howdah.backends.spark import SparkSubmission
from howdah.client.errors import HowdahError, JobFailed
from howdah.client.following.items import LogLine
from howdah.client.handle import Callbacks, raise_unless_succeeded
from howdah.client.submission.functions import exception_of, values
from howdah.client.sync import JobHandle
from howdah.core.causes import FailureCause
from howdah.core.state import JobPhase
from howdah.spark.errors import FeedError
from howdah.spark.feed.control.control_server import RunFailure
from howdah.spark.feed.control.feed_controller import FeedController
from howdah.spark.feed.control.plan import enough as has_enough
from howdah.spark.feed.control.run_state import RunState
from howdah.spark.feed.messages import Align
from howdah.spark.feed.tasks.feeder_client import FeederAccess
from howdah.spark.session import Query, Session
from howdah.storage.jobdir import JobDirectory
from howdah.wire.status import JobView

LAST_WORDS_S = 10.0
"""How long ranks that are still connected when the job has ended are listened to."""
ECHO_S = 0.5
"""So long after a function has raised it is known whether another rank was killed before: what the
others raise then is the echo of that."""
USER_CODE = FailureCause.USER_CODE.value
END_S = 60.0
"""A job that was told to stop has ended by then."""


class Live:
    """See the module."""

    def __init__(
        self,
        session: Session,
        submission: SparkSubmission,
        directory: JobDirectory,
        controller: FeedController,
        access: FeederAccess,
        on_log: Callable[[LogLine], Any] | None,
        *,
        restarts: int,
    ) -> None:
        self.session = session
        self.directory = directory
        self.controller = controller
        self.access = access
        self.view: JobView | None = None
        """The newest status document that was seen."""
        self.moved: float = time.monotonic()
        """When the job last went on, whatever its feeds did."""
        self._submission = submission
        self._restarts = restarts
        self._raised: dict[int, float] = {}
        """When a function was first seen to raise, by generation."""
        self._echoes: set[int] = set()
        """Generations that ended because a task was killed or lost."""
        self._trained: tuple[int, int, str] = (0, 0, "")
        """Generation, run and feed in which rows were trained last."""
        self._closed = False
        self._stopping = False
        self._lock = threading.Lock()
        self.handle: JobHandle = JobHandle(directory, Callbacks(on_state=self._see, on_log=on_log))
        controller.trouble = self.trouble

    # -- looking -----------------------------------------------------------------------------------

    def _see(self, view: JobView) -> None:
        with self.controller.changed:
            self.view = view
            self.moved = time.monotonic()
            self.controller.changed.notify_all()

    def over(self) -> bool:
        """Whether the job has ended."""
        return self.view is not None and self.view.outcome is not None

    def wants_slots(self) -> bool:
        """Whether it forms anew and waits for slots of the Spark application."""
        view = self.view
        return view is not None and view.restarts > 0 and view.phase == JobPhase.ALLOCATING.value

    def enough(self, feed: str, align: Align) -> bool:
        """Whether the programs have stopped that feed, in a run or between two."""
        return has_enough(align, self.controller.stopped(feed), self.controller.running())

    def check(self, *, enough: bool = False) -> None:
        """Whether the cluster can still be fed. With the controller's lock held.

        Args:
            enough: the programs want no more rows: they may have returned since.

        Raises:
            FeedError: a function has raised (its traceback is in the text), what was learned is
                lost, or the job has ended.
        """
        failure = self.failure()
        if failure is not None:
            self._stop_soon(f"rank {failure.rank} raised {failure.error}")
            raise FeedError(
                f"the training function raised in rank {failure.rank}: {failure.error}\n"
                f"{failure.trace}"
            ) from exception_of(failure.sent)
        if forgotten := self.forgotten():
            self._stop_soon(forgotten)
            raise FeedError(forgotten)
        if self.over() and not enough and self._heard_out():
            raise FeedError(self._why_over())

    def _heard_out(self) -> bool:
        """Whether the programs' last words are known: the job's end may be heard before them."""
        return not self.controller.talking() or time.monotonic() - self.moved > LAST_WORDS_S

    def trouble(self) -> str | None:
        """What `check` would raise, or nothing; None while that can't be told."""
        try:
            self.check()
        except FeedError as error:
            return str(error)
        return None if self.forgotten() is None else ""

    def note_trained(self, run: RunState) -> None:
        """A run is over: what the programs have learned of it a restart must not lose."""
        with self.controller.changed:
            if any(each.rows for epoch in run.epochs.values() for each in epoch.handed.values()):
                self._trained = (run.generation, run.number, run.feed)

    def forgotten(self) -> str | None:
        """Why the present programs know nothing of what was learned in runs that are over; empty if
        they do, None while that can't be told."""
        generation, run, feed = self._trained
        now = self.controller.generation
        if not generation or now <= generation:
            return ""
        resumed = self.controller.resumed()
        if resumed:
            self._trained = (now, run, feed)
        if resumed is not False:
            return None if resumed is None else ""
        return (
            f"what was learned in run {run} of the feed {feed!r} is lost: a process ended, all were "
            f"started again (generation {now}), and none found a checkpoint. That run is over, its rows "
            "are not fed again. Start the cluster with checkpoint=True, write into ctx.checkpoint_dir, "
            "and begin from what is there; a checkpoint that lies elsewhere is known by the position "
            "beside it (feed.restore)"
        )

    def failure(self) -> RunFailure | None:
        """The exception of a training function that is no echo of another task's end.

        With a budget for restarts it is told from echoes by what was seen before it and by what the
        coordinator says of that generation; after `ECHO_S` without any sign it counts.
        """
        for first in self.controller.failures:
            if first.generation in self._echoes:
                continue
            if not self._restarts:
                return first
            if first.generation not in self._raised:
                self._raised[first.generation] = time.monotonic()
                threading.Timer(ECHO_S, self._wake).start()
            echo = self._is_echo(first)
            if echo is None and time.monotonic() - self._raised[first.generation] < ECHO_S:
                return None
            if not echo:
                return first
            self._echoes.add(first.generation)
        return None

    def _is_echo(self, failure: RunFailure) -> bool | None:
        """None: that cannot be told yet."""
        if failure.after_loss:
            return True
        view = self.view
        for each in view.failures if view is not None else ():
            if each.generation == failure.generation and view is not None:
                ranks = {task.task: task.rank for task in view.tasks}
                guilty = each.task is not None and ranks.get(each.task) == failure.rank
                return not guilty and each.cause != USER_CODE
        return None

    def _wake(self) -> None:
        with self.controller.changed:
            self.controller.changed.notify_all()

    def _why_over(self) -> str:
        view = self.view
        assert view is not None
        try:
            raise_unless_succeeded(view)
            values(self.directory, view)
        except HowdahError as error:
            return str(error)
        return "the training functions have returned: they take no more rows"

    # -- acting ------------------------------------------------------------------------------------

    def query(self, action: Callable[[], Any]) -> Query:
        """Start a Spark action; the controller's `changed` is notified at its end."""
        return Query(self.session, action, self._wake)

    def wait_formed(self, timeout_s: float, formed: Callable[[], bool]) -> None:
        """Wait for the cluster to be there.

        Raises:
            JobFailed: it has ended before.
            TimeoutError: it was not there in time.
        """
        deadline = time.monotonic() + timeout_s
        with self.controller.changed:
            while not formed():
                if self.over():
                    break
                failure = self.failure()
                if failure is not None:
                    raise JobFailed(
                        f"The function raised in rank {failure.rank}: {failure.trace}",
                        self.view or self.handle.status(),
                    ) from exception_of(failure.sent)
                left = deadline - time.monotonic()
                if left <= 0:
                    why = self.view.reason if self.view is not None else ""
                    raise TimeoutError(
                        f"the cluster was not there within {timeout_s:g} s"
                        f" (start_timeout_s){': ' + why if why else ''}. Spark's slots may be taken "
                        "by other jobs; more time can be given, or fewer workers asked for"
                    )
                self.controller.changed.wait(left)
        if self.over() and not formed():
            view = self.view
            assert view is not None
            raise_unless_succeeded(view)

    def results(self, timeout_s: float | None) -> dict[int, Any]:
        """Wait for the job's end; what the ranks returned.

        Raises:
            JobFailed: a function raised, with its traceback; or the job has failed otherwise.
            TimeoutError: it has not ended in time.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        failure: RunFailure | None = None
        with self.controller.changed:
            while not self.over():
                if failure is None and (failure := self.failure()) is not None:
                    self._stop_soon(f"rank {failure.rank} raised {failure.error}")
                elif forgotten := self.forgotten():
                    self._stop_soon(forgotten)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(
                        f"the functions have not returned within {timeout_s:g} s; they go on: call "
                        "results() again, or stop()"
                    )
                self.controller.changed.wait(left)
            failure = failure or self.failure() or next(iter(self.controller.failures[-1:]), None)
            forgotten = self.forgotten()
        view = self.handle.wait(END_S)
        self._submission.closed.wait(END_S)
        if failure is not None and view.outcome != "succeeded":
            raise JobFailed(
                f"{view.job_id} {view.outcome}: the function raised in rank {failure.rank}: "
                f"{failure.error}\n{failure.trace}",
                view,
            ) from exception_of(failure.sent)
        if forgotten:
            raise JobFailed(f"{view.job_id} {view.outcome}: {forgotten}", view)
        return values(self.directory, view)

    def stop(self, reason: str) -> None:
        """Stop the job; nothing of it is left when this returns."""
        self.controller.end()
        if not self.over():
            with contextlib.suppress(HowdahError):
                self.handle.stop(reason)
        with contextlib.suppress(HowdahError, TimeoutError):
            self.handle.wait(END_S)
        self._submission.closed.wait(END_S)

    def close(self) -> None:
        """Let go of everything, once the job has ended."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.controller.close()
        self._submission.close()

    def _stop_soon(self, reason: str) -> None:
        """Have the job stopped without waiting for it: its error is told first."""

        def stop() -> None:
            with contextlib.suppress(Exception):
                self.handle.stop(reason)

        with self._lock:
            if self._stopping:
                return
            self._stopping = True
        threading.Thread(target=stop, name="howdah-stop", daemon=True).start()
