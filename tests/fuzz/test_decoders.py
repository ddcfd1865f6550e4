"""Every decoder, 20,000 inputs each: no crash, no hang, no memory."""

from __future__ import annotations

import os
import random

import pytest

from tests.fuzz.run import fuzz
from tests.fuzz.targets import TARGETS

COUNT = 20_000
SEED = int(
    os.environ.get("HOWDAH_SEED") or (0 if os.environ.get("CI") else random.randrange(2**31))
)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", TARGETS)
def test_a_decoder_stands_any_bytes(name: str) -> None:
    fuzz(name, COUNT, SEED)
