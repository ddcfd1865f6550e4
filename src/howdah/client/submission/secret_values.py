"""The values of ``[secrets]``, taken where the job is submitted."""

from __future__ import annotations

import os
from collections.abc import Mapping

from howdah.spec.load import LoadedJob
from howdah.spec.problems import JobFileError, JobFileProblem
from howdah.spec.secrets import references, value_of


def look(
    loaded: LoadedJob, earlier: Mapping[str, str] | None = None
) -> tuple[dict[str, str], list[JobFileProblem]]:
    """The values by variable, and what is wrong with those that there are none of.

    Args:
        earlier: values of the run that is run again: they stand in for what is not here any more.
    """
    values: dict[str, str] = {}
    problems: list[JobFileProblem] = []
    for name, reference in references(loaded.job).items():
        try:
            values[name] = value_of(reference, loaded.folder, os.environ)
        except ValueError as error:
            if earlier is not None and name in earlier:
                values[name] = earlier[name]
            else:
                problems.append(loaded.problem(f"secrets.{name}", str(error)))
    return values, problems


def take(loaded: LoadedJob, earlier: Mapping[str, str]) -> dict[str, str]:
    """The values by variable.

    Raises:
        JobFileError: there is none for one of them.
    """
    values, problems = look(loaded, earlier)
    if problems:
        raise JobFileError(problems)
    return values
