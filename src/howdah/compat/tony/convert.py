"""From TonY's settings and command line to the document of a job file. Pure.

Keys that go where they belong as they are follow `howdah.compat.tony.table` alone. The others need
several keys at once; each such part of a job is a function here, and the table names what it reads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from typing import Any

from howdah.compat.tony import roles as role_parts
from howdah.compat.tony import values
from howdah.compat.tony.conversion import About, Conversion, ConversionBuilder
from howdah.compat.tony.options import VENV, Arguments, command, interpreter
from howdah.compat.tony.settings import Settings, SettingSource
from howdah.compat.tony.table import OPTIONS, ROWS, RowKind, row_of
from howdah.spec.checks.rules import CONTAINER_ENV_UNSAFE, DOCKER, OF_THE_CONTAINER
from howdah.spec.problems import closest, shown
from howdah.spec.values import Table

DEFAULT_NAME = "TonyApplication"
ALONE = "worker"
"""The one role of a job without task types, which TonY runs in its application master."""
SKIP_CLASSPATH = "SKIP_HADOOP_PATH"

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
_EXPANDED = re.compile(r"\$[A-Za-z_{]|\{\{")
"""What a NodeManager's shell replaces in a container's environment."""
_OF_THE_AGENT = re.compile(r"PATH$|PYTHON|LD_")
"""What Howdah's own process in the container must not be given."""
_MARK = re.compile(r"\$\{(?=env[:.]|job\.)")


def convert(settings: Settings, given: Arguments) -> Conversion:
    """The job that TonY would run with these settings and this command line.

    Paths stay as they were written: relative to the current folder.

    Raises:
        JobFileError: values that cannot be read, or a job past TonY's own limits; all at once.
    """
    work = ConversionBuilder(settings, given)
    types = role_parts.types(work)
    work.document = {
        "name": _name(work),
        "framework": _framework(work, types),
        "compat": "tony",
        # Everybody may look at a job of TonY's and its logs (ApplicationMaster.ContainerLauncher).
        "acl": {"view": ["*"]},
    }
    _put_plain(work, (None, *types))
    _command(work, single=not types)
    _source(work)
    _environment(work)
    _hadoop(work)
    role_parts.put(work, types, ALONE)
    _not_twice(work)
    role_parts.limits(work, types)
    _tensorboard(work, types)
    _say_what_is_not_needed(work)
    work.raise_any()
    return Conversion(document=_ordered(_escaped(work.document)), notes=tuple(work.notes))


def _put_plain(work: ConversionBuilder, names: Collection[str | None]) -> None:
    """The keys that are a key of the job file as they are: of these task types, and of none (None)."""
    before: dict[str, tuple[str, Any]] = {}
    for row in ROWS:
        if row.read is None:
            continue
        for key in work.settings:
            found = row_of(key)
            if found is None or found[0] is not row:
                continue
            name = found[1].get("type")
            if name not in names or not (value := work.value(key, row.read)):
                continue
            place = row.to.replace("<type>", name or "")
            work.put(place, value)
            other, said = before.get(place, (key, value))
            if said != value:
                work.note(About.CHANGED, other, f"it has no effect: {key} says otherwise, and wins")
            before[place] = (key, value)


def _name(work: ConversionBuilder) -> str:
    wanted = work.value("tony.application.name", values.text) or DEFAULT_NAME
    name = _NOT_IN_NAMES.sub("-", wanted).strip("._-")[:100] or DEFAULT_NAME
    if name != wanted:
        work.note(About.CHANGED, "tony.application.name", f"{shown(wanted)} becomes {shown(name)}")
    return name


def _framework(work: ConversionBuilder, types: dict[str, int]) -> str:
    wanted = work.value("tony.application.framework", values.text)
    name = (wanted or "tensorflow").lower()
    mode = work.value("tony.application.distributed-mode", values.text)
    if mode is not None and mode.upper() not in ("GANG", "FCFS"):
        work.problem("tony.application.distributed-mode", f"{shown(mode)} is neither GANG nor FCFS")
    if name == "standalone" and sum(types.values()) > 1:
        work.problem(
            "tony.application.framework",
            f"standalone is one task, and the job has {sum(types.values())}",
            "write one instance, or another framework",
        )
    key = "tony.horovod.driver.mode.debug"
    if name == "horovod" and work.value(key, values.flag):
        work.problem(
            key,
            "its driver tells TonY a port in a file, which nobody reads here",
            "have the role driver serve Horovod's rendezvous on $HOWDAH_PORT and leave the key out, or "
            "leave both out",
        )
    return "command" if name == "standalone" or not types else name


def _command(work: ConversionBuilder, *, single: bool) -> None:
    work.put("command", command(work.given))
    mode = work.value("tony.application.distributed-mode", values.text)
    if mode is not None and mode.upper() == "FCFS":
        work.put("mode", "each")
    retries = work.value("tony.am.retry-count", values.count)
    work.put("attempts", (retries or 0) + 1)
    if not work.value("tony.application.enable-preprocess", values.flag) or single:
        return
    first = work.value("tony.am.command", values.text) or work.document.get("command")
    if first is None:
        key = "tony.application.enable-preprocess"
        work.problem(key, "there is no command to run first", "give --executes")
        return
    step: Table = {"command": first, "env": {"PREPROCESSING_JOB": "true"}}
    if (memory := work.value("tony.am.memory", values.memory)) is not None:
        step["memory"] = memory
    work.put("preprocess", step)


def _source(work: ConversionBuilder) -> None:
    work.document["source"] = work.given.src_dir or ""
    files = role_parts.files(work, "tony.containers.resources")
    if work.given.python_venv is not None:
        files.append(f"{work.given.python_venv} -> {VENV}/")
    work.put("files", files)


def _environment(work: ConversionBuilder) -> None:
    python = interpreter(work.given)
    if python is None and work.given.python_binary_path is None:
        python = work.value("tony.python-exec-path", values.text)
    work.put("environment.python", python)
    container = work.value("tony.containers.envs", values.environment) or {}
    container |= values.variables(work.given.container_env)
    shell = work.value("tony.execution.envs", values.environment) or {}
    shell |= values.variables(work.given.shell_env)
    skip = {**container, **shell}.get(SKIP_CLASSPATH)
    if skip is None:
        work.put("hadoop.classpath", True)
    launch = {
        name: value
        for name, value in container.items()
        if name not in shell and _for_the_node(work, name, value)
    }
    work.put("env", {k: v for k, v in {**container, **shell}.items() if k not in launch})
    work.put("hadoop.container-env", launch)


def _not_twice(work: ConversionBuilder) -> None:
    """TonY's own keys of Docker win over variables of its containers."""
    roles = [role for role in work.document.get("roles", {}).values() if "image" in role]
    launch = work.document.get("hadoop", {}).get("container-env", {})
    for key, name in (("image", "TYPE"), ("image", "DOCKER_IMAGE"), ("mounts", "DOCKER_MOUNTS")):
        if any(key in role for role in roles) and launch.pop(f"{DOCKER}{name}", None) is not None:
            text = f"{DOCKER}{name} is left out: keys of tony.docker say what it would"
            work.note(About.CHANGED, "tony.containers.envs", text)


def _for_the_node(work: ConversionBuilder, name: str, value: str) -> bool:
    """Whether YARN's NodeManager is to see the variable, because it reads or expands it."""
    if _EXPANDED.search(value) is None:
        return name.startswith("YARN_")
    unsafe = re.search(CONTAINER_ENV_UNSAFE, value) is not None
    if not unsafe and name not in OF_THE_CONTAINER and not _OF_THE_AGENT.match(name):
        return True
    work.note(
        About.CHANGED,
        "tony.containers.envs",
        f"the $ in {name} is not expanded; say it in the command: {name}=… python train.py",
    )
    return False


def _hadoop(work: ConversionBuilder) -> None:
    keys = ("tony.application.hdfs-conf-path", "tony.application.yarn-conf-path")
    folders = {
        key: os.path.dirname(path) or "."
        for key in keys
        if (path := work.value(key, values.text)) is not None
    }
    if len({*folders.values()}) > 1:
        problem = "the configuration of HDFS and that of YARN are in different folders"
        work.problem(keys[0], problem, "put both into one folder")
    for folder in folders.values():
        work.put("hadoop.conf", folder)
        return


def _tensorboard(work: ConversionBuilder, types: dict[str, int]) -> None:
    option = work.given.sidecar_tensorboard_log_dir
    folder = option or work.value("tony.application.tensorboard-log-dir", values.text)
    if folder is None:
        return
    own = work.value("tony.tensorboard.command", values.text)
    if own is None:
        memory = work.value("tony.tensorboard.memory", values.memory)
        work.put("tensorboard", {"folder": folder, **({"memory": memory} if memory else {})})
        text = "TensorBoard gets one core and no GPU; with tony.tensorboard.command it is a role"
        role_parts.say_what_has_no_board(work, ["memory"], text)
        return
    role: Table = {"command": own, "memory": "2g", "tracking": "sidecar"}
    work.put("roles.tensorboard", role)
    _put_plain(work, [role_parts.BOARD])
    role_parts.put_board(work)
    role.setdefault("env", {})["TB_LOG_DIR"] = folder


def _say_what_is_not_needed(work: ConversionBuilder) -> None:
    """Unknown keys, wherever they are; keys nothing needs, where the user wrote them."""
    known = [row.key for row in ROWS if "<" not in row.key]
    for key in work.settings:
        found = row_of(key)
        setting = work.settings[key]
        if found is None:
            if "." not in key:
                continue  # a variable for other values, ${like_this}
            near = closest(key, [*known, *_keys_of_types(work)])
            hint = f"; did you mean {near}?" if near is not None else ""
            what = "TonY has no such key" if key.startswith("tony.") else "this is no key of TonY"
            work.note(About.UNKNOWN, key, f"{what}, so it is left out{hint}")
        elif found[0].kind is RowKind.NOT_NEEDED and setting.source is not SettingSource.SITE:
            work.note(About.NOT_NEEDED, key, f"not needed: {found[0].words}")
    for option in OPTIONS:
        if option.kind is RowKind.NOT_NEEDED and option.name in work.given.given():
            work.note(About.NOT_NEEDED, f"-{option.name}", f"not needed: {option.words}")


def _keys_of_types(work: ConversionBuilder) -> list[str]:
    """Keys of task types as they could be written for the types there are."""
    return [
        row.key.replace("<type>", name)
        for name in role_parts.types(work)
        for row in ROWS
        if "<type>" in row.key and "<group>" not in row.key
    ]


def _escaped(value: Any) -> Any:
    """The document with what looks like a substitution of ours made plain text."""
    if isinstance(value, str):
        return _MARK.sub("$${", value)
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return value


_ORDER = (
    "name",
    "framework",
    "compat",
    "mode",
    "command",
    "source",
    "files",
    "attempts",
    "queue",
    "tags",
    "env",
    "environment",
    "roles",
    "preprocess",
    "tensorboard",
    "timeouts",
    "master",
    "hadoop",
    "acl",
)


def _ordered(document: Table) -> Table:
    """As a person would write it."""
    return {key: document[key] for key in _ORDER if key in document}
