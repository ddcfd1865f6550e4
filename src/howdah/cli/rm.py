"""``howdah rm``: remove jobs that have ended."""

from __future__ import annotations

import click

from howdah.cli.jobs import find_job, job_ids_argument, json_option, store_option
from howdah.cli.terminal import echo, echo_json


@click.command("rm")
@job_ids_argument
@store_option
@json_option
def command(job_ids: tuple[str, ...], store: str | None, as_json: bool) -> int:
    """Remove jobs that have ended, with all that is in their directories.

    Their logs, their event logs, and the checkpoints and outputs that are kept in the job directory go
    with them, here and on HDFS. What a job file sends elsewhere stays. A job that has not ended is
    refused, and so is one that a running job was begun from.

    Exits with 0 if all were removed. With --json: {"removed": [{"job_id", "bytes"}, …], "failed":
    [{"job_id", "reason"}, …]}.
    """
    from howdah.cli.removing import Removing

    removing = Removing(as_json)
    for job_id in dict.fromkeys(job_ids):
        removing.remove(job_id, lambda job_id=job_id: find_job(job_id, store))
    if as_json:
        echo_json(removing.document())
    elif len(job_ids) > 1:
        echo(removing.total())
    return removing.exit_code
