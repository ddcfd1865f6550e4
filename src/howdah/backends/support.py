"""Which keys of a job file a backend does not honour, and what is said of each.

One table, for ``howdah check``, every submission, the dry run and the reference page. A key is
*refused* where the job's programs would not run as the job file says; it is *noted* where they run
all the same: somewhere else, seen by fewer, in another order. What is not in the table is honoured.
Other packages' backends look after themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from howdah.backends.registry import LOCAL
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


_IN_PLACE = Unsupported(
    "in-place",
    "its programs run on other machines",
    hint="leave it out, or run on this machine (--backend local)",
)
_NO_SPARK = Unsupported("spark.slots", "no Spark task starts the job's programs", refused=False)
_NOT_IN_A_QUEUE = "this machine has no queue of jobs"
_OF_THE_APPLICATION = "what programs need comes with the Spark application"

UNSUPPORTED: dict[str, tuple[Unsupported, ...]] = {
    LOCAL: (
        Unsupported(
            "roles.*.image",
            "programs run on this machine itself, not in a Docker image",
            hint="leave it out, or run on a cluster",
        ),
        Unsupported("roles.*.mounts", "they belong to a Docker image, and none is used here"),
        Unsupported(
            "roles.*.resources.*",
            "this machine offers no such resource",
            hint="leave it out, or run on a cluster that has it",
        ),
        Unsupported("roles.*.label", "this machine has no node labels", refused=False),
        Unsupported("roles.*.placement", "all tasks are on this machine", refused=False),
        Unsupported("queue", _NOT_IN_A_QUEUE, refused=False),
        Unsupported("priority", _NOT_IN_A_QUEUE, refused=False),
        Unsupported(
            "master", "the coordinator is a process on this machine, without limits", refused=False
        ),
        Unsupported(
            "acl",
            "only its owner sees a job on this machine, except in a team's `howdah portal`, which follows "
            "this key",
            refused=False,
        ),
        Unsupported(
            "hadoop.container-env",
            "there is no YARN container; programs get the variables as they are written",
            refused=False,
        ),
        Unsupported(
            "hadoop.docker", "there is no YARN container that could run an image", refused=False
        ),
        Unsupported(
            "hadoop.tokens",
            "programs use your own tickets and tokens; the job gets none of its own",
            refused=False,
        ),
        Unsupported(
            "hadoop.classpath",
            "programs get the CLASSPATH of your shell, if it has one",
            refused=False,
        ),
        _NO_SPARK,
    ),
    "yarn": (_IN_PLACE, _NO_SPARK),
    "spark": (
        _IN_PLACE,
        *(
            Unsupported(
                f"environment.{key}",
                _OF_THE_APPLICATION,
                hint="give it to Spark (--archives, or spark.pyspark.python)",
            )
            for key in ("requirements", "project", "venv", "archive")
        ),
        Unsupported("files", _OF_THE_APPLICATION, hint="give them to Spark (--files, --archives)"),
        Unsupported(
            "roles.*.files", _OF_THE_APPLICATION, hint="give them to Spark (--files, --archives)"
        ),
        Unsupported(
            "roles.*.image",
            "Spark chooses the image of its executors",
            hint="name it in Spark's settings (spark.kubernetes.container.image)",
        ),
        Unsupported("roles.*.mounts", "Spark chooses the volumes of its executors"),
        Unsupported(
            "roles.*.resources.*",
            "Spark gives resources to whole executors",
            hint="ask for it in Spark's settings (spark.executor.resource.…)",
        ),
        Unsupported(
            "roles.*.label",
            "a Spark application has no labels for roles",
            hint="set spark.yarn.executor.nodeLabelExpression for all executors",
        ),
        Unsupported("roles.*.placement", "Spark chooses where executors are", refused=False),
        Unsupported(
            "roles.*.cores",
            "a task gets the cores of a Spark task (spark.task.cpus)",
            refused=False,
        ),
        Unsupported("queue", "the application is already in its queue", refused=False),
        Unsupported("priority", "the application already has its priority", refused=False),
        Unsupported("master", "the coordinator is a process beside the driver", refused=False),
        Unsupported("acl", "the application decides who may see the job", refused=False),
        Unsupported(
            "hadoop.container-env",
            "there is no YARN container; programs get the variables as they are written",
            refused=False,
        ),
        Unsupported(
            "hadoop.docker", "there is no YARN container that could run an image", refused=False
        ),
        Unsupported(
            "hadoop.tokens",
            "Spark's own settings say which tokens its executors get (spark.security.credentials.*)",
            refused=False,
        ),
        Unsupported(
            "hadoop.classpath",
            "programs get the CLASSPATH of their executors, if there is one",
            refused=False,
        ),
    ),
}
"""By backend."""

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
    return not any(rule.key == key and rule.refused for rule in UNSUPPORTED.get(backend, ()))


def look(
    loaded: LoadedJob, backend: str, site_file: str | None
) -> tuple[list[JobFileProblem], list[str]]:
    """The keys of a job that the backend does not honour: those that are refused, and notes.

    What is written in ``site_file`` is for other backends too, and not noted.
    """
    problems: list[JobFileProblem] = []
    notes: list[str] = []
    for rule in UNSUPPORTED.get(backend, ()):
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
