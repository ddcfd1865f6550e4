"""Jobs on the cluster all tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hadoop.cluster import Cluster
from tests.yarn.runner import Yarn
from tests.yarn.tony import PARITY, Tony


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(PARITY)


@pytest.fixture
def yarn_cluster(hadoop: Cluster) -> Cluster:
    """Where `yarn` submits: a module may have one of its own."""
    return hadoop


@pytest.fixture
def yarn(yarn_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yarn]:
    """Submits jobs; ends them afterwards, and checks that no process is left."""
    for name, value in yarn_cluster.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))
    yarn = Yarn(yarn_cluster, tmp_path)
    yield yarn
    yarn.close()


@pytest.fixture
def tony(yarn: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tony:
    """TonY's command line, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return Tony(yarn, tmp_path)
