"""What an attached client shows: lines for people, or JSON lines for programs.

For people: what tasks print goes to standard output, each line behind its task's name; what Howdah
itself says goes to standard error, so that ``howdah run job.toml | grep accuracy`` sees the job
alone. The summary, the command's result, is on standard output again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Sequence

import msgspec

from howdah.cli.display import formatting as human
from howdah.cli.display.formatting import TASK_COLOURS, Paint, shortened, window_width
from howdah.cli.display.summary import summary
from howdah.cli.display.terminal import tame_json, tame_line
from howdah.cli.display.writer import Writer
from howdah.client.advice import Finding
from howdah.client.following.items import (
    NoteItem,
    Page,
    StatusItem,
    SummaryItem,
    WaitingItem,
    job_event,
    log_line,
)
from howdah.client.following.log_lines import Lines, LogBlock, LogId, TimedLines
from howdah.client.handle import state_shape
from howdah.core.messages import Level, Record
from howdah.core.state import JobPhase
from howdah.wire.messages import LogUpdate, RecordUpdate
from howdah.wire.status import JobView, TaskView

JOB_PAGE = "job"
OWN = "howdah"
"""Prefix of what is not a task's output."""

FOLDED = "what TensorFlow and TensorBoard say of their start is left out: -v shows it, and so does howdah logs"

SAY_WAITING_S = 30.0
"""Why a job waits is said this often at most where it cannot be shown in place."""

QUIET_KINDS = frozenset({"submitted", "task-started", "task-succeeded", "task-stopped", "finished"})
"""Records that are shown in another way as well: left out unless all are wanted."""


class Prefixes:
    """Puts a task's name, in the task's colour, before each of its lines."""

    def __init__(
        self, paint: Paint, pad: int = 0, *, attempts: bool = False, terminal: bool = False
    ) -> None:
        """``pad``: width of the names. ``attempts``: name attempts after the first, ``worker:1#2``.
        ``terminal``: the lines are shown on one."""
        self._paint = paint
        self._pad = pad
        self._attempts = attempts
        self._tames = terminal or paint.colour
        self._prefixes: dict[LogId, bytes] = {}

    def before(self, stream: LogId, lines: list[bytes], time: bytes = b"") -> bytes:
        """The lines as they are printed; ``time`` goes before the names."""
        prefix = self._prefixes.get(stream)
        if prefix is None:
            prefix = self._prefixes[stream] = self._make(stream)
        if self._tames:
            lines = [tame_line(line) for line in lines]
        return b"".join(time + prefix + line + b"\n" for line in lines)

    def _make(self, stream: LogId) -> bytes:
        task = str(stream.task)
        # By name, so that a task has the same colour in every command and every run.
        colour = TASK_COLOURS[
            (sum(stream.task.role.encode()) + stream.task.index) % len(TASK_COLOURS)
        ]
        number = f"#{stream.attempt}" if self._attempts and stream.attempt > 1 else ""
        return f"{self._paint(f'{task}{number}'.ljust(self._pad) + ' |', colour)} ".encode()


START_LINES = 200
"""Lines of an attempt among which they are looked for: later ones are no part of a start."""

_OF_A_START = re.compile(
    rb"""(?:
    (?: [IWE]\d{4}\ [\d:.]+\ +\d+\                                    # absl's beginning of a line
      | \d{4}-\d\d-\d\d\ [\d:.]+:\ [IWE]\ (?:[\w.-]+/)*                 # TensorFlow's own
    )(?: port\.cc:\d+\]\ oneDNN\ custom\ operations\ are\ on\.
      | cudart_stub\.cc:\d+\]\ Could\ not\ find\ cuda\ drivers
      | cpu_feature_guard\.cc:\d+\]\ This\ TensorFlow\ binary\ is\ optimized
      | computation_placer\.cc:\d+\]\ computation\ placer\ already\ registered
      | cuda_(?:dnn|fft|blas)\.cc:\d+\]\ Unable\ to\ register
      | cuda_(?:platform|driver)\.cc:\d+\]\ failed\ call\ to\ cuInit
      | cuda_diagnostics\.cc:\d+\]
      | py_utils\.cc:\d+\]\ TF-TRT\ Warning:
      | gpu_device\.cc:\d+\]\ Cannot\ dlopen\ some\ GPU\ libraries
    )
    | WARNING:\ All\ log\ messages\ before\ absl::InitializeLog\(\)\ is\ called\ are\ written\ to\ STDERR
    | To\ enable\ the\ following\ instructions:.*\ rebuild\ TensorFlow\ with\ the\ appropriate\ compiler\ flags
    | Skipping\ registering\ GPU\ devices\.\.\.
    | TensorBoard\ \d\S*\ at\ \S+\ \(Press\ CTRL\+C\ to\ quit\)
    )""",
    re.VERBOSE,
)


class StartupLines:
    """Leaves out lines of a start that say nothing to who reads them here: TensorFlow's to who has asked
    for no GPU, TensorBoard's with an address that needs a secret, and a Ctrl-C that would stop the job.

    No environment variable keeps them all away: some come before ``TF_CPP_MIN_LOG_LEVEL`` is read.
    """

    def __init__(self) -> None:
        self._seen: dict[LogId, int] = {}

    def others(self, stream: LogId, lines: list[bytes]) -> list[bytes]:
        """The next lines of an attempt's log, without those of a start."""
        seen = self._seen.get(stream, 0)
        self._seen[stream] = seen + len(lines)
        first = max(START_LINES - seen, 0)
        return [line for line in lines[:first] if not _OF_A_START.match(line)] + lines[first:]


class HumanScreen:
    """Merged logs with coloured prefixes, records of the event log between them, a status line below."""

    def __init__(
        self,
        writer: Writer,
        out: Paint,
        err: Paint,
        *,
        longest: int = 0,
        all_records: bool = False,
        live: bool = False,
        width: int | None = None,
        without_gpus: Collection[str] = (),
    ) -> None:
        """Show through ``writer``.

        Args:
            writer: takes the lines.
            out: colours of standard output.
            err: colours of standard error.
            longest: characters of the longest task name.
            all_records: also those of `QUIET_KINDS`.
            live: standard error is a terminal that can have a status line.
            width: the window's, for the summary, or None.
            without_gpus: roles that have no GPUs: what TensorFlow says of a start without is left out.
        """
        self._writer = writer
        self._out = out
        self._err = err
        self._all_records = all_records
        self._live = live
        self._width = width
        self._lines = Lines()
        self._without_gpus = without_gpus
        self._startup = StartupLines()
        self._folded = False
        """It has been said that lines are left out."""
        self._told: dict[str, str] = {}
        """What was told last of each task, by its name."""
        self._failed: dict[str, str] = {}
        """The same of its failures."""
        self._waiting_said = -SAY_WAITING_S
        self._held: RecordUpdate | None = None
        """The end of a generation: no news if it is the job's, which says the same and more."""
        pad = max(len(OWN), longest)
        self._prefixes = Prefixes(out, pad)
        self._own = f"{err(OWN.ljust(pad), bold=True)} {err('|', dim=True)} "

    def log(self, update: LogUpdate) -> None:
        """Bytes a task has printed."""
        stream = LogId(update.task, update.attempt)
        lines = self._lines.feed(stream, update.offset, update.data)
        if lines:
            self._print(stream, [line for _, line in lines])

    def record(self, update: RecordUpdate) -> None:
        """A record of the job's event log."""
        record = update.record
        if not self._all_records:
            if record.kind != "finishing":
                self._tell_held()
            self._held = None
            if record.kind == "generation-ended":
                self._held = update
                return
            if record.level is Level.INFO and record.kind in QUIET_KINDS:
                return
            if record.task is not None and self._told.get(str(record.task)) == record.text:
                return  # a task that fails to start the same way again and again
        self._tell(record)
        if record.task is not None:
            self._told[str(record.task)] = record.text
            if record.level is not Level.INFO:
                self._failed[str(record.task)] = record.text

    def _tell_held(self) -> None:
        if self._held is not None:
            self._tell(self._held.record)
            self._held = None

    def _tell(self, record: Record) -> None:
        text = record.text if self._all_records else self._news(record)
        colour = {Level.ERROR: "red", Level.WARNING: "yellow"}.get(record.level)
        self.note(self._err(text, colour) if colour else text)

    def _news(self, record: Record) -> str:
        """The record's text without the failure it names, if that has just been told."""
        task = str(record.task or record.data.get("task", ""))
        told = self._failed.get(task)
        cause = record.data.get("cause")
        if told is None or cause is None or not record.text.startswith(f"{told} ["):
            return record.text
        ended = record.kind == "generation-ended"
        subject = f"generation {record.generation} ended" if ended else task
        cost = human.budget(bool(record.data.get("counted")))
        return f"{subject}: {cause}, {cost}{record.text.removeprefix(told).partition(']')[2]}"

    def status(self, view: JobView) -> None:
        """The job's status has changed."""
        self._tell_held()
        if view.pending_reason and not self._live:
            self._say_waiting(view.pending_reason)
        if self._live:
            line = shortened(status_line(view, time.time()), window_width() - 1)
            self._writer.status(self._err(line, reverse=True).encode())

    def page(self, name: str, address: str) -> None:
        """The job page (``job``) is served, or another page through it."""
        label = "page" if name == JOB_PAGE else name
        self.note(f"{label} {self._err(address, underline=True)}")

    def note(self, text: str) -> None:
        """Something about the client itself."""
        self._writer.err(f"{self._own}{text}\n".encode())

    def waiting(self, why: str) -> None:
        """The job waits for its coordinator to be started, for that reason; `status` has why it waits later.

        In the status line where there is one; else said, but not every change of a figure.
        """
        if self._live:
            line = shortened(f" waiting · {why} ", window_width() - 1) if why else None
            self._writer.status(self._err(line, reverse=True).encode() if line else None)
        elif why:
            self._say_waiting(why)

    def _say_waiting(self, why: str) -> None:
        if time.monotonic() - self._waiting_said > SAY_WAITING_S:
            self._waiting_said = time.monotonic()
            self.note(f"waiting: {why}")

    def end(self, view: JobView, findings: Sequence[Finding] = ()) -> None:
        """The job has ended; nothing comes after this. ``findings`` are what it wasted."""
        for stream, _, line in self._lines.finish_all():
            self._print(stream, [line])
        self._tell_held()
        self._writer.status(None)
        lines = summary(view, self._out, width=self._width, findings=findings)
        self._writer.out("".join(f"{line}\n" for line in lines).encode())

    def _print(self, stream: LogId, lines: list[bytes]) -> None:
        if stream.task.role in self._without_gpus and not self._all_records:
            count, lines = len(lines), self._startup.others(stream, lines)
            if len(lines) < count and not self._folded:
                self._folded = True
                self.note(FOLDED)
        self._writer.out(self._prefixes.before(stream, lines))


class JsonScreen:
    """The same, one JSON object a line: see `howdah.client.following.items`."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._lines = TimedLines()
        self._shape: object = None
        self._pending_reason = ""

    def log(self, update: LogUpdate) -> None:
        stream = LogId(update.task, update.attempt)
        self._put_blocks(self._lines.feed(stream, update.offset, update.data, update.times))

    def record(self, update: RecordUpdate) -> None:
        self._put(job_event(update))

    def status(self, view: JobView) -> None:
        shape = state_shape(view)
        if shape != self._shape:  # measurements alone are no news
            self._shape = shape
            self._put(StatusItem(status=view))
        if view.pending_reason != self._pending_reason:
            self._pending_reason = view.pending_reason
            self.waiting(view.pending_reason)

    def page(self, name: str, address: str) -> None:
        self._put(Page(name=name, address=address))

    def note(self, text: str) -> None:
        self._put(NoteItem(text=text))

    def waiting(self, why: str) -> None:
        self._put(WaitingItem(why=why))

    def end(self, view: JobView, findings: Sequence[Finding] = ()) -> None:
        self._put_blocks(self._lines.finish_all())
        self._put(SummaryItem(status=view))

    def _put_blocks(self, blocks: list[LogBlock]) -> None:
        for block in blocks:
            self._put(*(log_line(block.stream, *line, time=block.time) for line in block.lines))

    def _put(self, *items: msgspec.Struct) -> None:
        lines = b"".join(msgspec.json.encode(item) + b"\n" for item in items)
        self._writer.out(tame_json(lines))


Screen = HumanScreen | JsonScreen
"""Shows a job to a person or a program."""

BAR = 10
"""Characters of the bar of steps."""


def _done(task: TaskView) -> tuple[float, float]:
    """How far a task is: of those that do not say how many steps there are, its step."""
    step = task.step or 0.0
    return (step / task.total if task.total else 0.0), step


def _steps(task: TaskView) -> str:
    """``step 118/1000 [#         ] 12%, 3m 20s left``"""
    text = f"step {task.step:g}"
    if not task.total or task.step is None:
        return text
    done = min(max(task.step / task.total, 0.0), 1.0)
    text += f"/{task.total:g} [{'#' * int(done * BAR):{BAR}}] {done:.0%}"
    return text if task.left_s is None else f"{text}, {human.duration(task.left_s)} left"


def status_line(view: JobView, now: float) -> str:
    """The job in one line: phase, generation, tasks by state, progress, age."""
    ending = view.phase == JobPhase.FINISHING.value  # the outcome is known, programs may still save
    parts = [view.phase if ending else view.outcome or view.phase]
    if view.generation > 1:
        parts.append(f"generation {view.generation}")
    deciding = [task for task in view.tasks if task.tracking != "sidecar"]
    up = sum(task.state in ("running", "succeeded") for task in deciding)
    if deciding:
        parts.append(f"{up}/{len(deciding)} tasks up")
    last = min((task for task in view.tasks if task.step is not None), key=_done, default=None)
    if last is not None:
        parts.append(_steps(last))
    memory = sum(task.rss_mb or 0.0 for task in view.tasks)
    if memory:
        cpu = sum(task.cpu or 0.0 for task in view.tasks)
        parts.append(f"{cpu:.1f} cores, {human.mebibytes(memory)}")
    if view.submitted is not None:
        parts.append(human.duration(now - view.submitted))
    if view.reason and view.outcome is None:
        parts.append(view.reason)
    return " " + " · ".join(parts) + " "
