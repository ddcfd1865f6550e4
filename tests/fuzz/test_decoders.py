"""Every decoder: no crash, no hang, no memory."""

from __future__ import annotations

import pytest

from tests.fuzz.run import fuzz
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize(
    "count",
    [2_000, pytest.param(20_000, marks=[pytest.mark.nightly, pytest.mark.timeout(600)])],
)
@pytest.mark.parametrize("name", TARGETS)
def test_a_decoder_stands_any_bytes(name: str, count: int, seed: int) -> None:
    fuzz(name, count, seed)
