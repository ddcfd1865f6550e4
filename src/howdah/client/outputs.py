"""What a job's programs have left that was kept: its output folders, wherever they are."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from howdah.client.errors import BadInput, HowdahError
from howdah.core.messages import Task
from howdah.storage import layout
from howdah.storage.errors import in_words
from howdah.storage.jobdir import JobDirectory
from howdah.storage.outputs import job_place, published
from howdah.storage.stores.destinations import is_hidden, open_destination

CHUNK = 8 * 1024 * 1024
MOST = 8
"""Files that are named in a message."""


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was kept of a job."""

    name: str
    """Its path below the job's outputs: ``worker-0/model/weights.pt``."""
    task: str
    """Whose it is: ``worker:0``."""
    size: int
    """Bytes."""
    place: str
    """The folder or URL that the name is relative to."""


class NoOutputs(HowdahError):
    """What a job has kept cannot be read; the text says where it is and why."""


def outputs(directory: JobDirectory, tasks: Iterable[Task] = ()) -> list[Output]:
    """What was kept so far of these tasks (none: all), by name. May wait for a network.

    Raises:
        NoOutputs: its store does not answer.
        StorageError: the directory's documents are missing or damaged.
    """
    wanted = {str(task) for task in tasks}
    found: list[Output] = []
    for place in _places(directory):
        try:
            files = open_destination(place).files()
        except FileNotFoundError:
            continue
        except Exception as error:  # fsspec's stores raise what they like
            raise NoOutputs(f"the outputs in {place} cannot be read: {in_words(error)}") from error
        for name, size in sorted(files.items()):
            role, _, index = name.partition("/")[0].rpartition("-")
            if "/" in name and role and index.isdecimal() and not is_hidden(name):
                output = Output(name=name, task=f"{role}:{int(index)}", size=size, place=place)
                if not wanted or output.task in wanted:
                    found.append(output)
        if found:
            break
    return found


def _places(directory: JobDirectory) -> Sequence[str]:
    """Where they may be, the likeliest first."""
    table = directory.job().outputs
    if table is None or table.store is None:
        return (f"{directory.meta().url or directory.path}/{layout.OUTPUTS}",)
    job_id = directory.job_id
    # Hidden until the job has succeeded, where nobody else is to see them before.
    return tuple(dict.fromkeys((published(table.store, job_id), job_place(table.store, job_id))))


def chosen(found: Sequence[Output], name: str) -> Output:
    """The one of that name, or whose name ends so. Pure.

    Raises:
        BadInput: none or several; the text says which there are.
    """
    same = [each for each in found if each.name == name]
    same = same or [each for each in found if each.name.endswith(f"/{name}")]
    if len(same) == 1:
        return same[0]
    names = [each.name for each in same or found]
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    listed = f"{', '.join(names[:MOST])}{more}" or "none"
    if same:
        raise BadInput(f"several outputs are called {name!r}: {listed}")
    raise BadInput(f"there is no output {name!r}; there are: {listed}")


def fetch(output: Output, to: Path) -> Path:
    """Copy it to that path, or into that folder; where it is then. Nothing is replaced.

    Raises:
        BadInput: there is something of that name already, or no such folder.
        NoOutputs: it cannot be read.
        OSError: it cannot be written.
    """
    target = to / output.name.rpartition("/")[2] if to.is_dir() else to
    if target.exists():
        raise BadInput(f"{target} is there already; remove it, or give another path")
    if not target.parent.is_dir():
        raise BadInput(f"{target.parent} is no folder; make it first")
    place = open_destination(output.place)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with partial.open("xb") as file:
            while data := _read(place, output, file.tell()):
                file.write(data)
        if partial.stat().st_size != output.size:
            raise NoOutputs(f"{output.name} has changed while it was read; try again")
        os.link(partial, target)  # unlike a rename it replaces nothing
    except FileExistsError:
        raise BadInput(f"{target} is there already; remove it, or give another path") from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    return target


def _read(place, output: Output, offset: int) -> bytes:
    if offset >= output.size:
        return b""
    try:
        return place.read(output.name, offset, CHUNK)
    except Exception as error:  # fsspec's stores raise what they like
        raise NoOutputs(
            f"{output.name} in {output.place} cannot be read: {in_words(error)}"
        ) from error
