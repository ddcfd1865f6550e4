"""What each kind of error prints and exits with. Only imported when something went wrong."""

from __future__ import annotations

import errno
import traceback
from pathlib import Path

import click

from howdah.backends.base import BackendError, SubmissionCancelled
from howdah.cli.display.terminal import echo
from howdah.client.errors import ExitCode, HowdahError
from howdah.packing.archives import PackingError
from howdah.spec.problems import JobFileError
from howdah.storage.jobdir import StorageError
from howdah.storage.journal import JournalError

_NOT_OURS = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EPERM,
        errno.EROFS,
    }
)
"""A full disk, a quota, a permission, a limit: nothing that a report to us would mend."""


def report(error: BaseException) -> int:
    """Tell the user; the exit code. A traceback is printed for a defect of Howdah only."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 0
    if isinstance(error, (click.Abort, KeyboardInterrupt)):
        return ExitCode.STOPPED
    if isinstance(error, SubmissionCancelled):
        return _say(str(error), ExitCode.STOPPED)
    if isinstance(error, click.ClickException):
        error.show()
        return ExitCode.BAD_INPUT
    if isinstance(error, HowdahError):
        return _say(str(error), error.exit_code)
    if isinstance(error, (JobFileError, PackingError, StorageError, JournalError)):
        return _say(str(error), ExitCode.BAD_INPUT)
    if isinstance(error, BackendError):
        return _say(str(error), ExitCode.BACKEND)
    if isinstance(error, OSError) and (words := _of_this_machine(error)):
        return _say(words, ExitCode.BACKEND)
    traceback.print_exception(error)
    return _say(
        "this is a defect in Howdah, not in your job; please report it with the lines above",
        ExitCode.DEFECT,
    )


def _of_this_machine(error: OSError) -> str | None:
    """What is wrong with the machine or the account, where that is what an error is about."""
    if error.errno == errno.ENOENT:
        try:
            Path.cwd()
        except FileNotFoundError:
            return "the current folder is gone; go to one that is there"
    if error.errno in _NOT_OURS:
        what = f"{error.filename}: " if error.filename else ""
        return f"{what}{error.strerror}; see to that, and try again"
    return None


def _say(text: str, code: ExitCode) -> int:
    echo(f"{click.style('howdah:', fg='red', bold=True)} {text}", err=True)
    return code
