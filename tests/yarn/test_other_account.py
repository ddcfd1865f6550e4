"""Jobs where nodes run all containers as an account of their own, which is no user's: a NodeManager that is not root's
with Hadoop's DefaultContainerExecutor."""

from __future__ import annotations

import os
import pwd

import pytest

from howdah.storage.hdfs.files import Hdfs
from howdah.storage.jobdir import base_folder, list_jobs
from tests.cli.howdah import howdah, start
from tests.hadoop.cluster import Cluster
from tests.hadoop.leftovers import leftovers, wait_same
from tests.hadoop.plugin import MakeCluster
from tests.security.strangers import needs_root
from tests.yarn.runner import DAEMON_S, SMALL, Yarn, until
from tests.yarn.test_security import attack_as_another_user

pytestmark = [pytest.mark.timeout(300), pytest.mark.nightly, needs_root]

ACCOUNT = "daemon"
TRAINS = """
import os
from pathlib import Path
from howdah import task
print("I am", os.getuid(), Path("data.txt").read_text(), flush=True)
Path(os.environ["HOWDAH_CHECKPOINT_DIR"], "step.txt").write_text("1")
task.checkpoint_saved(1)
Path("results").mkdir(exist_ok=True)
Path("results/loss.txt").write_text("0.5")
"""
JOB = """
command = "python3 train.py"
[roles.worker]
instances = 2
memory = "256m"
[checkpoint]
[outputs]
folders = ["results"]
"""


@pytest.fixture(scope="module")
def yarn_cluster(hadoop_module_cluster: MakeCluster) -> Cluster:
    return hadoop_module_cluster(nodes_as=ACCOUNT, node_managers=1, web_proxy=False)


def test_a_user_gets_everything_of_a_job_that_ran_as_the_nodes_account(yarn: Yarn) -> None:
    """And removes everything of it, there and here."""
    cluster = yarn.cluster
    before = leftovers(cluster)
    folder = yarn.folder / "job"
    folder.mkdir()
    (folder / "job.toml").write_text(JOB + SMALL)
    (folder / "train.py").write_text(TRAINS)
    (folder / "data.txt").write_text("and read this")
    (folder / "data.txt").chmod(0o600)
    ran = start("run", str(folder / "job.toml"), "--backend", "yarn")
    assert ran.end(DAEMON_S) == 0, f"{ran.text}\n{ran.told}"
    assert f"I am {pwd.getpwnam(ACCOUNT).pw_uid} and read this" in ran.text
    (job,) = list_jobs(base_folder())
    meta = job.meta()
    assert meta.url is not None
    assert meta.application_id is not None
    hdfs = Hdfs(meta.url, conf_dir=str(cluster.conf_dir))
    listed = hdfs.list(meta.url, recursive=True)
    assert {each.owner for each in listed} == {cluster.site.user}
    assert {"step.txt", "loss.txt"} <= {each.name for each in listed}
    loss = next(each for each in listed if each.name == "loss.txt")
    assert hdfs.read(loss.path) == b"0.5"
    hdfs.remove(f"{meta.url}/logs/worker-0", recursive=True)
    home, os.environ["HOWDAH_HOME"] = os.environ["HOWDAH_HOME"], str(yarn.folder / "elsewhere")
    try:
        until(lambda: "I am" in howdah("logs", job.job_id).text, "YARN has aggregated the logs")
    finally:
        os.environ["HOWDAH_HOME"] = home
    assert wait_same(cluster, frozenset(), meta.application_id) == frozenset()
    howdah("rm", job.job_id)
    assert list_jobs(base_folder()) == []
    assert not hdfs.exists(meta.url)
    kept = {each for each in leftovers(cluster) - before if ".howdah/cache" not in each}
    assert all(
        each.endswith(("/.howdah", "/jobs", f"/jobs/{cluster.site.user}")) for each in kept
    ), kept


def test_a_third_user_of_a_node_gets_nothing_of_a_container(yarn: Yarn) -> None:
    attack_as_another_user(yarn)
