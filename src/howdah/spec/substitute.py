"""``${env:NAME}``, ``${env:NAME:-default}`` and ``${job.id}`` inside a job file's values.

Everything else with a dollar sign is left to the shell that runs the command. ``$${`` stands
for ``${``. The job's id is not known until it is submitted, so `job_id` comes in a second step.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from howdah.spec.model import Job
from howdah.spec.overrides import Loose
from howdah.spec.problems import KeyPath, Problems, closest, shown
from howdah.spec.values import Table, is_list, is_table

_MARK = re.compile(
    r"(?P<escape>\$\$\{)"
    r"|\$\{env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}"
    r"|\$\{job\.(?P<job>[^}]*)\}"
    r"|(?P<wrong>\$\{env[:.][A-Za-z_][^}]{0,60}\}?)"
)
_JOB_MARK = re.compile(r"\$(?P<escape>\$\{job\.)|(?P<id>\$\{job\.id\})")


MAX_INSERTED = 4 << 20
"""Characters that all variables together may bring: one can be long, and be named often."""


def in_environment(table: Table, env: Mapping[str, str], problems: Problems) -> Table:
    """A copy of the document with the variables of ``env`` in place.

    A value that cannot be made is noted in ``problems``.
    """
    replace = _Environment(env, problems).replace
    # Secrets stay references: see `howdah.spec.secrets`.
    return {
        key: item if key == "secrets" else _map_text(item, replace, (key,))
        for key, item in table.items()
    }


class _Environment:
    def __init__(self, env: Mapping[str, str], problems: Problems) -> None:
        self._env = env
        self._problems = problems
        self._room = MAX_INSERTED

    def replace(self, text: str, path: KeyPath) -> str:
        if "${" not in text:
            return text
        replaced = _MARK.sub(lambda mark: self._replacement(mark, text, path), text)
        # The whole value may be meant as a number: `instances = "${env:WORKERS}"`.
        return Loose(replaced)

    def _replacement(self, mark: re.Match[str], text: str, path: KeyPath) -> str:
        if mark["escape"]:
            # Escapes of the second step are left to it.
            return "$${" if text.startswith("job.", mark.end()) else "${"
        if mark["name"]:
            return self._variable(mark["name"], mark["default"], text, path)
        if mark["job"] == "id":
            return mark[0]
        if mark["job"] is not None:
            message, hint = f"{shown(mark[0])} is unknown", "only ${job.id} is known"
        else:
            message = f"{shown(mark[0])} cannot be read"
            hint = "write ${env:NAME} or ${env:NAME:-default}; $${ stands for a plain ${"
        self._problems.add(path, message, hint, value=text)
        return ""

    def _variable(self, name: str, default: str | None, text: str, path: KeyPath) -> str:
        value = self._env.get(name)
        if default is not None and not value:
            value = default
        if value is None:
            near = None if self._problems.full else closest(name, self._env)
            mend = f"set it, or give a default: ${{env:{name}:-value}}"
            hint = f"did you mean {near}? If not, {mend}" if near else mend
            message = f"the environment variable {name} is not set"
            self._problems.add(path, message, hint, value=text)
            return ""
        self._room -= len(value)
        if self._room < 0:
            self._problems.add(path, f"{name} makes the job larger than 4 MiB", value=text)
            return ""
        return value.replace("${job.", "$${job.")


def job_id(job: Job, identifier: str) -> Job:
    """The job with ``${job.id}`` in its texts replaced."""

    def replace(text: str, path: KeyPath) -> str:
        return _JOB_MARK.sub(lambda mark: mark["escape"] or identifier, text)

    return msgspec.convert(_map_text(msgspec.to_builtins(job), replace), Job)


def _map_text(value: Any, change: Callable[[str, KeyPath], str], path: KeyPath = ()) -> Any:
    if isinstance(value, str):
        return change(value, path)
    if is_table(value):
        return {key: _map_text(item, change, (*path, key)) for key, item in value.items()}
    if is_list(value):
        items = enumerate(value)
        return [_map_text(item, change, (*path, index)) for index, item in items]
    return value
