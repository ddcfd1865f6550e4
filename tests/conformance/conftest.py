"""The backends that must pass the suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.harness import Harness
from tests.conformance.local import LocalHarness

HARNESSES: dict[str, Callable[[Path], Harness]] = {"local": LocalHarness}


@pytest.fixture(params=sorted(HARNESSES))
def make_harness(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Harness]:
    """Makes a job on the backend under test. To be called on the test's event loop."""
    return lambda: HARNESSES[request.param](tmp_path)
