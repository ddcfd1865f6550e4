"""A cluster as large sites have it: its default file system is a ViewFs, a router stands before the
NameNode, and ZooKeeper chooses which of two ResourceManagers serves.

All tests share one cluster of the module's own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from howdah.backends.base import BackendError
from howdah.spec.problems import JobFileError
from howdah.storage.hdfs.files import Hdfs
from tests.cli.howdah import howdah
from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster
from tests.yarn.runner import Yarn, until
from tests.yarn.test_fail_over import SAVED, SOON_S, finish

pytestmark = [pytest.mark.timeout(600), pytest.mark.nightly]

SAVES = """
from pathlib import Path
import os
from howdah import task

print(Path("words.txt").read_text())
Path(os.environ["HOWDAH_CHECKPOINT_DIR"], "step.txt").write_text("1")
task.checkpoint_saved(1)
Path("results", "loss.txt").write_text("0.5")
"""


@pytest.fixture(scope="module")
def yarn_cluster(hadoop_module_cluster: MakeCluster) -> Cluster:
    return hadoop_module_cluster(
        view=True,
        router=True,
        resource_managers=2,
        zookeeper=True,
        node_managers=1,
    )


def test_all_of_a_job_is_where_the_view_leads_to(
    yarn: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = yarn.cluster.default_fs
    hdfs = Hdfs(fs, conf_dir=str(yarn.cluster.conf_dir))
    hdfs.write("/tmp/raw/words.txt", b"some words")
    job = yarn.submit(
        """
command = "python3 train.py"
files = ["viewfs://view/data/raw/words.txt"]
[checkpoint]
store = "viewfs://view/data/raw/checkpoints"
[outputs]
folders = ["results"]
store = "viewfs:///tmp/outputs"
[roles.worker]
""",
        files={"train.py": SAVES},
    )
    final = job.wait()
    assert (final.outcome, final.unsaved) == ("succeeded", ()), final.reason
    user = yarn.cluster.site.user
    assert job.url == f"{fs}/user/{user}/.howdah/jobs/{user}/{job.job_id}"
    assert "some words" in job.log("worker:0")
    stored = {each.name for each in hdfs.list("/tmp/raw/checkpoints", recursive=True)}
    assert "step.txt" in stored
    assert hdfs.read(f"/tmp/outputs/{job.job_id}/worker-0/results/loss.txt") == b"0.5"
    # Another machine finds it, and what only YARN has of it too.
    hdfs.remove(f"{job.url}/logs/worker-0", recursive=True)
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "elsewhere"))
    assert job.job_id in howdah("list", "--backend", "yarn").text
    until(lambda: "some words" in howdah("logs", job.job_id).text, "YARN has aggregated the logs")
    assert f"{fs}/user/{user}" in howdah("doctor", "--backend", "yarn").text


def test_what_the_view_does_not_lead_to_is_refused_with_what_it_has(yarn: Yarn) -> None:
    links = "its links are: /app-logs, /data/raw, /home, /tmp"
    path = yarn.folder / "job.toml"
    path.write_text('command = "true"\n[checkpoint]\n[roles.worker]\n')
    with pytest.raises(BackendError, match=links):
        yarn.submit_file(path, ("store=viewfs://view/projects",))
    with pytest.raises(JobFileError, match=f"checkpoint.store.*{links}"):
        yarn.submit_file(path, ("checkpoint.store=viewfs://view/data/checkpoints",))


def test_a_job_keeps_all_it_has_behind_a_router_of_hdfs(yarn: Yarn) -> None:
    site = yarn.cluster.site
    store = f"{site.router_fs}/user/{site.user}/routed"
    job = yarn.steps(f'store = "{store}"\n{SAVED}', instances=1)
    job.saves_on()
    assert job.url == f"{store}/{site.user}/{job.job_id}"
    assert finish(yarn, job).incarnation == 1


def test_another_resource_manager_serves_when_the_first_one_dies(yarn: Yarn) -> None:
    cluster = yarn.cluster
    job = yarn.steps(SAVED, instances=1)
    job.saves_on()
    died = cluster.active()
    cluster.kill(f"resourcemanager{died}")
    until(lambda: cluster.active() not in (None, died), "the other one serves", SOON_S)
    job.until_application("RUNNING", SOON_S)
    job.saves_on()
    assert finish(yarn, job).incarnation == 1
    cluster.start(f"resourcemanager{died}")
    cluster.wait_ready()
