"""``[secrets]``: where the values of variables come from that nobody but the programs may see.

A job holds these references and never the values: it is written, shown, compared and sent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from howdah.spec.model import Job

REFERENCE = re.compile(r"\$\{(?P<kind>env|file):(?P<name>[^}]+)\}")
LONGEST = 100_000
"""Bytes of one value. Linux starts no program with a variable of 128 KiB."""


def references(job: Job) -> dict[str, str]:
    """Where each variable's value comes from. A list of names means variables of the same names."""
    if isinstance(job.secrets, dict):
        return job.secrets
    return {name: f"${{env:{name}}}" for name in job.secrets}


def value_of(reference: str, folder: Path, env: Mapping[str, str]) -> str:
    """What a reference stands for. Of a file it is the text without its last line break.

    Args:
        folder: what paths are relative to.

    Raises:
        ValueError: there is no such value, with what to do.
    """
    found = REFERENCE.fullmatch(reference)
    if found is None:
        raise ValueError("it is no reference to a variable or file")
    if found["kind"] == "env":
        if (value := env.get(found["name"])) is None:
            raise ValueError(f"the environment variable {found['name']} is not set; set it here")
        return value
    file = folder / os.path.expanduser(found["name"])  # noqa: PTH111 - leaves "~" of unknown users
    try:
        with file.open("rb") as opened:
            data = opened.read(LONGEST + 1)
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{file} is no UTF-8 text; variables hold text only") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ValueError(f"the file {file} cannot be read: {why}") from None
    if len(data) > LONGEST or "\0" in text:
        raise ValueError(
            f"{file} has more than {LONGEST} bytes, or one of them is 0: no variable can hold it"
        )
    return text.removesuffix("\n").removesuffix("\r")
