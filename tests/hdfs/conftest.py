"""Folders on a real HDFS."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from howdah.storage.hdfs.files import Hdfs
from tests.hadoop.cluster import Cluster


@pytest.fixture
def url(hadoop: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty folder of the shared cluster."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hadoop.conf_dir))
    yield from folder(hadoop)


@pytest.fixture
def hdfs(url: str) -> Hdfs:
    return Hdfs(url)


def folder(cluster: Cluster) -> Iterator[str]:
    """A folder of one's own on that cluster, removed afterwards."""
    place = f"{cluster.default_fs}/tmp/howdah-{secrets.token_hex(4)}"
    hdfs = Hdfs(place, conf_dir=str(cluster.conf_dir))
    hdfs.mkdirs(place)
    yield place
    hdfs.remove(place, recursive=True)
