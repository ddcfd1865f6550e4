"""Backends by name: ours, and those other packages bring as entry points.

A package adds one with an entry point in the group ``howdah.backends`` that names a function (or
class) which makes a `howdah.backends.base.Backend` of a `howdah.storage.jobdir.JobDirectory`. A
plug-in that cannot be loaded is reported where it is asked for and by `broken`; it never hides a
built-in one, nor stops the others.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from howdah.backends.base import Backend, BackendError
from howdah.plugins import entry_points
from howdah.storage.jobdir import JobDirectory

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "howdah.backends"

Factory = Callable[[JobDirectory], Backend]

BUILT_IN = {"local": "howdah.backends.local.backend:LocalBackend"}


def names() -> list[str]:
    """Names that may be asked for: built-in ones first, then plug-ins (broken ones too)."""
    plugins = {point.name for point in entry_points(group=GROUP)} - BUILT_IN.keys()
    return [*BUILT_IN, *sorted(plugins)]


def create(name: str, directory: JobDirectory) -> Backend:
    """The backend of that name, for the job of that directory.

    Raises:
        BackendError: there is none, or its plug-in cannot be used.
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return getattr(importlib.import_module(module), attribute)(directory)
    for point in entry_points(group=GROUP):
        if point.name == name:
            try:
                return point.load()(directory)
            except Exception as error:  # a plug-in may fail in any way
                raise BackendError(
                    f"The backend {name!r} cannot be used: {_reason(point, error)}"
                ) from error
    near = difflib.get_close_matches(name, names(), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise BackendError(f"There is no backend {name!r}; known are {', '.join(names())}.{hint}")


def broken() -> dict[str, str]:
    """Plug-ins that cannot be used, and why: unloadable ones, and those with a built-in's name."""
    found: dict[str, str] = {}
    for point in entry_points(group=GROUP):
        if point.name in BUILT_IN:
            found[point.name] = f"{_origin(point)} is ignored: {point.name!r} is built in"
            continue
        try:
            point.load()
        except Exception as error:  # a plug-in may fail in any way
            found[point.name] = _reason(point, error)
    return found


def _reason(point: EntryPoint, error: Exception) -> str:
    return f"{_origin(point)} failed with {type(error).__name__}: {error}"


def _origin(point: EntryPoint) -> str:
    package = point.dist.name if point.dist is not None else "an unknown package"
    return f"its plug-in {point.value} (of {package})"
