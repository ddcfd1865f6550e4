"""A job file's command as the argument list that is started."""

from __future__ import annotations

import re
import shlex

from howdah.spec.model import Command

SH = "/bin/sh"
BASH = "/bin/bash"
"""What TonY gives commands to (``Utils.executeShell``), and every NodeManager has."""
_OPERATORS = re.compile(r"[;|()&]")
_BUILT_INS = frozenset(
    "! . : [ [[ alias bg break case cd command continue do done echo elif else esac eval exec exit "
    "export false fc fg fi for function getopts hash if in jobs kill local printf pwd read "
    "readonly return select set shift source test then time times trap true type ulimit umask "
    "unalias unset until wait while { builtin declare enable let mapfile popd pushd readarray shopt "
    "typeset".split()
)


def argv(command: Command, shell: str = SH) -> tuple[str, ...]:
    """What to execute. A list is taken as it is; a string is given to the shell.

    Where the string is a single program call, the shell is told to become that program
    (``exec``). So the process Howdah started is the user's own: a signal that ends it is seen as
    that signal, not as the shell's exit code 128 + n.
    """
    if not isinstance(command, str):
        return tuple(command)
    text = command.strip()
    return (shell, "-c", f"exec {text}" if _is_single_call(text) else text)


def _is_single_call(text: str) -> bool:
    """Whether ``exec`` may be put before the command without changing what it does.

    Decided narrowly: one line, no operator outside quotes that starts a second command, and a
    first word that is a program's name rather than an assignment, keyword or shell built-in.
    """
    if "\n" in text:
        return False
    quoted_away = re.sub(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", "q", text)
    without_duplication = re.sub(r"\d*>&(\d+|-)", "", quoted_away)
    if _OPERATORS.search(without_duplication):
        return False
    try:
        words = shlex.split(text)
    except ValueError:  # an unbalanced quote: the shell will say so in its own words
        return False
    return bool(words) and "=" not in words[0] and words[0] not in _BUILT_INS
