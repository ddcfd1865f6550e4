"""Commands for job files: ``init``, ``check``, ``schema``."""

from __future__ import annotations

import textwrap
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from howdah.cli import tony_options as tony
from howdah.cli.arguments import DEFAULT_FILE, backend_option, json_option, set_option
from howdah.cli.display.terminal import echo, echo_json


@click.command("init")
@click.argument("path", required=False, type=click.Path(path_type=Path), default=DEFAULT_FILE)
@click.option(
    "--framework",
    default="command",
    show_default=True,
    metavar="NAME",
    help="Framework of the job; tensorflow-ps is TensorFlow with parameter servers.",
)
@click.option(
    "--from-tony",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Convert a job of TonY, such as tony.xml; TonY's own options work too.",
)
@tony.tony_options
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@json_option
@click.pass_context
def init_command(
    ctx: click.Context,
    path: Path,
    framework: str,
    from_tony: Path | None,
    force: bool,
    as_json: bool,
    **of_tony: Any,
) -> None:
    """Write a commented job file to start from.

    PATH is job.toml by default; "-" is standard output.

    With --json: one JSON object, {"path": …, "framework": …}.
    """
    import json

    from howdah.spec.templates import SCHEMA

    options = tony.taken(of_tony)
    if from_tony is None and (used := tony.used(options)):
        raise click.UsageError(
            f"-{used[0]} is an option of TonY: say --from-tony tony.xml too", ctx
        )
    if from_tony is not None:
        if ctx.get_parameter_source("framework") is not ParameterSource.DEFAULT:
            raise click.UsageError("--framework does not go with --from-tony, which has one", ctx)
        here = Path.cwd() if str(path) == "-" else path.parent
        text = SCHEMA + tony.job_file(from_tony, options, here)
    else:
        text = _template(framework)
    if str(path) == "-":
        click.echo(text, nl=False)
        return
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(
            f"{path} is there already; give another name, or --force to replace it"
        ) from None
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error
    written = tomllib.loads(text)
    if as_json:
        framework = written.get("framework", "command")
        click.echo(json.dumps({"path": str(path), "framework": framework}))
    else:
        click.echo(
            f"wrote {path}.{_to_write(written, path.parent)} 'howdah check {path}' checks it, "
            f"'howdah run {path}' runs it"
        )


def _to_write(job: dict[str, Any], folder: Path) -> str:
    """Which script a new job file needs and does not have."""
    from howdah.client.submission.scripts import script_of

    script = script_of(job.get("command", ""))
    if script is None or (folder / (file := Path(job.get("source", ""), script))).exists():
        return ""
    return f" Write {file}, which it runs, before you check it."


def _template(framework: str) -> str:
    import difflib
    import json

    from howdah.frameworks import registry
    from howdah.spec.templates import NAMES, PLUGIN, template

    if framework in NAMES:
        return template(framework)
    if framework in registry.plugins():
        return template(PLUGIN).replace('"NAME"', json.dumps(framework), 1)
    known = [*NAMES, *sorted(registry.plugins())]
    close = difflib.get_close_matches(framework, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
    raise click.BadParameter(
        f"there is no framework {framework!r}; {hint}", param_hint="--framework"
    )


@click.command("check")
@click.argument("job", required=False, type=click.Path(path_type=Path), default=DEFAULT_FILE)
@set_option("Override a value of the file before the check; repeatable.")
@backend_option
@click.option("--probe", is_flag=True, help="Try stores that are not on this machine too.")
@json_option
def check_command(
    job: Path, overrides: tuple[str, ...], backend: str, probe: bool, as_json: bool
) -> int:
    """Report every problem of a job file.

    JOB is job.toml by default. For each problem you get the file, line, key and value, what is
    wrong, and what is allowed. Exits with 0 if there is no problem, otherwise with 2.

    A key that the backend does not honour is a problem if the programs would not run as the file
    says; otherwise it is a note. That this machine cannot run the job (too little memory, no GPU, no uv, no
    such Python, program or network interface) is a note too, as the file may be meant for another one. Files that the job names,
    and scripts that its commands start, must exist. The check also tries the stores of checkpoints and outputs: it writes a small file
    there and removes it. It contacts no other machine, because a job file may be someone else's; with --probe it tries
    stores at URLs too. If only the cluster can reach a store, it says so.

    With --json: {"ok": true or false, "problems": [{"file", "line", "key", "value", "message",
    "hint"}, …], "notes": […]}.
    """
    from howdah.client.errors import ExitCode
    from howdah.client.submission import checks
    from howdah.client.submission.loading import load_file
    from howdah.spec.load import substitute_job_id
    from howdah.spec.problems import JobFileError
    from howdah.storage.jobdir import new_job_id

    try:
        loaded = load_file(job, overrides)
        example = substitute_job_id(loaded.job, new_job_id(loaded.job.name))
        notes = checks.check(loaded, example, backend, probe=probe)
        refused = checks.refused_here(loaded, backend)
    except JobFileError as error:
        if not as_json:
            raise
        echo_json({"ok": False, "problems": error.problems, "notes": []})
        return ExitCode.BAD_INPUT
    if as_json:
        echo_json({"ok": True, "problems": [], "notes": notes + refused})
    else:
        from howdah.backends.local import machine
        from howdah.cli.commands.dryrun import in_words

        if refused:
            echo(f"{job} is well-formed, but this machine can never run it as it is:")
        else:
            echo(f"{job} is fine: {in_words(loaded.job)}")
        for text in refused + notes:
            echo(textwrap.indent(textwrap.dedent(text.removeprefix(machine.NEVER)), "  "))
    return ExitCode.SUCCEEDED


@click.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of job files, for editors.

    Write it beside your job files: howdah schema > job-file.schema.json. The first line of a job
    file that 'howdah init' has written names it. Editors then complete, explain and check keys.
    """
    schema = resources.files("howdah.spec") / "job-file.schema.json"
    click.echo(schema.read_text(encoding="utf-8"), nl=False)
