"""``howdah stack``: where running tasks' threads are."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Mapping, Sequence

import click

from howdah.cli import leaving
from howdah.cli.arguments import handle_of, json_option, store_option, tasks_argument
from howdah.cli.display.terminal import echo, echo_json

AT_ONCE = 32
"""Tasks that are asked at the same time."""
NAMED = 4
"""Tasks of a group that are named before they are counted only."""

_VARIES = re.compile(
    r"^Process \d+: .*$"
    r"|^(?:  )?(?:VmRSS|SigQ):.*$"
    r"|(?<=^  Thread )\S+"
    r"| \((?:active|idle)[^()]*\)$"
    r"|(?<= \()/.*/(?=[^/]+:\d+\)$)",  # each task has its own copy of the source
    re.MULTILINE,
)
"""What differs between processes that are at the same place."""


@click.command("stack")
@tasks_argument
@store_option
@json_option
def command(job_id: str | None, tasks: tuple[str, ...], store: str | None, as_json: bool) -> int:
    """Show where running tasks' Python threads are (by py-spy).

    ID is a job's id, its name, or enough of its beginning; by default the newest job. TASK is a
    task such as worker:1, or a role for all of its tasks; by default all running tasks. Tasks at
    the same place are shown once, the largest group first. So a task that hangs somewhere else
    comes last.

    This stops the programs for some milliseconds; they do not notice.

    Of a task with more than 128 processes, the programs come first and then as many of their children
    as there is room for; the end says how many were left out.

    Exits with 0 if all stacks could be taken. With --json: one JSON object per task and line,
    {"task": …, "text": …}, with "problem" in place of "text" if a stack could not be taken.
    """
    from howdah.backends.base import BackendError
    from howdah.cli.display.formatting import Paint, wants_colour
    from howdah.cli.failures import report
    from howdah.client.errors import BadInput, HowdahError
    from howdah.core.state import UP

    async def take() -> tuple[dict[str, str], dict[str, HowdahError | BackendError]]:
        handle = handle_of(job_id, store)
        names = [str(task) for task in handle.tasks(*tasks)]
        if not names:
            view = await handle.status()
            if view.over:
                raise BadInput(f"{view.job_id} has ended: it has no stacks to show")
            up = {state.value for state in UP}
            names = [task.task for task in view.tasks if task.state in up]
            if not names:
                raise BadInput(f"no task of {view.job_id} runs now: it is {view.phase}")
        turns = asyncio.Semaphore(AT_ONCE)
        taken: dict[str, str] = {}
        problems: dict[str, HowdahError | BackendError] = {}

        async def one(name: str) -> None:
            async with turns:
                try:
                    taken[name] = await handle.stacks(name)
                except (HowdahError, BackendError) as error:
                    problems[name] = error

        await asyncio.gather(*map(one, names))
        return {name: taken[name] for name in names if name in taken}, problems

    taken, problems = leaving.run(take())
    if as_json:
        for name, text in taken.items():
            echo_json({"task": name, "text": text})
        for name, error in problems.items():
            echo_json({"task": name, "problem": str(error)})
    else:
        paint = Paint(wants_colour(sys.stdout))
        for names, text in grouped(taken):
            if len(taken) > 1:
                echo(paint(_heading(names), bold=True), color=paint.colour)
            echo(text)
    return max((report(error) for error in problems.values()), default=0)


def grouped(stacks: Mapping[str, str]) -> list[tuple[list[str], str]]:
    """The tasks by where they are, with the stacks of the first; the largest group first. Pure."""
    groups: dict[str, list[str]] = {}
    for name, text in stacks.items():
        groups.setdefault(_VARIES.sub("", text), []).append(name)
    found = sorted(groups.values(), key=len, reverse=True)
    return [(names, stacks[names[0]]) for names in found]


def _heading(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED])
    if len(names) == 1:
        return f"{shown}:"
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{len(names)} tasks, {shown}{more}; of {names[0]}:"
