"""What former coordinators measured, where it is elsewhere."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from howdah.coordinator import remote_directory
from howdah.storage.copies.mirror import Mirror

URL = "hdfs://nn.example:8020/jobs/ada/j"


@pytest.mark.parametrize(("times", "brought"), [(2, True), (99, False)])
def test_former_measurements_are_brought_once_the_store_is_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    times: int,
    brought: bool,
) -> None:
    asked: list[Mirror] = []

    def bring(mirror: Mirror) -> None:
        asked.append(mirror)
        if len(asked) <= times:
            raise OSError("the NameNode is away")

    monkeypatch.setattr(Mirror, "__init__", lambda *args: None)
    monkeypatch.setattr(Mirror, "bring_metrics", bring)
    monkeypatch.setattr(remote_directory, "BROUGHT_AGAIN_S", (0.0, 0.0, 0.0), raising=False)
    with caplog.at_level(logging.WARNING):
        asyncio.run(remote_directory.bring_metrics(URL, tmp_path))
    assert len(asked) == (3 if brought else 4)
    assert ("are not shown" in caplog.text) is not brought
    assert "the NameNode is away" in caplog.text
