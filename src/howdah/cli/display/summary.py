"""What is said of a job: its tasks as a table, and the summary at its end. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from howdah.cli.display import formatting as human
from howdah.cli.display.formatting import Paint, TableColumn, display_width, render
from howdah.client.advice import Finding, Severity
from howdah.storage.checkpoints.unsaved_files import REMEDY
from howdah.wire.status import FailureView, JobView, TaskView

TAIL = 20
"""Lines of the failing task that are shown."""
ADVICE_SHOWN = 3
"""Findings that are shown; `howdah advice` has all."""
ADVISED_S = 60.0
"""A job that took less is a try: what it wasted is not worth a line of its summary."""
UNSAVED_SHOWN = 10
"""Lines of what could not be saved that are shown."""
MADE_SHOWN = 4
"""Tasks whose files are shown."""
ROWS = 64
"""Tasks that are shown at the end of a job."""
LABEL = 16
"""Columns before the text of a labelled line."""

_TASK_COLUMNS = (
    TableColumn("TASK"),
    TableColumn("STATE"),
    TableColumn("RANK", right=True),
    TableColumn("ATTEMPT", right=True),
    TableColumn("EXIT"),
    TableColumn("STEP", right=True),
    TableColumn("CPU", right=True),
    TableColumn("MEMORY", right=True),
    TableColumn("GPU", right=True),
    TableColumn("FOR", right=True),
    TableColumn("HOST"),
    TableColumn("LAST LINE", gives=True),
)


def task_table(
    view: JobView, paint: Paint, *, width: int | None, now: float, indent: str = "  "
) -> list[str]:
    """One line a task. ``now`` is seconds since the epoch, for how long states have lasted."""
    rows = [
        _task_row(task, paint, now, live=view.outcome is None and not view.lost)
        for task in view.tasks
    ]
    return render(_TASK_COLUMNS, rows, paint, width=width, indent=indent)


def _end_table(view: JobView, paint: Paint, width: int | None) -> list[str]:
    """The tasks of a job that has ended: of very many those that did not succeed come first."""
    shown = view.tasks
    if not any(task.attempt for task in shown) and len(shown) > ROWS:
        return [f"  None of its {len(shown)} tasks was started."]
    if len(shown) > ROWS:
        first = sorted(shown, key=lambda task: task.state == "succeeded" or not task.attempt)[:ROWS]
        chosen = {task.task for task in first}
        shown = tuple(task for task in shown if task.task in chosen)
    table = msgspec.structs.replace(view, tasks=shown)
    lines = task_table(table, paint, width=width, now=view.finished or 0.0)
    if len(shown) < len(view.tasks):
        more = len(view.tasks) - len(shown)
        lines.append(f"  and {more} more tasks: howdah status --json {view.job_id}")
    return lines


def _task_row(task: TaskView, paint: Paint, now: float, *, live: bool) -> tuple[str, ...]:
    return (
        task.task,
        paint.state(task.state),
        "" if task.rank is None else str(task.rank),
        str(task.attempt) if task.attempt else "",
        _exit(task, paint),
        _step(task),
        "" if task.cpu is None else f"{task.cpu:.1f}",
        human.mebibytes(task.rss_mb),
        "" if task.gpu is None else f"{task.gpu:.0%}",
        human.duration(now - task.since) if live and task.since is not None else "",
        task.host or "",
        _printable(task.last_line or "") if live else "",
    )


def _step(task: TaskView) -> str:
    if task.step is None:
        return ""
    return f"{task.step:g}" if task.total is None else f"{task.step:g}/{task.total:g}"


def _exit(task: TaskView, paint: Paint) -> str:
    if task.signal:
        return paint(task.signal, "yellow")
    if task.exit_code is None:
        return ""
    return paint(str(task.exit_code), "red" if task.exit_code else "green")


def first_failure(view: JobView) -> FailureView | None:
    """The failure that ended the job: the one its reason begins with. Failures of other tasks, which
    the job got over, may be as new."""
    named = (each for each in reversed(view.failures) if view.reason.startswith(each.what))
    return next(named, None)


def summary(
    view: JobView, paint: Paint, *, width: int | None, findings: Sequence[Finding] = ()
) -> list[str]:
    """The end of ``howdah run``: outcome, what failed first, why, what to do, tasks, the worst of
    ``findings``, where next."""
    lines = ["", _headline(view, paint)]
    decisive = first_failure(view) if view.outcome in ("failed", "timed-out") else None
    if decisive is not None:
        lines += ["", *_failure(decisive, view, paint, width)]
    elif view.outcome != "succeeded":
        lines += ["", *_labelled("Why", view.reason, paint, width)]
        lines += _labelled("What to do", view.advice, paint, width)
    if view.unsaved:
        lines += ["", *_unsaved(view, paint, width)]
    earlier = [failure for failure in view.failures if failure is not decisive]
    if earlier:
        lines += ["", *_earlier(earlier, paint, width)]
    if view.tasks:
        lines += ["", *_end_table(view, paint, width)]
    if any(task.made for task in view.tasks):
        lines += ["", *_made(view, paint, width)]
    told = _worth_telling(view, findings)
    if told:
        lines += ["", f"  {paint('Advice', bold=True)}"]
        lines += advice_lines(told, paint, width, indent="    ")
    lines += ["", *_next(view, paint, decisive)]
    return lines


def may_advise(view: JobView) -> bool:
    """Whether a summary of the job may have advice: to find it takes its journal and samples, which may
    be far away."""
    return _took_long(view) or bool(view.failures or view.restarts)


def _took_long(view: JobView) -> bool:
    return (view.finished or 0.0) - (view.submitted or 0.0) >= ADVISED_S


def _worth_telling(view: JobView, findings: Sequence[Finding]) -> Sequence[Finding]:
    """The worst findings; of a job that was over at once only what made it restart."""
    if not _took_long(view):
        findings = [each for each in findings if each.rule == "repeated-restarts"]
    return findings[:ADVICE_SHOWN]


def report(
    view: JobView,
    paint: Paint,
    *,
    width: int | None,
    pages: Mapping[str, str],
    now: float,
    findings: Sequence[Finding] = (),
) -> list[str]:
    """The job as it is: what ``howdah status`` prints. ``pages`` are addresses by name."""
    if view.over:
        return summary(view, paint, width=width, findings=findings)[1:]
    lines = [_headline(view, paint, now)]
    unfinished = "Why" if view.lost or view.ending else "Waiting"
    lines += _labelled(unfinished, view.reason, paint, width)
    if view.checkpoint:
        lines += _labelled("Checkpoint", view.checkpoint, paint, width)
    if view.unsaved:
        lines += ["", *_unsaved(view, paint, width)]
    if view.failures:
        lines += ["", *_earlier(list(view.failures), paint, width)]
    if view.tasks:
        lines += ["", *task_table(view, paint, width=width, now=now)]
    lines.append("")
    for name, address in pages.items():
        lines += _labelled(name, paint(address, underline=True), paint, None)
    lines += _next(view, paint, None)
    return lines


def _headline(view: JobView, paint: Paint, now: float = 0.0) -> str:
    state = "lost" if view.lost else view.phase if view.live else str(view.outcome)
    text = f"{paint(view.job_id, bold=True)} {paint.state(state, bold=True)}"
    if view.submitted is not None and not view.lost:
        took = human.duration((view.finished or now) - view.submitted)
        text += f" {'after' if view.over else 'for'} {took}"
    if view.ending:
        text += f": {view.outcome}; what its tasks left is being saved or ended"
    if view.outcome == "succeeded" and view.unsaved:
        text += f", {paint('but not all of it was saved', 'red')}"
    if view.generation > 1 and view.outcome is None:
        text += f", generation {view.generation}"
    if view.restarts:
        text += f", {human.counted(view.restarts, 'restart')}"
    if view.queue and view.live:
        text += f", in the queue {view.queue}"
    return text


def _failure(failure: FailureView, view: JobView, paint: Paint, width: int | None) -> Iterator[str]:
    verdict = view.reason.removeprefix(failure.what).lstrip("; ")
    where = f"{failure.cause}, generation {failure.generation}"
    if failure.attempt is not None:
        where += f", attempt {failure.attempt}"
    yield from _labelled("Failed first", failure.what, paint, width, "red")
    yield from _labelled("Why", f"{where}{'; ' if verdict else ''}{verdict}", paint, width)
    yield from _labelled("What to do", failure.advice or view.advice, paint, width)
    if failure.tail:
        of = f" of {failure.task}" if failure.task else ""
        yield ""
        yield f"  {paint(f'Last lines{of}', bold=True)}"
        for line in failure.tail[-TAIL:]:
            yield f"    {_printable(line)}"


def _unsaved(view: JobView, paint: Paint, width: int | None) -> Iterator[str]:
    """What of the job is saved nowhere, and gone with the containers, or saved under no name."""
    from howdah.storage.outputs import UNPUBLISHED  # few jobs have anything to say here

    shown = view.unsaved[:UNSAVED_SHOWN]
    for number, line in enumerate(shown):
        yield from _labelled("Not saved" if number == 0 else "", line, paint, width, "red")
    if len(view.unsaved) > len(shown):
        more = f"and {len(view.unsaved) - len(shown)} more: howdah status --json {view.job_id}"
        yield from _labelled("", more, paint, None)
    told = [line for line in view.unsaved if REMEDY in line or line.startswith(UNPUBLISHED)]
    if view.outcome is not None and len(told) < len(view.unsaved):
        yield from _labelled(
            "What to do",
            "Make the store writable, or name another (`checkpoint.store`, `outputs.store`), and "
            "run the job again.",
            paint,
            width,
        )


def _made(view: JobView, paint: Paint, width: int | None) -> Iterator[str]:
    """What programs have left in their working folders, and where it is."""
    makers = [(task.task, task.made) for task in view.tasks if task.made]
    for number, (task, made) in enumerate(makers[:MADE_SHOWN]):
        files = human.counted(made.files, "file")
        named = ", ".join(made.names) + (", …" if len(made.names) < made.files else "")
        size = human.mebibytes(made.size / 2**20)
        text = f"{task} made {files}, {size}, besides checkpoints and outputs: {named}"
        lost = made.files - made.kept
        if not made.kept:
            text += "; not kept"
        elif lost:
            text += f"; {lost} of them are not kept"
        yield from _labelled("Files" if number == 0 else "", _printable(text), paint, width)
        if made.place:
            yield from _labelled("", f"kept in {made.place}", paint, None)
    if len(makers) > MADE_SHOWN:
        more = f"and {len(makers) - MADE_SHOWN} more tasks: howdah status --json {view.job_id}"
        yield from _labelled("", more, paint, None)
    if any(made.kept < made.files for _, made in makers):
        keep = '`[outputs] keep = "all"`, or a list of patterns, keeps such files.'
        yield from _labelled("", keep, paint, width)


def advice_lines(
    findings: Sequence[Finding], paint: Paint, width: int | None, indent: str = ""
) -> list[str]:
    """Findings, each with what to change."""
    lines: list[str] = []
    room = None if width is None else width - len(indent) - 2
    for each in findings:
        severe = each.severity >= Severity.SEVERE
        first, *more = _wrapped(each.text, room)
        lines.append(f"{indent}{paint(first, 'yellow' if severe else None)}")
        lines += [f"{indent}  {line}" for line in more]
        lines += [f"{indent}  {line}" for line in _wrapped(f"→ {each.change}", room)]
    return lines


def _earlier(failures: list[FailureView], paint: Paint, width: int | None) -> Iterator[str]:
    yield f"  {paint('Before that', bold=True)}"
    for failure in failures:
        cost = human.budget(failure.counted)
        text = f"generation {failure.generation}: {failure.what} ({failure.cause}, {cost})"
        first, *more = _wrapped(text, None if width is None else width - 6)
        yield f"    {first}"
        yield from (f"      {line}" for line in more)


def _next(view: JobView, paint: Paint, failure: FailureView | None) -> Iterator[str]:
    """What to do next: commands and a path, never broken, for they are copied."""
    task = f" --task {failure.task}" if failure is not None and failure.task else ""
    resume = " --resume" if view.checkpoint else ""
    yield from _labelled("Logs", f"howdah logs {view.job_id}{task}", paint, None)
    if view.live:
        yield from _labelled("Follow", f"howdah attach {view.job_id}", paint, None)
        firm = " --now" if view.ending else ""
        yield from _labelled("Stop", f"howdah stop{firm} {view.job_id}", paint, None)
    elif view.outcome != "succeeded" or view.unsaved:
        if view.lost and view.tasks:
            yield from _labelled("Go on", f"howdah attach --revive {view.job_id}", paint, None)
        yield from _labelled("Again", f"howdah rerun {view.job_id}{resume}", paint, None)
    yield from _labelled("Folder", view.directory, paint, None)


def _labelled(
    label: str, text: str, paint: Paint, width: int | None, colour: str | None = None
) -> Iterator[str]:
    """A label and its text, wrapped under itself in a window; nothing if there is no text."""
    if not text:
        return
    lines = _wrapped(text, None if width is None else width - LABEL)
    if colour is not None:
        lines = [paint(line, colour) for line in lines]
    yield f"  {paint(label.ljust(LABEL - 2), bold=True)}{lines[0]}"
    for line in lines[1:]:
        yield f"{' ' * LABEL}{line}"


def _wrapped(text: str, width: int | None) -> list[str]:
    """The text in lines of that width; commands and addresses, which are copied, stay whole."""
    if width is None or display_width(text) <= width or "\x1b" in text:
        return [text]
    width = max(width, 20)
    return textwrap.wrap(text, width, break_on_hyphens=False, break_long_words=False)


def _printable(line: str) -> str:
    """A line of a log without what would move the cursor; colours stay out of tables."""
    return "".join(c for c in line if c.isprintable() or c == "\t")
