from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.web.serving import Served, serving


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as running:
        yield running
