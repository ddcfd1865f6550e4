"""What other packages bring as entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints


def entry_points(group: str) -> EntryPoints:
    """Those of that group.

    `importlib.metadata` takes 10 ms to import, more than all else a registry needs; a job without
    plug-ins never gets here.
    """
    from importlib import metadata

    return metadata.entry_points(group=group)
