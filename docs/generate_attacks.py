"""Writes docs/design/005-attacks.md: the attacks that are tried, and by which test.

They are in tests/security; those that need a real Hadoop or Spark are in a ``test_security.py`` beside
the fixtures that start it.
The first paragraph of a test's docstring says what the attack is and what stops it. If the attack is one
of the report of findings, the docstring begins with its number, ``Finding 5: …``. A test without a
docstring is described by its name. Run this after a change there; tests/docs compares what is committed
with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "design" / "005-attacks.md"
TESTS = ROOT / "tests"

_HEAD = """\
# 005: Attacks that are tried

<!-- Written by docs/generate_attacks.py from tests/security and tests/*/test_security.py. Change those. -->

Each row is an attack on a running job, its files or its clients, with the test that tries it. If an attack
once succeeded, the row has the number of its finding. Files without a folder are in `tests/security`. The
[threat model](005-security.md) says what is guaranteed and what is not.
"""
_FINDING = re.compile(r"Findings? ([\d, ]+(?:and \d+)?): +")


class Attack(NamedTuple):
    """One test."""

    finding: str
    """Its number in the report of findings; "" if it is none of those."""
    text: str
    test: str
    """``test_wire.py::test_…``"""


def attacks() -> list[Attack]:
    """All that are tried, in the order of the files."""
    files = [*sorted(TESTS.glob("security/test_*.py")), *sorted(TESTS.glob("*/test_security.py"))]
    return [attack for file in files for attack in _of(file)]


def page() -> str:
    """The whole page."""
    found = attacks()
    known = sorted((each for each in found if each.finding), key=_number)
    others = [each for each in found if not each.finding]
    return (
        _HEAD
        + "\n## Attacks that once succeeded\n\n| Finding | Attack | Test |\n|---|---|---|\n"
        + "".join(f"| {each.finding} | {each.text} | {_test(each)} |\n" for each in known)
        + "\n## Other attacks\n\n| Attack | Test |\n|---|---|\n"
        + "".join(f"| {each.text} | {_test(each)} |\n" for each in others)
    )


def _of(file: Path) -> Iterator[Attack]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.name.startswith("test_"):
                text = _told(node)
                finding = _FINDING.match(text)
                text = text[finding.end() :] if finding else text
                beside = file.parent.name != "security"
                name = f"tests/{file.parent.name}/{file.name}" if beside else file.name
                test = f"{name}::{node.name}"
                yield Attack(finding[1] if finding else "", _sentence(text), test)


def _told(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    paragraph = (ast.get_docstring(node) or "").split("\n\n")[0]
    return " ".join(paragraph.split()) or node.name.removeprefix("test_").replace("_", " ")


def _sentence(text: str) -> str:
    text = text[0].upper() + text[1:].rstrip(".") + "."
    parts = text.replace("|", "\\|").split("`")
    return "`".join(
        part if code % 2 else part.replace("<", "\\<") for code, part in enumerate(parts)
    )


def _test(attack: Attack) -> str:
    return f"`{attack.test}`"


def _number(attack: Attack) -> int:
    return int(re.split(r"\D", attack.finding)[0])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
