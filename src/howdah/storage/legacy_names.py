"""Names that the last release wrote into journals and status documents, and what they are now.

A job directory outlives the release that made it: its story must stay readable. What was renamed is
in one table, and is looked at only for what this release does not understand as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from howdah.wire.decoders import document_decoder
from howdah.wire.status import JobView

_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
"""Names of roles are parts of paths."""


class Renamed(NamedTuple):
    """What became of one kind of document."""

    now: str
    """Its name (the journal's ``type``)."""
    fields: Mapping[str, str] = {}
    """Its fields that were renamed: old name to new. One that is no more is ignored by readers."""


TABLE: Mapping[str, Renamed] = {
    # Events
    "TimerDue": Renamed("TimePassed"),
    "Progressed": Renamed("CheckpointSaved", {"what": "name"}),
    # What is below these names in a document
    "Record.data": Renamed(
        "Record.data", {"blame": "cause", "charged": "counted", "echoes": "secondary"}
    ),
    "JobView.failures": Renamed("JobView.failures", {"blame": "cause", "charged": "counted"}),
    "JobView.tasks": Renamed("JobView.tasks", {"charged": "counted"}),
}


def event(document: dict[str, Any]) -> dict[str, Any]:
    """An event of the last release as this one writes it."""
    name = document.get("type")
    found = TABLE.get(name) if isinstance(name, str) else None
    if found is None:
        return document
    return {**_with_names(document, found), "type": found.now}


def data(document: dict[str, Any]) -> dict[str, Any]:
    """The data of a record of the last release as this one writes it."""
    return _with_names(document, TABLE["Record.data"])


def view(document: bytes) -> JobView:
    """A status document, of this release or of the last.

    Raises:
        msgspec.DecodeError: it is neither.
    """
    if b'"charged"' not in document:  # every task of the last release has it
        return _view(document)
    old = document_decoder(dict[str, Any])(document)
    for name in ("failures", "tasks"):
        parts = msgspec.convert(old.get(name, []), list[dict[str, Any]])
        old[name] = [_with_names(part, TABLE[f"JobView.{name}"]) for part in parts]
    return _view(msgspec.json.encode(old))


def _view(document: bytes) -> JobView:
    found = document_decoder(JobView)(document)
    for task in found.tasks:
        if not _ROLE.fullmatch(task.role):
            raise msgspec.ValidationError(f"{task.role[:100]!r} is no name of a role")
    return found


def _with_names(document: dict[str, Any], renamed: Renamed) -> dict[str, Any]:
    fields = renamed.fields
    if fields.keys().isdisjoint(document):
        return document
    return {fields.get(name, name): value for name, value in document.items()}
