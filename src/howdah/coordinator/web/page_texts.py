"""The pages' templates, in memory: by the time somebody looks at a page, an upgrade may have put another release's
on the disk."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources

import jinja2

PACKAGE = "howdah.coordinator.web"


@functools.cache
def texts(package: str = PACKAGE) -> Mapping[str, str]:
    """The files of a package's folder ``templates``, by name."""
    folder = resources.files(package).joinpath("templates")
    return {entry.name: entry.read_text("utf-8") for entry in folder.iterdir() if entry.is_file()}


@functools.cache
def environment(package: str = PACKAGE) -> jinja2.Environment:
    """The templates of a package; those of the job page besides, for parts that both have."""
    return jinja2.Environment(
        loader=jinja2.DictLoader({**texts(), **texts(package)}),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
