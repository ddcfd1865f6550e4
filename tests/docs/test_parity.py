"""The parity table is what the tests say, and each of TonY's tests has its like on a real cluster."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from tests.docs.pages import DOCS
from tests.yarn.parity import Like, collected, problems
from tests.yarn.tony import ROWS


@pytest.fixture(scope="module")
def found() -> list[Like]:
    return collected()


def test_every_test_of_tonys_has_its_like_that_runs_on_a_real_cluster(found: list[Like]) -> None:
    assert problems(found) == []


def test_the_parity_page_is_up_to_date(found: list[Like]) -> None:
    written = (DOCS / "guides" / "tony-parity.md").read_text(encoding="utf-8")
    assert written == _generator().page(found), "run docs/generate_parity.py and commit the result"


def test_a_row_without_a_real_test_is_told() -> None:
    row, other, *_ = ROWS
    likes = [
        Like(row=row, test="a", real=False, skipped=False),
        Like(row=other, test="b", real=True, skipped=True),
        Like(row="nonsense", test="c", real=True, skipped=False),
    ]
    told = "\n".join(problems(likes))
    assert "a does not use the real cluster" in told
    assert "b may be skipped" in told
    assert "'nonsense', which is no test of TonY's" in told
    assert told.count("nothing stands for") == len(ROWS) - 2


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("parity", DOCS / "generate_parity.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
