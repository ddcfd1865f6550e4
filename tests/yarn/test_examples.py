"""The examples train on a real cluster as they do on one machine, and leave their work on HDFS."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from howdah.storage.hdfs.files import Hdfs
from tests.acceptance.checks import TRAININGS, check_training
from tests.acceptance.jobs import Example
from tests.hadoop.cluster import Cluster
from tests.yarn.runner import until

pytestmark = pytest.mark.nightly

PROOF = "proof"
"""The output folder the ranks tell in which samples they saw."""


@pytest.fixture
def cluster(hadoop: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for name, value in hadoop.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))
    return hadoop


@pytest.mark.timeout(360, func_only=True)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("tensorflow", marks=pytest.mark.on_yarn("TensorFlow")),
        pytest.param("pytorch", marks=pytest.mark.on_yarn("PyTorch")),
        pytest.param("tensorflow-ps", marks=pytest.mark.on_yarn("TensorFlow")),
        pytest.param("jax", marks=pytest.mark.on_yarn("JAX")),
    ],
)
def test_an_example_trains_on_the_cluster(name: str, cluster: Cluster, tmp_path: Path) -> None:
    # The nodes' own Python is this one: what is tested is the training, not the packing.
    fields: dict[str, Any] = {
        "environment.python": sys.executable,
        "outputs.folders": json.dumps([PROOF]),
    }
    job = Example(name, tmp_path).run("--backend", "yarn", **fields).end(within_s=330)
    meta = job.directory.meta()
    assert meta.url is not None
    hdfs = Hdfs(meta.url, conf_dir=str(cluster.conf_dir))

    def files(folder: str) -> list[str]:
        root = hdfs.path(f"{meta.url}/{folder}")
        found = hdfs.list(root, recursive=True) if hdfs.exists(root) else []
        return sorted(each.path for each in found if not each.is_dir)

    shards = [json.loads(hdfs.read(path)) for path in files("outputs") if "/samples-" in path]
    check_training(TRAININGS[name], job.run.text, shards)
    printed = "".join(hdfs.read(path).decode() for path in files("logs") if path.endswith("/1.log"))
    assert f"final accuracy {job.numbers(r'final accuracy (.+)')[0]:.4f}" in printed
    assert any("events.out.tfevents" in path for path in files("tensorboard"))
    checkpoints = files("checkpoints")
    newest = json.loads(hdfs.read([path for path in checkpoints if "/manifest.json" in path][-1]))
    assert newest
    assert len(checkpoints) >= 2, "a manifest, and what it tells of"
    assert json.loads(hdfs.read(f"{meta.url}/final.json"))["outcome"] == "succeeded"

    def told() -> dict[str, Any] | None:
        application = cluster.rm(f"apps/{meta.application_id}")["app"]
        return application if application["state"] == "FINISHED" else None

    assert until(told, "the application is over")["finalStatus"] == "SUCCEEDED"
    number = str(meta.application_id).removeprefix("application_")
    until(
        lambda: not [c for c in cluster.containers() if number in c["id"]], "no container is left"
    )
    assert not job.marked(), "nothing is left"
