"""Frameworks by name: ours, and those other packages bring as entry points.

A package adds one with an entry point in the group ``howdah.frameworks`` that names a subclass of
`howdah.frameworks.base.Framework`. A plug-in that cannot be loaded is reported where it is asked
for and by `broken`; it never hides a built-in one, nor stops the others.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING

from howdah.frameworks.base import Framework
from howdah.plugins import broken as broken_plugins
from howdah.plugins import entry_points, failure, not_known

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "howdah.frameworks"

BUILT_IN = {
    "command": "howdah.frameworks.command:PlainCommand",
    "tensorflow": "howdah.frameworks.tensorflow:TensorFlow",
    "pytorch": "howdah.frameworks.pytorch:PyTorch",
    "jax": "howdah.frameworks.jax:Jax",
    "xgboost": "howdah.frameworks.xgboost:XGBoost",
    "lightgbm": "howdah.frameworks.lightgbm:LightGBM",
    "dask": "howdah.frameworks.dask:Dask",
    "ray": "howdah.frameworks.ray:Ray",
    "horovod": "howdah.frameworks.horovod:Horovod",
    "mpi": "howdah.frameworks.mpi:Mpi",
    "mxnet": "howdah.frameworks.mxnet:MXNet",
}


class UnknownFramework(LookupError):
    """There is no framework of that name, or its plug-in is broken; ``str()`` is for the user."""


def plugins() -> dict[str, EntryPoint]:
    """Entry points of other packages by framework name; none has a built-in's name."""
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in BUILT_IN}


def names() -> list[str]:
    """Names a job file may use: built-in ones first, then plug-ins (broken ones too)."""
    return [*BUILT_IN, *sorted(plugins())]


@cache
def get(name: str) -> Framework:
    """The framework of that name.

    Raises:
        UnknownFramework: there is none, or its plug-in cannot be loaded.
    """
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return getattr(importlib.import_module(module), attribute)()
    point = plugins().get(name)
    if point is None:
        raise UnknownFramework(f"there is no framework {not_known(name, names())}")
    try:
        return _load(point)
    except Exception as error:  # a plug-in may fail in any way
        raise UnknownFramework(
            f"the framework {name!r} cannot be used: {failure(point, error)}"
        ) from error


def broken() -> dict[str, str]:
    """Plug-ins that cannot be used, and why: unloadable ones, and those with a built-in's name."""
    return broken_plugins(entry_points(group=GROUP), BUILT_IN, _load)


def _load(point: EntryPoint) -> Framework:
    framework = point.load()()
    if not isinstance(framework, Framework):
        raise TypeError(f"{point.value} is no subclass of howdah.frameworks.base.Framework")
    return framework
