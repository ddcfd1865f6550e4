"""What the tests of packing share: a cache, so that the runtime is packed once."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """To be ``XDG_CACHE_HOME``."""
    return tmp_path_factory.mktemp("cache")
