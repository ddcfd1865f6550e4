"""A job file's command as the argument list that is started."""

from __future__ import annotations

from howdah.spec.checks.scripts import is_single_call
from howdah.spec.model import Command

SH = "/bin/sh"
BASH = "/bin/bash"
"""What TonY gives commands to (``Utils.executeShell``), and every NodeManager has."""


def argv(command: Command, shell: str = SH) -> tuple[str, ...]:
    """What to execute. A list is taken as it is; a string is given to the shell.

    Where the string is a single program call, the shell is told to become that program
    (``exec``). So the process Howdah started is the user's own: a signal that ends it is seen as
    that signal, not as the shell's exit code 128 + n.
    """
    if not isinstance(command, str):
        return tuple(command)
    text = command.strip()
    return (shell, "-c", f"exec {text}" if is_single_call(text) else text)
