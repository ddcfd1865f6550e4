"""``howdah completion``: completion of commands, options and job ids by the shell, click's own."""

from __future__ import annotations

import contextlib

import click
from click.shell_completion import get_completion_class

from howdah.cli.terminal import echo

VARIABLE = "_HOWDAH_COMPLETE"
"""By it the shell asks: click's name for a program called howdah."""
SHOWN = 50
"""The newest jobs that are offered."""


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def command(shell: str) -> None:
    """Print what makes a shell complete commands, options and job ids.

    \b
        bash  eval "$(howdah completion bash)"         in ~/.bashrc; bash 4.4 or newer
        zsh   eval "$(howdah completion zsh)"          in ~/.zshrc, after compinit
        fish  howdah completion fish > ~/.config/fish/completions/howdah.fish
    """
    from howdah.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None
    with contextlib.suppress(RuntimeError):  # click looks for a bash that is too old, and says so
        echo(found(cli, {}, "howdah", VARIABLE).source())


def jobs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """What jobs are called that begins so: ids, newest first, names, and the newest one."""
    from howdah.client.finding import LAST, base
    from howdah.storage.jobdir import StorageError, list_jobs, name_of

    try:
        ids = [each.job_id for each in list_jobs(base(ctx.params.get("store")))]
    except (StorageError, OSError):
        return []
    matching = [each for each in ids if each.startswith(incomplete)][:SHOWN]
    names = dict.fromkeys(
        name for each in matching if (name := name_of(each)).startswith(incomplete)
    )
    last = [LAST] if ids and LAST.startswith(incomplete) else []
    return [*last, *names, *matching]


def tasks(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Roles and tasks of the job that begin so."""
    from howdah.cli.jobs import handle_of
    from howdah.client.errors import HowdahError
    from howdah.storage.jobdir import StorageError

    try:
        found = handle_of(ctx.params.get("job_id"), ctx.params.get("store")).all_tasks()
    except (HowdahError, StorageError, OSError):
        return []
    named = dict.fromkeys([*(task.role for task in found), *map(str, found)])
    return [name for name in named if name.startswith(incomplete)]
