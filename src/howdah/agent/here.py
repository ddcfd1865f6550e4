"""The container's folder, put where a coordinator that cannot know it wrote `HERE`. Pure."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from howdah.agent.launch import HERE, AgentLaunch
from howdah.wire.messages import Prepare, Start

T = TypeVar("T", bound=msgspec.Struct)


def in_launch(launch: AgentLaunch) -> AgentLaunch:
    """The launch file's own places: source, logs, PYTHONPATH, …"""
    return _replaced(launch, launch.work_dir)


def in_prepare(order: Prepare, folder: str) -> Prepare:
    """Where checkpoints and outputs go."""
    return _replaced(order, folder)


def in_start(order: Start, folder: str) -> Start:
    """Arguments and environment of the programs."""
    processes = tuple(_replaced(process, folder) for process in order.processes)
    mirror = _replaced(order.mirror, folder) if order.mirror is not None else None
    return msgspec.structs.replace(order, processes=processes, mirror=mirror)


def _replaced(document: T, folder: str) -> T:
    changes: dict[str, Any] = {}
    for name in document.__struct_fields__:
        value = getattr(document, name)
        if (new := _resolved(value, folder)) != value:
            changes[name] = new
    return msgspec.structs.replace(document, **changes) if changes else document


def _resolved(value: Any, folder: str) -> Any:
    match value:
        case str():
            return value.replace(HERE, folder)
        case tuple():
            return tuple(_resolved(each, folder) for each in value)
        case list():
            return [_resolved(each, folder) for each in value]
        case dict():
            return {name: _resolved(each, folder) for name, each in value.items()}
        case _:
            return value
