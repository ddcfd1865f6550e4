"""Commented job files to begin from, one for each way to train: what ``howdah init`` writes."""

from __future__ import annotations

import re
from importlib import resources

NAMES = (
    "tensorflow",
    "tensorflow-ps",
    "pytorch",
    "jax",
    "xgboost",
    "lightgbm",
    "dask",
    "ray",
    "horovod",
    "mxnet",
    "mpi",
    "command",
)
PLUGIN = "plugin"
"""For frameworks of plug-ins, which bring no template of their own: with ``NAME`` in the name's stead."""

SCHEMA = """\
#:schema ./job-file.schema.json
# Editors complete and check this file once that is there: howdah schema > job-file.schema.json

"""
"""What a TOML job file begins with, for editors."""

_HEADER = re.compile(r"^(?:# )?(\[[a-z.-]+\])", re.MULTILINE)
_COMMAND = re.compile(r"^command = .*\n", re.MULTILINE)


def template(framework: str) -> str:
    """The commented TOML of a job file for that framework.

    Raises:
        KeyError: there is no template of that name; `NAMES` and `PLUGIN` are all.
    """
    if framework not in (*NAMES, PLUGIN):
        raise KeyError(framework)
    text = _read(framework)
    # In TOML the job's own keys come before any table, so they cannot stand with the other options.
    text = _COMMAND.sub(lambda command: command[0] + _read("top"), text, count=1)
    there = _HEADER.findall(text)
    blocks = _read("options").split("\n\n")
    options = [block for block in blocks if not {*_HEADER.findall(block)} & {*there}]
    return SCHEMA + "\n".join([text, "\n\n".join(options).rstrip(), ""])


def _read(name: str) -> str:
    return resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
