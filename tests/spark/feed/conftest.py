"""A trainer with a controller and feeders, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from howdah.wire.authority import create
from tests.spark.feed.rig import JOB, Rig


@pytest.fixture(scope="session")
def feed_secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("feed-secrets")
    create(JOB, folder / "secrets")
    return folder / "secrets"


@pytest.fixture
def rig(feed_secrets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.chdir(tmp_path)
    made = Rig(feed_secrets, tmp_path)
    yield made
    made.close()
