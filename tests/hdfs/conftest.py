"""Folders on a real HDFS."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from howdah.core.messages import Task
from howdah.storage.checkpoints.versions import CheckpointSpec
from howdah.storage.hdfs.files import Hdfs
from tests.hadoop.cluster import Cluster


@pytest.fixture
def url(hadoop: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty folder of the shared cluster."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hadoop.conf_dir))
    yield from folder_on(hadoop)


@pytest.fixture
def hdfs(url: str) -> Hdfs:
    return Hdfs(url)


@pytest.fixture
def place(url: str) -> str:
    return f"{url}/store"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "work" / "checkpoints"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def spec(folder: Path, place: str) -> CheckpointSpec:
    return CheckpointSpec(folder=str(folder), store=place, task=Task("worker", 0))


def folder_on(cluster: Cluster) -> Iterator[str]:
    """A folder of one's own on that cluster, removed afterwards."""
    place = f"{cluster.default_fs}/tmp/howdah-{secrets.token_hex(4)}"
    hdfs = Hdfs(place, conf_dir=str(cluster.conf_dir))
    hdfs.mkdirs(place)
    yield place
    hdfs.remove(place, recursive=True)
