"""Options and arguments that several commands have: which job (a file, a command behind ``--``, an id), tasks, since."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from howdah.cli import tony_options as tony

if TYPE_CHECKING:
    from howdah.client.handle import AsyncJobHandle
    from howdah.compat.tony.java import CommandLine
    from howdah.spec.load import LoadedJob
    from howdah.storage.jobdir import JobDirectory, StorageError

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_FILE = "job.toml"

_COMMAND = "howdah.command"
TONY = "howdah.tony"
"""Where a context keeps the command line of TonY (`howdah.compat.tony.java.CommandLine`)."""


class JobCommand(click.Command):
    """A subcommand whose arguments may end with ``-- COMMAND...``, kept apart from options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = tuple(args[at + 1 :])
            args = args[:at]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name in ("--detach", "-d") and ctx.info_name == "run":
                raise click.UsageError(
                    "'howdah run' follows a job until it ends; 'howdah submit', with the same arguments, "
                    "leaves it running",
                    ctx,
                ) from error
            raise

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*filter(None, super().collect_usage_pieces(ctx)), "[-- COMMAND...]"]


def command_of(ctx: click.Context) -> tuple[str, ...]:
    """What stood behind ``--`` of a `JobCommand`."""
    return ctx.meta.get(_COMMAND, ())


def _backend(_ctx: click.Context, _param: click.Parameter, name: str | None) -> str:
    from howdah.client.submission.begin import default_backend

    return name or default_backend()


dry_run_option = click.option(
    "--dry-run",
    is_flag=True,
    help="Show exactly what would start, with every task's command and environment; start nothing.",
)
backend_option = click.option(
    "--backend",
    metavar="NAME",
    callback=_backend,
    help="Where to run it: 'local' is this machine, 'yarn' a Hadoop cluster, 'spark' the Spark "
    "application of spark-submit or a new one. By default $HOWDAH_BACKEND, then the site "
    "file's, then local.",
)


def set_option(text: str) -> Callable[[F], F]:
    """``--set``: settings over those of a job, ``KEY=VALUE``."""
    return click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help=text)


def job_source(command: F) -> F:
    """The arguments and options that say what to run; `load_job` takes them."""
    command = tony.tony_options(command)
    for option in reversed(_SOURCE_OPTIONS):
        command = option(command)
    return command


_SOURCE_OPTIONS = (
    click.argument("job", required=False, type=click.Path(path_type=Path)),
    click.argument("extra", nargs=-1, metavar=""),
    click.option(
        "--framework",
        metavar="NAME",
        help="Framework of a job without a job file; by default 'command'.",
    ),
    click.option(
        "--role",
        "roles",
        multiple=True,
        metavar="NAME=N",
        help="A role and its number of tasks (or min..max) of a job without a job file; "
        "repeatable. By default one worker.",
    ),
    click.option("--name", metavar="NAME", help="Name of a job without a job file."),
    set_option("Override a value of the job file, such as roles.worker.instances=4; repeatable."),
    click.option(
        "--tony",
        "tony_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Run a job of TonY, such as tony.xml; TonY's own options work too.",
    ),
    click.option(
        "--tensorboard", is_flag=True, help="Run TensorBoard as a sidecar, on the job's page."
    ),
    click.option(
        "--in-place",
        is_flag=True,
        help="Run in your own folder, not in a copy of it: programs write their files there.",
    ),
    backend_option,
)


def load_job(
    ctx: click.Context,
    job: Path | None,
    extra: tuple[str, ...],
    framework: str | None,
    roles: tuple[str, ...],
    name: str | None,
    overrides: tuple[str, ...],
    tensorboard: bool,
    in_place: bool,
    tony_file: Path | None = None,
    **of_tony: Any,
) -> LoadedJob:
    """The job that a command line describes.

    Raises:
        click.UsageError: it does not describe one.
        JobFileError: the job cannot be run; all problems at once.
    """
    command = ctx.meta.get(_COMMAND)
    if in_place:
        overrides = (*overrides, "in-place=true")
    if extra:
        words = " ".join([str(job), *extra])
        raise click.UsageError(
            f"{extra[0]!r} is one argument too many. A command goes behind two dashes: "
            f"howdah {ctx.info_name} -- {words}",
            ctx,
        )
    flags = [
        flag
        for flag, given in (("--framework", framework), ("--role", roles), ("--name", name))
        if given
    ]
    options = tony.taken(of_tony)
    line: CommandLine | None = ctx.meta.get(TONY)
    if tony_file is not None or line is not None or tony.used(options):
        others = [*flags, *(["a command behind --"] if command else [])]
        _only_tony(ctx, job, tony_file, options, others)
        return tony.load(tony_file, options, overrides, tensorboard=tensorboard, line=line)
    if job is None and command is None and not flags and Path(DEFAULT_FILE).is_file():
        job = Path(DEFAULT_FILE)
    if job is None:
        if not command:
            raise click.UsageError(
                f"there is nothing to run: give a job file (there is no {DEFAULT_FILE} here), or a "
                f"command behind two dashes: howdah {ctx.info_name} -- python train.py. "
                "'howdah init' writes a job file to start from",
                ctx,
            )
    elif command is not None:
        raise click.UsageError(
            f"{job} is a job file and there is a command behind --: give one of them. To run the "
            "file with another command: --set command='python train.py'",
            ctx,
        )
    elif flags:
        raise click.UsageError(
            f"{flags[0]} is for jobs without a job file; to change what {job} says: "
            f"--set {_SETTING[flags[0]]}",
            ctx,
        )
    from howdah.client.submission import loading

    def load(settings: tuple[str, ...]) -> LoadedJob:
        if job is not None:
            return loading.load_file(job, settings)
        return loading.load_flags(framework, roles, command or (), settings, name=name)

    loaded = load(overrides)
    if tensorboard and loaded.job.tensorboard is None:
        loaded = load((*overrides, "tensorboard={}"))
    return loaded


def _only_tony(
    ctx: click.Context,
    job: Path | None,
    file: Path | None,
    options: dict[str, Any],
    others: list[str],
) -> None:
    """Refuse what makes no sense with a job of TonY."""
    used = tony.used(options)
    what = "--tony" if file is not None else f"-{used[0]}" if used else "howdah tony"
    if job is not None:
        raise click.UsageError(
            f"{job} is a job file, and {what} is for jobs of TonY: give one of them", ctx
        )
    if others:
        raise click.UsageError(f"{others[0]} does not go with {what}; use --set", ctx)
    if file is not None and options.get("conf_file") is not None:
        raise click.UsageError("--tony and -conf_file name the same: give one of them", ctx)


_SETTING = {
    "--framework": "framework=pytorch",
    "--role": "roles.worker.instances=4",
    "--name": "name=digits",
}

MOST = 999_999_999
"""No number on a command line is larger."""

OFFERED = 50
"""The newest jobs that a shell completes."""

store_option = click.option(
    "--store",
    metavar="FOLDER",
    help="Base folder (or hdfs:// URL) of job directories, if it is not $HOWDAH_HOME/jobs or "
    "~/.howdah/jobs.",
)
of_backend_option = click.option(
    "--backend",
    metavar="NAME",
    help="Only jobs of this backend; with 'yarn', also those you submitted from other machines.",
)
tags_option = click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="TAG",
    help="Only jobs with this tag; repeatable, for jobs with all of the tags.",
)
name_option = click.option(
    "--name", metavar="NAME", help="Only jobs of this name; * and ? stand for any characters."
)
port_option = click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port on this machine; by default any free one.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _jobs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """What jobs are called that begins so: ids, newest first, names, and the newest one."""
    from howdah.backends.base import BackendError
    from howdah.client.lookup.find import LAST, ids
    from howdah.storage.jobdir import StorageError, name_of

    try:
        found = ids(ctx.params.get("store"))
    except (StorageError, BackendError, OSError):
        return []
    matching = [each for each in found if each.startswith(incomplete)][:OFFERED]
    names = dict.fromkeys(
        name for each in matching if (name := name_of(each)).startswith(incomplete)
    )
    last = [LAST] if found and LAST.startswith(incomplete) else []
    return [*last, *names, *matching]


def _tasks(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Roles and tasks of the job that begin so."""
    from howdah.backends.base import BackendError
    from howdah.client.errors import HowdahError
    from howdah.storage.jobdir import StorageError

    try:
        found = handle_of(ctx.params.get("job_id"), ctx.params.get("store")).all_tasks()
    except (HowdahError, BackendError, StorageError, OSError):
        return []
    named = dict.fromkeys([*(task.role for task in found), *map(str, found)])
    return [name for name in named if name.startswith(incomplete)]


job_id_argument = click.argument("job_id", metavar="ID", shell_complete=_jobs)
job_ids_argument = click.argument(
    "job_ids", metavar="ID...", nargs=-1, required=True, shell_complete=_jobs
)
optional_job_id = click.argument("job_id", metavar="[ID]", required=False, shell_complete=_jobs)


def _job_and_rest(job_id: str | None, rest: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Of ``[ID] REST...`` which is which: None is the newest job.

    A task has a colon and a job has none: ``howdah logs worker:1`` is about the newest job.
    """
    if job_id is not None and ":" in job_id:
        return None, (job_id, *rest)
    return job_id, rest


def task_argument(command: F) -> F:
    """``[ID] TASK``, and what stands behind them by mistake: `job_id`, `task` and `words`."""

    @functools.wraps(command)
    def called(job_id: str | None, task: str | None, words: tuple[str, ...], **rest: Any) -> Any:
        job_id, (first, *others) = _job_and_rest(job_id, (task or "", *words))
        if not first:
            meant = f"; of {job_id}, or of the newest job without an ID" if job_id else ""
            raise click.UsageError(f"TASK is missing: a task that runs, such as worker:1{meant}")
        others = tuple(filter(None, others))
        return command(job_id=job_id, task=first, words=others, **rest)

    for argument in (
        click.argument("words", nargs=-1, metavar=""),
        click.argument("task", metavar="TASK", required=False, shell_complete=_tasks),
        optional_job_id,
    ):
        called = argument(called)
    return cast("F", called)


def tasks_argument(command: F) -> F:
    """``[ID] [TASK]...``, and ``--task``, which says the same: `job_id` and `tasks`."""

    @functools.wraps(command)
    def called(
        job_id: str | None, tasks: tuple[str, ...], task: tuple[str, ...], **rest: Any
    ) -> Any:
        job_id, tasks = _job_and_rest(job_id, tasks)
        return command(job_id=job_id, tasks=(*tasks, *task), **rest)

    for option in (
        click.option(
            "--task",
            multiple=True,
            metavar="TASK",
            help="The same as TASK; repeatable.",
            shell_complete=_tasks,
        ),
        click.argument("tasks", nargs=-1, metavar="[TASK]...", shell_complete=_tasks),
        optional_job_id,
    ):
        called = option(called)
    return cast("F", called)


def since_option(what: str) -> Callable[[F], F]:
    """``--since``: seconds since the epoch, or None."""
    return click.option(
        "--since",
        callback=_since,
        metavar="TIME",
        help=f"{what}: 30m, 12h or 7d ago, or a date such as 2026-11-24 or '2026-11-24 14:30'.",
    )


def _since(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    from howdah.spec.units import moment

    try:
        return None if text is None else moment(text, time.time())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def tail_option(default: str) -> Callable[[F], F]:
    """``--tail``: a number of lines, or None for all."""
    return click.option(
        "--tail",
        default=default,
        metavar="N|all",
        show_default=True,
        callback=_lines,
        help="Begin with the last N lines of each log, or with all lines.",
    )


def _lines(_ctx: click.Context, _param: click.Parameter, text: str) -> int | None:
    if text == "all":
        return None
    if text.isdecimal() and len(text) < 10:
        return int(text)
    raise click.BadParameter(
        f"{text[:40]!r} is neither a number of lines (at most {MOST:,}) nor 'all'"
    )


def say_passed_over(problem: StorageError) -> None:
    """Say on standard error that a job directory is left out, and why."""
    from howdah.cli.display.terminal import echo

    echo(f"howdah: passed over: {problem}", err=True)


def say_left_out(words: str) -> None:
    """Say on standard error what is left out, and why."""
    from howdah.cli.display.terminal import echo

    echo(f"howdah: left out: {words}", err=True)


def find_job(job_id: str | None, store: str | None) -> JobDirectory:
    """The job of that id, name or unique beginning; the newest one without an id.

    Raises:
        NoSuchJob: there is none; the text says which there are.
    """
    from howdah.client.lookup.find import LAST, find

    return find(job_id or LAST, store)


def handle_of(job_id: str | None, store: str | None) -> AsyncJobHandle:
    from howdah.client.handle import AsyncJobHandle

    return AsyncJobHandle(find_job(job_id, store))
