"""``howdah stop``: stop a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from howdah.cli import leaving
from howdah.cli.arguments import handle_of, job_id_argument, json_option, store_option
from howdah.cli.display.terminal import echo, echo_json

if TYPE_CHECKING:
    from howdah.core.messages import Record, Task


SHOWN = 8
"""Tasks that are named as they save; of more than that only the number matters."""


class Saving:
    """What a job that is being stopped still saves, from its records."""

    def __init__(self) -> None:
        self._begun: dict[Task, str] = {}
        """What the tasks that are saving said, as long as the job has not begun to end."""
        self._ending = False
        self._shown = 0

    def lines(self, record: Record) -> list[str]:
        """What to show once this record has come."""
        if record.kind == "finishing":
            self._ending = True
            return [line for text in self._begun.values() for line in self._line(text)]
        if record.task is None:
            return []
        if record.kind != "task-saving":
            self._begun.pop(record.task, None)
            return []
        if not self._ending:
            self._begun[record.task] = record.text
            return []
        return self._line(record.text)

    def _line(self, text: str) -> list[str]:
        self._shown += 1
        if self._shown > SHOWN + 1:
            return []
        return [text] if self._shown <= SHOWN else ["more tasks are saving"]


@click.command("stop")
@job_id_argument
@click.option("--now", is_flag=True, help="Kill the tasks at once and save nothing more.")
@click.option(
    "--reason", default="", metavar="TEXT", help="Reason to put into the job's event log."
)
@click.option(
    "--no-wait", is_flag=True, help="Return once the job is certain to stop, not when it has ended."
)
@store_option
@json_option
def command(
    job_id: str, now: bool, reason: str, no_wait: bool, store: str | None, as_json: bool
) -> int:
    """Stop a job.

    The job's tasks get SIGTERM, and SIGKILL after the job's stop-grace (10s by default). Then their
    last checkpoints and outputs are saved, which may take up to the job's save-limit (30m by
    default). This command waits for that, and says which tasks are saving. Stopping a job that has
    ended changes nothing.

    Exits with 0 when the job has ended, whatever its outcome. With --json: its status document.

    On YARN, you can end another user's job if you may change it ([acl] modify, modify-groups): use
    --now and its application id.
    """
    from howdah.backends import registry
    from howdah.backends.base import OnlyOwners
    from howdah.cli.display.attached import patience
    from howdah.client.following.log_lines import FollowerPosition
    from howdah.wire.messages import RecordUpdate
    from howdah.wire.status import JobView

    async def stop() -> tuple[JobView, bool]:
        handle = handle_of(job_id, store)
        before = handle.ended()
        if before is not None:
            return before, True
        await handle.stop(reason, firm=now)
        if no_wait:
            return await handle.status(), False
        if not (now or as_json) and (until := patience(handle.job_directory)):
            echo(f"howdah | stopping{until}", err=True)
        saving = Saving()
        async for update in handle.follow(FollowerPosition(), logs=False):
            if isinstance(update, RecordUpdate) and not as_json:
                for line in saving.lines(update.record):
                    echo(f"howdah | {line}", err=True)
        return await handle.wait(), False

    try:
        view, had_ended = leaving.run(stop())
    except OnlyOwners as closed:
        if not now:
            raise
        registry.end(closed.called, reason)
        if as_json:
            echo_json({"application_id": closed.called, "ended": True})
        else:
            echo(f"{closed.called} has been ended")
        return 0
    if as_json:
        echo_json(view)
        return 0
    if had_ended:
        echo(f"{view.job_id} had ended already: {view.outcome}")
    elif not view.over:
        echo(f"{view.job_id} is being stopped")
    else:
        echo(f"{view.job_id} {view.outcome}")
    return 0
