"""A home without jobs, and a file system of a cluster's without any."""

from __future__ import annotations

from pathlib import Path

import pytest

from howdah.backends.yarn.access import Access
from tests.unit.client.hdfs_folder import FS, FolderHdfs

CORE = f"<configuration><property><name>fs.defaultFS</name><value>{FS}</value></property></configuration>"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def hdfs(home: Path, monkeypatch: pytest.MonkeyPatch) -> FolderHdfs:
    """A file system without jobs, and us on it as ada."""
    conf = home / "conf"
    conf.mkdir()
    (conf / "core-site.xml").write_text(CORE)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(conf))
    monkeypatch.setenv("HADOOP_USER_NAME", "ada")
    found = FolderHdfs(home / "hdfs")
    (found.folder / "howdah" / "ada").mkdir(parents=True)
    monkeypatch.setattr(Access, "hdfs", lambda self, url: found)
    return found
