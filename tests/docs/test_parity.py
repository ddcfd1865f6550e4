"""The parity tables are what the tests say, and each row has its like on real servers."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from tests.docs.pages import DOCS
from tests.parity import Like, Parity
from tests.spark.compat import tfos
from tests.yarn import tony

SYSTEMS = {"tony": tony.PARITY, "tensorflowonspark": tfos.PARITY}


@pytest.fixture(scope="module", params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def parity(system: str) -> Parity:
    return SYSTEMS[system]


@pytest.fixture(scope="module")
def found(parity: Parity) -> list[Like]:
    """Collected by pytest in a process of its own, with all that those tests import."""
    return parity.collected()


@pytest.mark.nightly
def test_every_row_has_its_like_on_real_servers(parity: Parity, found: list[Like]) -> None:
    assert parity.problems(found) == []


@pytest.mark.nightly
def test_the_parity_page_is_up_to_date(system: str, found: list[Like]) -> None:
    generator = _generator()
    written = getattr(generator, system.upper()).read_text(encoding="utf-8")
    page = getattr(generator, f"{system}_page")(found)
    assert written == page, "run docs/generate_parity.py and commit the result"


def test_a_row_without_a_real_test_is_told(parity: Parity) -> None:
    row, other, *_ = parity.rows
    likes = [
        Like(row=row, test="a", real=False, skipped=False),
        Like(row=other, test="b", real=True, skipped=True),
        Like(row="nonsense", test="c", real=True, skipped=False),
    ]
    told = "\n".join(parity.problems(likes))
    assert f"a does not use {parity.real}" in told
    assert "b may be skipped" in told
    assert f"'nonsense', which is not {parity.row}" in told
    assert told.count("nothing stands for") == len(parity.rows) - 2


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("parity", DOCS / "generate_parity.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
