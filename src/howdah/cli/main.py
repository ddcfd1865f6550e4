"""The ``howdah`` command: finds the subcommand, and turns every error into words and a code.

Nothing but click is imported before a subcommand is known: ``howdah --help`` must be quick.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

GROUPS = {
    "Run jobs": {
        "init": "Write a commented job file to start from.",
        "check": "Report every problem of a job file.",
        "run": "Run a job and follow it until it ends.",
        "submit": "Start a job and leave it running.",
        "rerun": "Run a job again.",
        "sweep": "Run a job once for each of many settings, and compare what came out.",
        "notebook": "Run JupyterLab in a container until Ctrl-C.",
        "score": "Score files with a saved model, on Spark.",
        "tony": "Run a job of TonY by its own command line.",
    },
    "Look at jobs": {
        "list": "List jobs.",
        "status": "Show one job: its tasks, failures and pages.",
        "attach": "Follow a running job; Ctrl-C leaves it running.",
        "logs": "Print what a job's tasks wrote.",
        "events": "Print a job's event log.",
        "metrics": "Print what was measured of a job's tasks, and what they reported.",
        "stack": "Show where running tasks' Python threads are (by py-spy).",
        "outputs": "List the files that were kept of a job, or fetch one.",
        "advice": "Say what a job wasted, and what to change in its job file.",
    },
    "Control running jobs": {
        "exec": "Run a command beside a task's program, or a shell.",
        "stop": "Stop a job.",
    },
    "Open pages in the browser": {
        "page": "Print the address of a job's page; that of a job that has ended is served until Ctrl-C.",
        "ui": "Show all jobs in the browser, running and past, until Ctrl-C.",
        "portal": "Show the jobs of all users below a store to a team, behind a reverse proxy, until Ctrl-C.",
        "tunnel": "Open a port of this machine that leads to a page of a job, until Ctrl-C.",
    },
    "Account for past jobs and remove them": {
        "history": "Add up what jobs held, and how much of it was useful.",
        "rm": "Remove jobs that have ended, with all that is in their directories.",
        "prune": "Remove jobs that ended long ago; without --yes, list them.",
    },
    "Set up this machine and clusters": {
        "doctor": "Check what this machine offers to jobs.",
        "pack": "Pack what a job ships to a cluster, and explain it.",
        "completion": "Print what makes a shell complete commands, options and job ids.",
        "schema": "Print the JSON Schema of job files, for editors.",
    },
}
"""Headings of ``howdah --help``, each with its commands in the order people use them: name to first line
of help. A test holds both against the commands themselves."""

COMMANDS = {name: text for commands in GROUPS.values() for name, text in commands.items()}
"""Name to first line of help, in the order of the groups."""

_MODULES = {
    "run": "run",
    "submit": "run",
    "rerun": "run",
    "attach": "run",
    "status": "show",
    "events": "show",
    "advice": "show",
    "metrics": "show",
    "outputs": "show",
    "ui": "pages",
    "page": "pages",
    "tunnel": "pages",
    "rm": "removal",
    "prune": "removal",
    "check": "job_file",
    "init": "job_file",
    "schema": "job_file",
}
"""Modules with several commands, each as ``<name>_command``. Any other is ``command`` in a module of
its own name."""


class ReaderGone(Exception):
    """The reader of our output has enough (``| head``): no error, and nothing to say."""


class LazyGroup(click.Group):
    """Imports a subcommand's module when it is wanted, and not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"howdah.cli.commands.{_MODULES.get(cmd_name, cmd_name)}")
        command = getattr(module, f"{cmd_name}_command" if cmd_name in _MODULES else "command")
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """As click's, without importing every command for its help."""
        from click.shell_completion import CompletionItem

        options = click.Command.shell_complete(self, ctx, incomplete)
        commands = COMMANDS.items() if ctx.invoked_subcommand is None else ()
        found = [
            CompletionItem(each, help=text)
            for each, text in commands
            if each.startswith(incomplete)
        ]
        return [*found, *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # All groups have one column of names: the longest of all, not of each.
        longest = max(map(len, COMMANDS))
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(longest), text) for name, text in commands.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGone from error  # click would exit with code 1

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in COMMANDS:
            ctx.fail(f"There is no command {name!r}.{_did_you_mean(name)}")
        return super().resolve_command(ctx, args)


def _did_you_mean(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, n=1)
    if close:
        return f" Did you mean {close[0]!r}?"
    if os.path.exists(name):
        return f" To run a job file: howdah run {name}"
    return " 'howdah --help' lists the commands."


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        from howdah.version import __version__

        click.echo(f"howdah {__version__}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 succeeded, 1 the job failed, 2 bad input, 3 the backend refused or "
    "cannot be reached, 4 timed out, 5 succeeded but not all of it was saved, 130 stopped.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Print the version and exit.",
)
def cli() -> None:
    """Distributed training jobs from one job file."""


def _open_closed_streams() -> None:
    """Open standard streams that were closed (`>&-`, some daemons): the next file opened would be one of
    them, and what is printed would go into it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)  # as the other standard streams are
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - for good


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns its exit code."""
    _open_closed_streams()
    try:
        result: Any = cli.main(
            args=list(argv) if argv is not None else None,
            prog_name="howdah",
            standalone_mode=False,
        )
        sys.stdout.flush()
    except (ReaderGone, BrokenPipeError):
        # Nothing more may be written, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except BaseException as error:
        from howdah.cli.failures import report

        return report(error)
    return int(result or 0)


def program() -> int:
    """The process of one command line, which ends when it is told to; returns its exit code."""
    from howdah.cli.leaving import exit_soon, never_lose_ctrl_c

    never_lose_ctrl_c()
    code = main()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    exit_soon(code)
    return code
