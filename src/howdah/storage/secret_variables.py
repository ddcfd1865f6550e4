"""The values of a job's ``[secrets]``: a file of its ``secrets`` folder, which only the owner can read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from howdah.storage.files import read_regular, write_private

FILE = "variables.json"


def write(folder: Path, values: Mapping[str, str]) -> None:
    """Keep them in that ``secrets`` folder; no file without any.

    Raises:
        OSError: it cannot be written.
    """
    if values:
        write_private(folder / FILE, msgspec.json.encode(values))


def read(folder: Path) -> dict[str, str]:
    """What is kept there.

    Raises:
        OSError: it cannot be read.
        msgspec.DecodeError: it is damaged.
    """
    try:
        return msgspec.json.decode(read_regular(folder / FILE), type=dict[str, str])
    except FileNotFoundError:
        return {}
