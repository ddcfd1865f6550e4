"""TonY (github.com/tony-framework/TonY): its configuration and command line, as a job of Howdah.

`read` is the whole of it; `howdah.compat.tony.table` is the mapping as data, which the converter
follows and the documentation shows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from howdah.compat.tony import settings as settings_files
from howdah.compat.tony.conversion import Conversion
from howdah.compat.tony.convert import convert
from howdah.compat.tony.options import Arguments
from howdah.compat.tony.settings import Settings

DEFAULT_FILE = "tony.xml"


class FromTony(msgspec.Struct, frozen=True, kw_only=True):
    """A job of TonY, converted."""

    made: Conversion
    settings: Settings
    file: Path | None
    """Its own configuration; None where the command line said everything, or it is a URL."""
    url: str | None = None
    """The same where it is one."""

    @property
    def label(self) -> str:
        """What to call it."""
        return str(self.file or self.url or "TonY's command line")


def in_the_current_folder(name: str) -> str | None:
    """The file, if it is there."""
    return name if Path(name).is_file() else None


def read(
    file: Path | None,
    given: Arguments,
    env: Mapping[str, str] = os.environ,
    find: Callable[[str], str | None] = in_the_current_folder,
) -> FromTony:
    """A job of TonY as a job file's document.

    Without a file, ``-conf_file`` names it, a path or a URL, or it is ``tony.xml``, if there is one:
    where ``find`` finds them.

    Raises:
        JobFileError: all problems at once.
    """
    if file is None and given.conf_file is not None and "://" in given.conf_file:
        found = settings_files.read(given.conf_file, given.conf, env)
        made = convert(found, given)
        return FromTony(made=made, settings=found, file=None, url=given.conf_file)
    if file is None:
        name = find(given.conf_file or DEFAULT_FILE) or given.conf_file
        file = Path(name) if name is not None else None
    found = settings_files.read(file, given.conf, env)
    return FromTony(made=convert(found, given), settings=found, file=file)
