"""``howdah completion``: completion of commands, options and job ids by the shell, click's own."""

from __future__ import annotations

import contextlib

import click
from click.shell_completion import get_completion_class

from howdah.cli.display.terminal import echo

VARIABLE = "_HOWDAH_COMPLETE"
"""By it the shell asks: click's name for a program called howdah."""


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
