"""``howdah check``: every problem of a job file."""

from __future__ import annotations

from pathlib import Path

import click

from howdah.cli.jobs import DEFAULT_FILE, backend_option, json_option
from howdah.cli.terminal import echo, echo_json


@click.command("check")
@click.argument("job", required=False, type=click.Path(path_type=Path), default=DEFAULT_FILE)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Put a value over the file's before it is checked; repeatable.",
)
@backend_option
@json_option
def command(job: Path, overrides: tuple[str, ...], backend: str, as_json: bool) -> int:
    """Report every problem of a job file.

    JOB is job.toml unless given. Each problem has its file, line, key and value, what is wrong
    and what is allowed. Exits with 0 if there is none, else with 2.

    What the backend does not honour is a problem where the programs would not run as the file
    says, and a note elsewhere. Files that the job names must be there. The stores of checkpoints
    and outputs are tried: a small file is written there and removed. Where only the cluster can
    reach one, that is said.

    With --json: {"ok": true or false, "problems": [{"file", "line", "key", "value", "message",
    "hint"}, …], "notes": […]}.
    """
    from howdah.client import checks
    from howdah.client.exits import ExitCode
    from howdah.client.loading import load_file
    from howdah.spec.load import substitute_job_id
    from howdah.spec.problems import JobFileError
    from howdah.storage.jobdir import new_job_id

    try:
        loaded = load_file(job, overrides)
        example = substitute_job_id(loaded.job, new_job_id(loaded.job.name))
        notes = checks.check(loaded, example, backend)
    except JobFileError as error:
        if not as_json:
            raise
        import msgspec

        echo_json(msgspec.json.encode({"ok": False, "problems": error.problems, "notes": []}))
        return ExitCode.BAD_INPUT
    if as_json:
        import msgspec

        echo_json(msgspec.json.encode({"ok": True, "problems": [], "notes": notes}))
    else:
        from howdah.cli.dryrun import in_words

        echo(f"{job} is fine: {in_words(loaded.job)}")
        for text in notes:
            echo(f"  {text}")
    return ExitCode.SUCCEEDED
