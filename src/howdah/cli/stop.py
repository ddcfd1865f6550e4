"""``howdah stop``: stop a job."""

from __future__ import annotations

import asyncio

import click

from howdah.cli.jobs import handle_of, job_id_argument, json_option, store_option


@click.command("stop")
@job_id_argument
@click.option("--now", is_flag=True, help="Kill the tasks at once, without their grace.")
@click.option("--reason", default="", metavar="TEXT", help="Kept in the job's story.")
@click.option(
    "--no-wait", is_flag=True, help="Return when the stop is certain, not when the job has ended."
)
@store_option
@json_option
def command(
    job_id: str, now: bool, reason: str, no_wait: bool, store: str | None, as_json: bool
) -> int:
    """Stop a job.

    Its tasks get SIGTERM, and SIGKILL after the job's stop-grace (10s unless the job file says
    otherwise). Stopping a job that has ended changes nothing.

    Exits with 0 when the job has ended, whatever its outcome. With --json: its status document.
    """
    from howdah.wire.status import JobView

    async def stop() -> tuple[JobView, bool]:
        handle = handle_of(job_id, store)
        before = handle.ended()
        if before is not None:
            return before, True
        await handle.stop(reason, firm=now)
        return (await handle.status() if no_wait else await handle.wait()), False

    view, had_ended = asyncio.run(stop())
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(view))
        return 0
    if had_ended:
        click.echo(f"{view.job_id} had ended already: {view.outcome}")
    elif view.outcome is None:
        click.echo(f"{view.job_id} is being stopped")
    else:
        click.echo(f"{view.job_id} {view.outcome}")
    return 0
