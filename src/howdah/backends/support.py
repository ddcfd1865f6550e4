"""Which keys of a job file a backend does not honour, and what is said of each.

One table, ``support.toml``, for ``howdah check``, every submission, the dry run and the reference page.
Other packages' backends look after themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from howdah.spec.load import LoadedJob
from howdah.spec.problems import JobFileProblem, dotted


class Unsupported(msgspec.Struct, frozen=True):
    """A key that a backend does not honour."""

    key: str
    """``*`` stands for any name in a table of names."""
    why: str
    refused: bool = True
    hint: str = ""
    """What to do instead."""


@functools.cache
def unsupported() -> dict[str, tuple[Unsupported, ...]]:
    """The table, by backend."""
    import tomllib  # most programs that import this module ask nothing

    table = tomllib.loads(Path(__file__).with_name("support.toml").read_text("utf-8"))
    return {
        backend: tuple(
            Unsupported(key, refused=verdict == "refused", **told)
            for verdict, keys in rules.items()
            for key, told in keys.items()
        )
        for backend, rules in table.items()
    }


_OWN_KEYS = {
    "gpu": "gpus",
    "gpus": "gpus",
    "yarn.io/gpu": "gpus",
    "nvidia.com/gpu": "gpus",
    "cuda": "gpus",
    "memory": "memory",
    "memory-mb": "memory",
    "mem": "memory",
    "ram": "memory",
    "vcores": "cores",
    "cpu": "cores",
    "cpus": "cores",
    "cores": "cores",
}
"""What clusters call what a role has a key of its own for."""


def honours(backend: str, key: str) -> bool:
    """Whether a job with that key runs as its file says."""
    return not any(rule.key == key and rule.refused for rule in unsupported().get(backend, ()))


def look(
    loaded: LoadedJob, backend: str, site_file: str | None
) -> tuple[list[JobFileProblem], list[str]]:
    """The keys of a job that the backend does not honour: those that are refused, and notes.

    What is written in ``site_file`` is for other backends too, and not noted.
    """
    problems: list[JobFileProblem] = []
    notes: list[str] = []
    for rule in unsupported().get(backend, ()):
        for place in _set(loaded.job, rule.key.split(".")):
            key = dotted(place)
            text = f"the {backend} backend does not honour it: {rule.why}"
            problem = loaded.problem(key, text, _hint(rule, place[-1]))
            if rule.refused:
                problems.append(problem)
            elif site_file is None or problem.file != site_file:
                notes.append(f"{key}: {text}")
    return problems, notes


def _set(
    value: Any, pattern: Sequence[str], place: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """The places of that pattern at which there is another value than the default."""
    if not pattern:
        yield place
        return
    name, *rest = pattern
    if isinstance(value, dict):
        for each, one in value.items():
            yield from _set(one, rest, (*place, each))
        return
    field = name.replace("-", "_")
    if (below := getattr(value, field)) != getattr(type(value)(), field):
        yield from _set(below, rest, (*place, name))


def _hint(rule: Unsupported, name: str) -> str | None:
    if rule.key == "roles.*.resources.*":
        import difflib

        near = difflib.get_close_matches(name.lower(), _OWN_KEYS, n=1, cutoff=0.75)
        if near:
            return f"did you mean the role's own key {_OWN_KEYS[near[0]]!r}?"
    return rule.hint or None
