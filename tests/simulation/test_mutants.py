"""Seeded bugs of the kinds others really had, or that were found here: one scenario tells of each.

A mutant is the core with one piece of text replaced (``mutants.txt``). Its scenario, which is a call of a test of
`test_scenarios` without its ``test_``, is told over it and must come to a wrong end.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

import howdah.core

pytestmark = pytest.mark.nightly
SOURCE = Path(howdah.core.__file__).parent
RELOADED = ("howdah.core", "tests.invariants", "tests.simulation")


def mutants() -> Iterator[tuple[str, str, str, str, str]]:
    """Of each: the bug, its file and scenario, and the text before and after."""
    text = Path(__file__).with_name("mutants.txt").read_text(encoding="utf-8")
    for part in text.split("\n== ")[1:]:
        bug, where, *changes = part.rstrip("\n").split("\n")
        file, _, scenario = where.partition(": ")
        before, after = (
            "\n".join(line[1:] for line in changes if line.startswith(sign)) for sign in "-+"
        )
        yield bug, file, scenario, before, after


@contextmanager
def loaded_anew() -> Iterator[None]:
    """What is imported of the core and of what runs it, and not what is loaded already."""
    before = {name: module for name, module in sys.modules.items() if name.startswith(RELOADED)}
    for name in before:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.startswith(RELOADED)]:
            del sys.modules[name]
        for name, module in before.items():
            sys.modules[name] = module
            parent, _, child = name.rpartition(".")
            setattr(sys.modules[parent], child, module)


@pytest.mark.parametrize(
    ("file", "scenario", "before", "after"),
    [pytest.param(*rest, id=bug) for bug, *rest in mutants()],
)
def test_a_seeded_bug_is_told_of(file: str, scenario: str, before: str, after: str) -> None:
    text = (SOURCE / file).read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{file} has not once {before!r}"
    code = compile(text.replace(before, after), file, "exec")
    with loaded_anew():
        core = importlib.import_module("howdah.core")
        module = ModuleType(f"howdah.core.{file.removesuffix('.py')}")
        sys.modules[module.__name__] = module
        exec(code, vars(module))
        setattr(core, file.removesuffix(".py"), module)
        scenarios = importlib.import_module("tests.simulation.test_scenarios")
        wrong = (AssertionError, importlib.import_module("howdah.core.state").ImpossibleMove)
        with pytest.raises(wrong):
            eval(f"test_{scenario}", vars(scenarios))
