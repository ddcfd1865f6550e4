"""What other packages bring as entry points."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints


def entry_points(group: str) -> EntryPoints:
    """Those of that group.

    `importlib.metadata` takes 10 ms to import, more than all else a registry needs; a job without
    plug-ins never gets here.
    """
    from importlib import metadata

    return metadata.entry_points(group=group)


def not_known(name: str, known: Sequence[str]) -> str:
    """What follows "there is no framework": the name, the known ones, and the one that was meant."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{name!r}; known are {', '.join(known)}.{hint}"


def failure(point: EntryPoint, error: Exception) -> str:
    """Why that plug-in cannot be used."""
    return f"{_origin(point)} failed with {type(error).__name__}: {error}"


def broken(
    points: Iterable[EntryPoint], built_in: Container[str], load: Callable[[EntryPoint], object]
) -> dict[str, str]:
    """Plug-ins that cannot be used, and why: unloadable ones, and those with a built-in's name."""
    found: dict[str, str] = {}
    for point in points:
        if point.name in built_in:
            found[point.name] = f"{_origin(point)} is ignored: {point.name!r} is built in"
            continue
        try:
            load(point)
        except Exception as error:  # a plug-in may fail in any way
            found[point.name] = failure(point, error)
    return found


def _origin(point: EntryPoint) -> str:
    package = point.dist.name if point.dist is not None else "an unknown package"
    return f"its plug-in {point.value} (of {package})"
