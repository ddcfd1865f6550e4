"""``howdah init``: a commented job file to start from."""

from __future__ import annotations

from pathlib import Path

import click

from howdah.cli.jobs import DEFAULT_FILE, json_option


@click.command("init")
@click.argument("path", required=False, type=click.Path(path_type=Path), default=DEFAULT_FILE)
@click.option(
    "--framework", default="command", show_default=True, metavar="NAME", help="For which framework."
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@json_option
def command(path: Path, framework: str, force: bool, as_json: bool) -> None:
    """Write a commented job file to start from.

    PATH is job.toml unless given; "-" is standard output.

    With --json: one JSON object, {"path": …, "framework": …}.
    """
    import difflib
    import json

    from howdah.frameworks import registry
    from howdah.spec.templates import template

    known = registry.names()
    if framework not in known:
        close = difflib.get_close_matches(framework, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
        raise click.BadParameter(
            f"there is no framework {framework!r}; {hint}", param_hint="--framework"
        )
    text = template(framework)
    if str(path) == "-":
        click.echo(text, nl=False)
        return
    try:
        with path.open("w" if force else "x") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(
            f"{path} is there already; give another name, or --force to replace it"
        ) from None
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error
    if as_json:
        click.echo(json.dumps({"path": str(path), "framework": framework}))
    else:
        click.echo(f"wrote {path}; 'howdah check {path}' checks it, 'howdah run {path}' runs it")
