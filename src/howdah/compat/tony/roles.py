"""Task types as roles: how many, what each needs, when it starts and what its end means."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from howdah.compat.tony import placement, values
from howdah.compat.tony.conversion import About, ConversionBuilder
from howdah.compat.tony.settings import SettingSource
from howdah.compat.tony.table import NO_TYPES, row_of
from howdah.spec.problems import closest
from howdah.spec.units import mebibytes
from howdah.spec.values import Table

MEMORY = "2g"
CORES = 1
BOARD = "tensorboard"
_TYPE = re.compile(r"tony\.([A-Za-z][A-Za-z0-9_-]*)\.instances")


def types(work: ConversionBuilder) -> dict[str, int]:
    """Task types with their numbers of instances, in the order they were written."""
    found: dict[str, int] = {}
    for key in work.settings:
        match = _TYPE.fullmatch(key)
        if match is not None and match[1] not in NO_TYPES:
            number = work.value(key, values.count)
            if number:
                found[match[1]] = number
    if found and BOARD in found and _has_board(work):
        del found[BOARD]
    return found


def _has_board(work: ConversionBuilder) -> bool:
    return (
        work.given.sidecar_tensorboard_log_dir is not None
        or work.settings.get("tony.application.tensorboard-log-dir") is not None
    )


def put(work: ConversionBuilder, found: dict[str, int], alone: str) -> None:
    """The roles, and what of the master is a role's."""
    if found:
        for name, number in found.items():
            _role(work, name, number)
        _meaning(work, found)
        _stages(work, found)
        _lingering(work, found)
        _placement(work, found)
        _master(work)
    else:
        _single(work, alone)
    _docker(work, [*found] or [alone])
    _labels(work, [*found] or [alone])
    _say_what_has_no_role(work, found)


def _role(work: ConversionBuilder, name: str, number: int) -> None:
    role = _table(work, name)
    fresh: Table = {"instances": number}
    if "command" in role:
        fresh["command"] = role["command"]
    fresh |= {"memory": MEMORY, "cores": CORES} | role
    if found := files(work, f"tony.{name}.resources"):
        fresh["files"] = found
    work.document["roles"][name] = fresh


def _table(work: ConversionBuilder, name: str) -> Table:
    return work.document.setdefault("roles", {}).setdefault(name, {})


def _single(work: ConversionBuilder, name: str) -> None:
    """TonY runs such a job in its application master: what that gets is the task's."""
    role: Table = {
        "instances": 1,
        "memory": work.value("tony.am.memory", values.memory) or MEMORY,
        "cores": work.value("tony.am.vcores", values.count) or CORES,
        "env": {"PREPROCESSING_JOB": "true"},
    }
    if (command := work.value("tony.am.command", values.text)) is not None:
        role["command"] = command
    if gpus := work.value("tony.am.gpus", values.count):
        role["gpus"] = gpus
    if found := files(work, "tony.am.resources"):
        role["files"] = found
    work.document["roles"] = {name: role}


def _master(work: ConversionBuilder) -> None:
    work.put("master.memory", work.value("tony.am.memory", values.memory))
    work.put("master.cores", work.value("tony.am.vcores", values.count) or None)

    if work.value("tony.am.gpus", values.count):
        text = "not needed: the master trains nothing, so it gets no GPU"
        work.note(About.NOT_NEEDED, "tony.am.gpus", text)
    if work.settings.get("tony.am.resources") is not None:
        work.note(About.NOT_NEEDED, "tony.am.resources", "not needed: the master needs no files")
    if "preprocess" not in work.document and work.settings.get("tony.am.command") is not None:
        work.note(About.NOT_NEEDED, "tony.am.command", "not needed: nothing is run first")


def put_board(work: ConversionBuilder) -> None:
    """What the role TensorBoard gets that is no key as it is."""
    if found := files(work, f"tony.{BOARD}.resources"):
        _table(work, BOARD)["files"] = found
    _docker(work, [BOARD])
    _labels(work, [BOARD])
    taken = ["memory", "vcores", "gpus", "resources", "node-label", "timeout", "image"]
    say_what_has_no_board(work, taken, "TensorBoard is one task beside the job, on any node")


def say_what_has_no_board(work: ConversionBuilder, taken: Collection[str], why: str) -> None:
    """Keys of the type tensorboard that have no effect."""
    for key, name in _of_types(work):
        what = key.rpartition(".")[2]
        if name != BOARD or what in ("command", *taken):
            continue
        if what != "instances" or work.value(key, values.count) != 1:
            work.note(About.CHANGED, key, f"it has no effect: {why}")


def _listed(
    work: ConversionBuilder, key: str, default: str, found: Collection[str] = ()
) -> list[str]:
    """The task types that a key lists. Those that the job has not are told, where it is the job's own key."""
    names = work.value(key, values.words)
    if names is None:
        return values.words(default)
    for name in names if work.settings[key].source is not SettingSource.SITE else ():
        if name not in found and name != BOARD:
            near = closest(name, found)
            hint = f"; did you mean {near}?" if near is not None else ""
            work.note(About.CHANGED, key, f"the job has no {name} (tony.{name}.instances){hint}")
    return names


def _meaning(work: ConversionBuilder, found: dict[str, int]) -> None:
    """What the end of a role's tasks means."""
    untracked = _listed(work, "tony.application.untracked.jobtypes", "ps", found)
    sidecars = _listed(work, "tony.application.sidecar.jobtypes", "tensorboard", found)
    stopping = _listed(work, "tony.application.stop-on-failure-jobtypes", "ps", found)
    if work.document["framework"] == "horovod":
        untracked = [*untracked, "driver"]
    apart = {*untracked, *sidecars}
    strict = work.value("tony.application.fail-on-worker-failure-enabled", values.flag)
    # It ends one session there, and the next one begins.
    final = work.document["attempts"] == 1
    tolerable = sum(number for name, number in found.items() if name not in apart) > 1
    for name in found:
        role = _table(work, name)
        if name in sidecars:
            role["tracking"] = "sidecar"
        elif name in untracked:
            role["tracking"] = "untracked"
        elif name in _OTHERWISE_UNTRACKED:
            role["tracking"] = "tracked"
        if name in stopping and name not in sidecars:
            if final:
                role["stop-on-failure"] = True
        elif tolerable and name not in apart and not _only_chief(found, name):
            role["tolerate"] = not strict


def _only_chief(found: dict[str, int], name: str) -> bool:
    """Every task of the role is a chief (``TonySession.isChief``)."""
    return name == "chief" or ("chief" not in found and name == "worker" and found[name] == 1)


_OTHERWISE_UNTRACKED = ("ps", "evaluator", "server", "scheduler")
"""Howdah waits for none of these by itself, TonY does unless it is told not to."""


def _stages(work: ConversionBuilder, found: dict[str, int]) -> None:
    first = _listed(work, "tony.application.prepare-stage", "", found)
    second = _listed(work, "tony.application.training-stage", "", found)
    for name in first:
        if name in second:
            message = f"{name} is in the prepare stage and in the training stage"
            work.problem("tony.application.training-stage", message, "name it once")
        elif name in found and len(found) > len({*first} & {*found}):
            _table(work, name)["prepare"] = True


def _lingering(work: ConversionBuilder, found: dict[str, int]) -> None:
    for key in work.settings:
        match = row_of(key)
        if match is None or match[0].to != "roles.<type>.linger.limit":
            continue
        name, group = match[1]["type"], match[1]["group"]
        members = _listed(work, f"tony.application.group.{group}", "", found)
        limit = work.value(key, values.in_seconds)
        others = [member for member in members if member in found and member != name]
        if name not in found or not others or limit is None:
            continue  # as TonY: a time-out that waits for nobody never comes
        linger: Table = {"after": others, "limit": limit}
        if work.value(f"{key}.ignored", values.flag):
            linger["then"] = "untrack"
        _table(work, name)["linger"] = linger


def _placement(work: ConversionBuilder, found: dict[str, int]) -> None:

    common = work.value("tony.containers.allocation-tags", values.words) or []
    tags = {
        name: frozenset(
            [name, *(work.value(f"tony.{name}.allocation-tags", values.words) or common)]
        )
        for name in found
    }
    for name in found:
        for key in (
            f"tony.{name}.placement-spec",
            "tony.containers.placement-spec",
            "tony.application.placement-spec",
        ):
            spec = work.value(key, values.text)
            if spec is None:
                continue
            try:
                _table(work, name)["placement"] = placement.placement(spec, name, tags)
            except ValueError as error:
                message, _, hint = str(error).partition("; ")
                work.problem(key, message, hint or None)
            break


def _docker(work: ConversionBuilder, names: Iterable[str]) -> None:

    enabled = work.value("tony.docker.enabled", values.flag)
    if enabled is None:
        enabled = work.value("tony.application.docker.enabled", values.flag)
    common = work.value("tony.docker.containers.image", values.text)
    common = common or work.value("tony.application.docker.image", values.text)
    mounts = work.value("tony.docker.containers.mount", values.words) or []
    for name in names:
        image = work.value(f"tony.docker.{name}.image", values.text) or common
        if not enabled or image is None:
            continue
        role = _table(work, name)
        role["image"] = image
        if mounts:
            role["mounts"] = [_mount(mount) for mount in mounts]
    if enabled and work.value("tony.docker.am.image", values.text) is not None:
        text = "not needed: the master brings its own Python and runs outside of images"
        work.note(About.NOT_NEEDED, "tony.docker.am.image", text)


def _mount(text: str) -> str:
    """A mount with its mode; without one Hadoop takes it as read only."""
    return text if text.count(":") > 1 else f"{text}:ro"


def _labels(work: ConversionBuilder, names: Iterable[str]) -> None:
    common = work.value("tony.application.node-label", values.text)
    if common is None:
        return
    for name in names:
        _table(work, name).setdefault("label", common)
    work.document.setdefault("master", {}).setdefault("label", common)


def _say_what_has_no_role(work: ConversionBuilder, found: dict[str, int]) -> None:
    """Keys of task types the job has not: mostly a missing ``instances``."""

    for key, name in _of_types(work):
        if name in found or key == f"tony.{name}.instances":
            continue
        if name == BOARD and _has_board(work):
            continue
        if key.startswith("tony.docker.") and name == "am":
            continue
        text = f"it has no effect: the job has no {name} (tony.{name}.instances)"
        near = closest(name, found)
        hint = f"; did you mean {key.replace(name, near, 1)}?" if near is not None else ""
        work.note(About.CHANGED, key, text + hint)


def _of_types(work: ConversionBuilder) -> Iterator[tuple[str, str]]:
    """The job's own keys of task types, with the type."""
    for key in work.settings:
        match = row_of(key)
        name = match[1].get("type") if match is not None else None
        if name is not None and work.settings[key].source is not SettingSource.SITE:
            yield key, name


def files(work: ConversionBuilder, key: str) -> list[str]:
    """Resources as entries of ``files``."""
    found: list[str] = []
    for item in work.value(key, values.resources) or ():
        own = item.place.rstrip("/").rpartition("/")[2]
        if item.archive:
            found.append(f"{item.place} -> {item.name}/")
        else:
            found.append(item.place if item.name == own else f"{item.place} -> {item.name}")
    return found


def limits(work: ConversionBuilder, found: dict[str, int]) -> None:
    """Refuse a job past the limits that TonY's client checks."""
    for name, number in found.items():
        key = f"tony.{name}.max-instances"
        _at_most(work, key, work.value(key, values.whole), number, f"instances of {name}")
    for key in work.settings:
        match = row_of(key)
        if match is None or not match[0].key.startswith("tony.task.max-total-"):
            continue
        what = key.removeprefix("tony.task.max-total-")
        _at_most(work, key, work.value(key, values.whole), _total(work, found, what), what)


def _at_most(work: ConversionBuilder, key: str, most: int | None, total: int, what: str) -> None:
    if most is not None and 0 <= most < total:
        work.problem(key, f"the job asks for {total} {what}, and may have {most}")


def _total(work: ConversionBuilder, found: dict[str, int], what: str) -> int:
    def of(role: Any) -> int:
        match what:
            case "instances":
                return 1
            case "memory":
                return mebibytes(role["memory"])
            case "vcores":
                return role["cores"]
            case _:
                return role.get(what, 0)

    return sum(number * of(_table(work, name)) for name, number in found.items())
