"""TonY (github.com/tony-framework/TonY): its configuration and command line, as a job of Howdah.

`read` is the whole of it; `howdah.compat.tony.table` is the mapping as data, which the converter
follows and the documentation shows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from howdah.compat.tony import settings as settings_files
from howdah.compat.tony.convert import convert
from howdah.compat.tony.options import Arguments
from howdah.compat.tony.settings import Settings
from howdah.compat.tony.work import Conversion

DEFAULT_FILE = "tony.xml"


class FromTony(msgspec.Struct, frozen=True, kw_only=True):
    """A job of TonY, converted."""

    made: Conversion
    settings: Settings
    file: Path | None
    """Its own configuration; None where the command line said everything."""

    @property
    def label(self) -> str:
        """What to call it."""
        return str(self.file) if self.file is not None else "TonY's command line"


def read(file: Path | None, given: Arguments, env: Mapping[str, str] = os.environ) -> FromTony:
    """A job of TonY as a job file's document.

    Without a file, ``-conf_file`` names it, or it is ``tony.xml`` in the current folder, if there
    is one.

    Raises:
        JobFileError: all problems at once.
    """
    if file is None and given.conf_file is not None:
        file = Path(given.conf_file)
    if file is None and Path(DEFAULT_FILE).is_file():
        file = Path(DEFAULT_FILE)
    found = settings_files.read(file, given.conf, env)
    return FromTony(made=convert(found, given), settings=found, file=file)
