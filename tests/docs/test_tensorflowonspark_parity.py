"""The parity table is what the tests say, and each row has its like on a real Spark."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from tests.docs.pages import DOCS
from tests.spark.compat.parity import Like, collected, problems
from tests.spark.compat.tfos import ROWS


@pytest.fixture(scope="module")
def found() -> list[Like]:
    return collected()


def test_every_row_has_its_like_on_a_real_spark(found: list[Like]) -> None:
    assert problems(found) == []


def test_the_parity_page_is_up_to_date(found: list[Like]) -> None:
    written = (DOCS / "guides" / "tensorflowonspark-parity.md").read_text(encoding="utf-8")
    told = "run docs/generate_tensorflowonspark_parity.py and commit the result"
    assert written == _generator().page(found), told


def test_a_row_without_a_real_test_is_told() -> None:
    row, other, *_ = ROWS
    likes = [
        Like(row=row, test="a", real=False, skipped=False),
        Like(row=other, test="b", real=True, skipped=True),
        Like(row="nonsense", test="c", real=True, skipped=False),
    ]
    told = "\n".join(problems(likes))
    assert "a does not use a real Spark" in told
    assert "b may be skipped" in told
    assert "'nonsense', which is no row" in told
    assert told.count("nothing stands for") == len(ROWS) - 2


def _generator() -> ModuleType:
    path = DOCS / "generate_tensorflowonspark_parity.py"
    spec = importlib.util.spec_from_file_location("tfos_parity", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
