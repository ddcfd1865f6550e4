"""An attached client: shows a job until it ends, and turns signals into what they mean."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import errno
import importlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from howdah.backends.base import BackendError
from howdah.cli import leaving
from howdah.cli.display.formatting import Paint, moment, wants_colour, window_width
from howdah.cli.display.terminal import echo
from howdah.client.errors import Abandoned, ExitCode, HowdahError, exit_code_of
from howdah.spec.units import instance_range, seconds
from howdah.storage.jobdir import JobDirectory, StorageError
from howdah.wire.status import JobView

if TYPE_CHECKING:
    from howdah.cli.display.screen import Screen
    from howdah.cli.display.writer import Writer
    from howdah.client.handle import AsyncJobHandle

# What shows a job is imported once it is submitted: the cluster starts it meanwhile.
NEEDED_LATER = ("howdah.cli.failures", "howdah.client.advice_inputs")
"""For the job's end, which may come weeks later, after an upgrade."""


class Tie(enum.Enum):
    """How an attached client and its job hang together."""

    JOB = "job"
    """``run``: ending the client stops the job."""
    VIEW = "view"
    """``attach``: ending the client changes nothing."""
    WAIT = "wait"
    """``submit --wait``: ending the client changes nothing, but then it has not waited."""


class Action(enum.Enum):
    """What to do now."""

    STOP = "stop"
    """Ask for a clean stop and go on following until the job has ended."""
    STOP_AT_ONCE = "stop-at-once"
    """Ask for the end without grace, and go on following."""
    STOP_AND_LEAVE = "stop-and-leave"
    """Ask for a clean stop and leave: no terminal is left to show the end on."""
    LEAVE = "leave"
    """Leave; the job goes on as it was told last."""


class Interrupts:
    """Counts the interruptions of one attached client."""

    def __init__(self, tie: Tie) -> None:
        self._tie = tie
        self._count = 0

    def signal(self, number: int) -> Action:
        """A signal came: SIGINT, SIGTERM or SIGHUP."""
        if self._tie is not Tie.JOB:
            return Action.LEAVE
        if number == signal.SIGHUP:
            return self.output_closed()
        self._count += 1
        return {1: Action.STOP, 2: Action.STOP_AT_ONCE}.get(self._count, Action.LEAVE)

    def output_closed(self) -> Action:
        """Our output is read no more: the terminal was closed, or ``| head`` has enough."""
        if self._tie is not Tie.JOB or self._count:
            return Action.LEAVE
        self._count += 1
        return Action.STOP_AND_LEAVE


SAID = {
    Action.STOP: "stopping the job cleanly{patience}; press Ctrl-C again to end it at once",
    Action.STOP_AT_ONCE: "ending the job at once; press Ctrl-C again to leave it behind",
}
"""What the user is told of each action."""


def patience(directory: JobDirectory) -> str:
    """Until when a job that is told to stop waits for its programs, to be put behind what says that it stops."""
    with contextlib.suppress(StorageError):  # who follows the job says that
        job = directory.job()
        limits = [
            role.timeouts.stop_grace or job.timeouts.stop_grace for role in job.roles.values()
        ]
        if grace_s := max((seconds(limit) or 0.0 for limit in limits), default=0.0):
            until = moment(time.time() + grace_s)
            if grace_s < 3600:
                until = until.partition(" ")[2]
            return f": waits until {until} for programs that have not ended, then kills them"
    return ""


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LAST_OUTPUT_S = 10.0
"""A reader that takes nothing for this long at the very end is not waited for. Where the user has
left the job, or following it failed, none is waited for longer."""


REDIRECT_S = 60.0
"""For a browser to start and read where it is sent."""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What the user wants to see."""

    as_json: bool = False
    all_records: bool = False
    """Also those records that the task table shows as well."""
    tail: int | None = None
    """Begin with so many lines of each log and no earlier records; None is from the beginning."""
    open_page: bool = False
    logs: bool = True
    """What tasks print."""


def follow(
    start: Callable[[], JobDirectory],
    tie: Tie,
    view: View,
    *,
    cancel: Callable[[], object] = lambda: None,
    notes: Sequence[str] = (),
) -> ExitCode:
    """Show the job that ``start`` gives until it ends; its exit code.

    Signals count from before ``start`` is called (in a thread): one that comes meanwhile is obeyed
    after it, so no job is ever left half-started or running by accident. ``cancel`` is called then,
    for a ``start`` that takes long and can end at once (by `SubmissionCancelled`). ``notes`` are those
    of the submission, once ``start`` has ended.
    """
    return leaving.run(_Session(tie, view, cancel, notes).run(start))


class _Session:
    def __init__(
        self, tie: Tie, view: View, cancel: Callable[[], object], notes: Sequence[str]
    ) -> None:
        self._tie = tie
        self._cancel = cancel
        self._notes = notes
        self._view = view
        self._interrupts = Interrupts(tie)
        self._handle: AsyncJobHandle | None = None
        self._screen: Screen | None = None
        self._shown = asyncio.Event()
        """There is a job, and a screen to show it on."""
        self._following: asyncio.Task[JobView] | None = None
        self._acting: set[asyncio.Task[None]] = set()
        self._left = False
        self._signalled = False
        self._pages: set[str] = set()
        self._redirect: Path | None = None
        """The file that sends the browser to the job page."""

    async def run(self, start: Callable[[], JobDirectory]) -> ExitCode:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            # What is ignored stays ignored: nohup, or a background job of a script.
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._on_signal, number)
        directory = await asyncio.to_thread(start)
        for name in NEEDED_LATER:
            importlib.import_module(name)
        from howdah.cli.display.writer import Writer
        from howdah.client.handle import AsyncJobHandle

        self._handle = AsyncJobHandle(directory)
        writer = Writer(loop, self._on_output_closed)
        self._screen = self._make_screen(writer, directory)
        self._shown.set()
        if self._tie is Tie.JOB:
            self._say_submitted(writer, directory)
        self._following = loop.create_task(self._follow(writer))
        try:
            return await self._until_over(writer)
        finally:
            self._remove_redirect()

    async def _until_over(self, writer: Writer) -> ExitCode:
        assert self._following is not None and self._handle is not None
        try:
            view = await self._following
        except asyncio.CancelledError:
            if not self._left:
                raise
            _close(writer)
            return ExitCode.SUCCEEDED if self._tie is Tie.VIEW else ExitCode.STOPPED
        except Exception as error:
            if self._handle.ended() is None and not isinstance(error, (Abandoned, StorageError)):
                self._say_left()
            _close(writer)
            raise
        await self._close_patiently(writer)
        return exit_code_of(view)

    async def _close_patiently(self, writer: Writer) -> None:
        """Write what is left, however slow the reader is, unless a signal comes meanwhile."""
        self._signalled = False
        while True:
            before = writer.taken
            if await asyncio.to_thread(writer.close, LAST_OUTPUT_S):
                return
            if writer.taken == before or self._signalled:
                _say_cut_off()
                return

    def _make_screen(self, writer: Writer, directory: JobDirectory) -> Screen:
        from howdah.cli.display.screen import HumanScreen, JsonScreen

        if self._view.as_json:
            return JsonScreen(writer)
        roles = directory.job().roles
        return HumanScreen(
            writer,
            Paint(wants_colour(sys.stdout)),
            Paint(wants_colour(sys.stderr)),
            longest=max(len(f"{n}:{instance_range(r.instances)[1] - 1}") for n, r in roles.items()),
            all_records=self._view.all_records,
            live=sys.stderr.isatty() and os.environ.get("TERM") != "dumb",
            width=window_width() if sys.stdout.isatty() else None,
            without_gpus={name for name, role in roles.items() if not role.gpus},
        )

    def _say_submitted(self, writer: Writer, directory: JobDirectory) -> None:
        assert self._screen is not None
        if self._view.as_json:
            from howdah.client.following.items import submitted

            item = submitted(directory, self._notes)
            writer.out(msgspec.json.encode(item) + b"\n")
        else:
            self._screen.note(f"{directory.job_id} submitted")

    async def _follow(self, writer: Writer) -> JobView:
        from howdah.cli.display.summary import may_advise
        from howdah.client.advice_inputs import findings_if_known
        from howdah.client.following.remote import Link, WaitingReason
        from howdah.wire.messages import LogUpdate, RecordUpdate

        handle, screen = self._handle, self._screen
        assert handle is not None and screen is not None
        position = await handle.position(self._view.tail)
        last: JobView | None = None
        async for update in handle.follow(position, logs=self._view.logs):
            self._show_pages(handle, screen, update)
            if isinstance(update, LogUpdate):
                screen.log(update)
                await writer.room()
            elif isinstance(update, RecordUpdate):
                screen.record(update)
            elif isinstance(update, WaitingReason):
                screen.waiting(update.why)
            elif isinstance(update, Link):
                if update.incarnation is None:
                    screen.note("the coordinator does not answer; waiting for its successor")
            else:
                last = update
                if last.outcome is None or last.finished is None:
                    screen.status(last)
        assert last is not None
        advise = not self._view.as_json and may_advise(last)
        found = await asyncio.to_thread(findings_if_known, handle.job_directory) if advise else []
        screen.end(last, found)
        return last

    def _show_pages(self, handle: AsyncJobHandle, screen: Screen, update: object) -> None:
        """The job page's address once it is served, then those of pages behind it."""
        from howdah.cli.display.screen import JOB_PAGE

        if JOB_PAGE not in self._pages:
            page = handle.page()
            if page is None:
                return
            self._pages.add(JOB_PAGE)
            screen.page(JOB_PAGE, page)
            if self._view.open_page:
                self._open(handle, screen, page)
        if isinstance(update, JobView):
            for link in update.links:
                if link.name not in self._pages and (page := handle.page(link.href)) is not None:
                    self._pages.add(link.name)
                    screen.page(link.name, page)

    def _open(self, handle: AsyncJobHandle, screen: Screen, page: str) -> None:
        from howdah.cli.commands.pages import open_page

        try:
            self._redirect = open_page(page, handle.directory)
        except OSError as error:
            screen.note(f"the page cannot be opened: {error}; open its address yourself")
            return
        asyncio.get_running_loop().call_later(REDIRECT_S, self._remove_redirect)

    def _remove_redirect(self) -> None:
        if self._redirect is not None:
            with contextlib.suppress(OSError):
                self._redirect.unlink(missing_ok=True)

    # -- signals ---------------------------------------------------------------------------------

    def _on_signal(self, number: int) -> None:
        self._signalled = True
        name = signal.Signals(number).name
        why = f"Ctrl-C ({name})" if number == signal.SIGINT else name
        self._act(self._interrupts.signal(number), why)

    def _on_output_closed(self, error: OSError) -> None:
        if error.errno in (errno.EPIPE, errno.EIO):
            self._act(self._interrupts.output_closed(), "its output was closed")
        else:
            # Not a reason to end a job: a full disk below `> log.txt`, say.
            echo(f"howdah: output cannot be written ({error}); the job goes on", err=True)

    def _act(self, action: Action, why: str) -> None:
        task = asyncio.get_running_loop().create_task(self._do(action, why))
        self._acting.add(task)
        task.add_done_callback(self._acting.discard)

    async def _do(self, action: Action, why: str) -> None:
        if not self._shown.is_set() and self._tie is Tie.JOB:
            self._cancel()
        await self._shown.wait()
        assert self._handle is not None and self._screen is not None
        if action in SAID:
            self._screen.note(SAID[action].format(patience=patience(self._handle.job_directory)))
        if action is not Action.LEAVE:
            try:
                await self._handle.stop(why, firm=action is Action.STOP_AT_ONCE)
            except (HowdahError, BackendError) as error:
                self._screen.note(str(error))
        if action in (Action.LEAVE, Action.STOP_AND_LEAVE):
            self._left = True
            if action is Action.LEAVE:
                self._say_left()
            if self._following is not None:
                self._following.cancel()

    def _say_left(self) -> None:
        assert self._handle is not None and self._screen is not None
        job_id = self._handle.job_id
        self._screen.note(
            f"left {job_id} behind; howdah attach {job_id} follows it, howdah stop ends it"
        )


def _close(writer: Writer) -> None:
    if not writer.close(LAST_OUTPUT_S):
        _say_cut_off()


def _say_cut_off() -> None:
    """Say that the rest of the output is lost, where standard error takes that."""
    with contextlib.suppress(OSError):  # one of them is closed
        if not os.path.sameopenfile(1, 2) and select.select((), (2,), (), 0)[1]:
            echo(
                "howdah: the output is cut off: its reader was too slow to take the rest", err=True
            )
