"""``--tony`` and TonY's own options, for commands that start a job."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from howdah.cli.display.terminal import echo

if TYPE_CHECKING:
    from howdah.compat.tony import FromTony
    from howdah.compat.tony.conversion import Conversion
    from howdah.compat.tony.java import CommandLine
    from howdah.spec.load import LoadedJob

F = TypeVar("F", bound=Callable[..., Any])

# As howdah.compat.tony.table has them, which is not imported for every command; a test compares.
_TEXTS = (
    "executes",
    "task_params",
    "python_binary_path",
    "python_venv",
    "src_dir",
    "hdfs_classpath",
    "conf_file",
    "sidecar_tensorboard_log_dir",
)
_REPEATED = ("shell_env", "container_env", "conf")
_SWITCHES = ("debug",)
NAMES = (*_TEXTS, *_REPEATED, *_SWITCHES)
"""TonY's options, with one dash or two."""


def tony_options(command: F) -> F:
    """TonY's command line, not shown in the help: the guide for its users lists it."""
    for name in reversed(NAMES):
        # Only switches may say is_flag: with False, click takes the value for optional, and one that
        # begins with a dash for another option.
        switch: dict[str, Any] = {"is_flag": True} if name in _SWITCHES else {}
        command = click.option(
            f"--{name}",
            f"-{name}",
            f"tony_{name}",
            hidden=True,
            multiple=name in _REPEATED,
            **switch,
        )(command)
    return command


def taken(options: dict[str, Any]) -> dict[str, Any]:
    """Take TonY's options out of a command's; by TonY's names."""
    return {name: options.pop(f"tony_{name}") for name in NAMES if f"tony_{name}" in options}


def used(options: dict[str, Any]) -> list[str]:
    """Those that were given."""
    return [name for name, value in options.items() if value not in (None, (), False)]


def convert(
    file: Path | None, options: dict[str, Any], line: CommandLine | None = None
) -> FromTony:
    """The job of TonY that a command line describes.

    Raises:
        JobFileError: all problems at once.
    """
    from howdah.compat import tony
    from howdah.compat.tony.options import arguments

    given = arguments(options)
    if line is None or file is not None:
        return tony.read(file, given)
    return tony.read(None, given, find=line.find)


def load(
    file: Path | None,
    options: dict[str, Any],
    overrides: tuple[str, ...] = (),
    *,
    tensorboard: bool = False,
    line: CommandLine | None = None,
) -> LoadedJob:
    """The same, loaded like a job file; what there is to tell is told on standard error.

    Raises:
        JobFileError: all problems at once.
    """
    from howdah.client.submission import loading

    found = convert(file, options, line)
    tell(found.made)
    path = found.file.absolute() if found.file is not None else None
    if path is not None and path.parent != Path.cwd():
        path = None  # what it names is relative to this folder, not to its own
    document = found.made.document
    if tensorboard:
        document = {"tensorboard": {}, **document}
    return loading.load_document(document, overrides, label=found.label, path=path)


def job_file(file: Path | None, options: dict[str, Any], folder: Path) -> str:
    """The text of a job file in ``folder`` that is the same job.

    Raises:
        JobFileError: all problems at once.
    """
    from msgspec.structs import replace

    from howdah.compat.tony.write import job_file, moved

    found = convert(file, options)
    tell(found.made)
    document = moved(found.made.document, str(Path.cwd()), str(folder.absolute()))
    return job_file(replace(found.made, document=document), found.settings, found.label)


def tell(made: Conversion) -> None:
    """Say what was left out or is different, all at once."""
    for note in made.notes:
        echo(f"howdah: {note}", err=True)
