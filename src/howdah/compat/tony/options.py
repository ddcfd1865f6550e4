"""TonY's command line, read as ``TonyClient.init`` does.

An option may be written with one dash or two. What the options say wins over the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

VENV = "venv"
"""The folder TonY unpacks ``-python_venv`` to, and commands may name."""
PYTHON = ("python", "python3")
"""What commands may always call the job's interpreter."""


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """What was written behind ``ClusterSubmitter``; names are TonY's."""

    executes: str | None = None
    task_params: str | None = None
    python_binary_path: str | None = None
    python_venv: str | None = None
    src_dir: str | None = None
    hdfs_classpath: str | None = None
    shell_env: tuple[str, ...] = ()
    container_env: tuple[str, ...] = ()
    conf: tuple[str, ...] = ()
    conf_file: str | None = None
    sidecar_tensorboard_log_dir: str | None = None
    debug: bool = False

    def given(self) -> list[str]:
        """Names of the options that were used."""
        plain = Arguments()
        fields = self.__struct_fields__
        return [name for name in fields if getattr(self, name) != getattr(plain, name)]


def arguments(options: Mapping[str, Any]) -> Arguments:
    """The arguments among the options of a command line."""
    fields = Arguments.__struct_fields__
    return Arguments(**{name: _unquoted(options[name]) for name in fields if name in options})


def _unquoted(value: Any) -> Any:
    """A value without quotes around the whole of it, which TonY's parser takes away (commons-cli's
    ``Util.stripLeadingAndTrailingQuotes``)."""
    if isinstance(value, tuple):
        return tuple(map(_unquoted, value))
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"':
        return value[1:-1] if value.count('"') == 2 else value
    return value


def command(given: Arguments) -> str | None:
    """What every task runs (TonyClient.buildTaskCommand).

    An interpreter of the shipped environment is named as TonY names it; any other is the job's, and
    so it is ``python``.
    """
    if given.executes is None:
        return None
    words = [given.executes]
    path = given.python_binary_path
    if path is not None:
        inside = given.python_venv is not None and not path.startswith("/")
        words.insert(0, f"{VENV}/{path}" if inside else "python")
    if given.task_params:
        words.append(given.task_params)
    return " ".join(words)


def interpreter(given: Arguments) -> str | None:
    """The job's own interpreter, where the options name one that is not shipped with it."""
    path = given.python_binary_path
    if path is None or path in PYTHON:
        return None
    if given.python_venv is not None and not path.startswith("/"):
        return None
    return path
