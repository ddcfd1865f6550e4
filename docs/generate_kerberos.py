"""Writes the end of docs/guides/kerberos.md: what is tried on a cluster with Kerberos, and by which test.

Run it after a change of tests/kerberos; tests/docs compares what is committed with it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.kerberos import (  # noqa: E402
    test_jobs,
    test_key_servers,
    test_lifetimes,
    test_name_nodes,
    test_refusals,
)

PAGE = ROOT / "docs" / "guides" / "kerberos.md"

_BEGIN = """\
## What is tested

<!-- From here on written by docs/generate_kerberos.py from tests/kerberos. Change those. -->

Each line runs against a real KDC (MIT), a NameNode, a DataNode, a ResourceManager and NodeManagers that demand
Kerberos, with block tokens and SASL on HDFS data. `python -m pytest tests/kerberos` runs them all.
"""


def page() -> str:
    """The whole page; its guide is what is there before the tables."""
    guide = PAGE.read_text().partition(_BEGIN.partition("\n")[0])[0]
    return guide + _BEGIN + "".join(_matrix()) + "".join(_others())


def _matrix() -> Iterator[str]:
    test = test_jobs.test_a_job_trains_under_each_protection_whatever_says_who_submits
    yield f"\nJobs train under each protection (`{test.__name__}`):\n\n"
    yield f"| You have | {' | '.join(f'`{each}`' for each in test_jobs.PROTECTIONS)} |\n"
    yield "|---" * (1 + len(test_jobs.PROTECTIONS)) + "|\n"
    for who in test_jobs.WHO:
        yield f"| {_text(who)} |{' yes |' * len(test_jobs.PROTECTIONS)}\n"


def _others() -> Iterator[str]:
    yield "\nBesides:\n\n| What | Test |\n|---|---|\n"
    for module in (test_jobs, test_key_servers, test_name_nodes, test_lifetimes):
        yield from _rows(module)
    yield "\nRefused in one line, with what to do, before anything is submitted:\n\n| What | Test |\n|---|---|\n"
    yield from _rows(test_refusals)


def _rows(module: ModuleType) -> Iterator[str]:
    for name, test in vars(module).items():
        if name.startswith("test_") and test.__doc__:
            yield f"| {_text(test)} | `{name}` |\n"


def _text(of: Callable[..., Any]) -> str:
    return " ".join((inspect.getdoc(of) or "").split())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
