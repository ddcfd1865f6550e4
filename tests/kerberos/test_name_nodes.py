"""Two NameNodes of one nameservice on a cluster that demands Kerberos: the delegation token is the nameservice's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster
from tests.hadoop.site import NAME_SERVICE
from tests.kerberos.person import Person
from tests.kerberos.test_lifetimes import saves_on
from tests.yarn.runner import make_whole, until

pytestmark = pytest.mark.nightly

STORE = f"hdfs://{NAME_SERVICE}/user/ally/saved"
JOB = f"""
name = "failing-over"
command = "python3 program.py"
env = {{{{ STOP_FILE = "{{stop}}" }}}}
[roles.worker]
memory = "256m"
[master]
memory = "256m"
[checkpoint]
store = "{STORE}"
"""
TRAINS = """
import os, re, time
from pathlib import Path
from howdah import task
found = Path(os.environ["HADOOP_TOKEN_FILE_LOCATION"]).read_bytes()
print("tokens of", *sorted(set(re.findall(r"ha-hdfs:[a-z0-9]+", found.decode(errors="replace")))), flush=True)
folder, step = Path(os.environ["HOWDAH_CHECKPOINT_DIR"]), 0
while not os.path.exists(os.environ["STOP_FILE"]):
    (folder / "step.txt").write_text(str(step))
    task.checkpoint_saved(step)
    print("step", step, flush=True)
    step += 1
    time.sleep(1)
"""


@pytest.fixture(scope="module")
def pair(hadoop_module_cluster: MakeCluster) -> Iterator[Cluster]:
    yield hadoop_module_cluster(
        kerberos=True,
        name_nodes=2,
        node_managers=1,
    )


@pytest.mark.timeout(900)
def test_a_job_saves_on_when_the_other_name_node_serves(pair: Cluster, tmp_path: Path) -> None:
    """With a ticket: of two NameNodes the other one serves in the middle of a job, by an administrator's order and then
    because the first one is killed. The job trains on and saves its checkpoints, with a token of their nameservice."""
    alice = Person.with_ticket(pair, tmp_path)
    stop = tmp_path / "stop"
    alice.write(job=JOB.format(stop=stop), program=TRAINS)
    done = alice.howdah("submit", "--backend", "yarn", "job.toml")
    assert done.returncode == 0, done.stderr
    saves_on(alice)

    pair.fail_over_hdfs()
    saves_on(alice)

    died = pair.active_name_node()
    assert died is not None
    pair.kill(f"namenode{died}")
    pair.make_name_node_active(2 if died == 1 else 1)
    saves_on(alice)

    stop.touch()
    until(lambda: alice.application()["state"] == "FINISHED", "it ends", 150.0)
    assert alice.application()["finalStatus"] == "SUCCEEDED", alice.application()
    job = alice.job()
    ended = alice.howdah("status", job.job_id)
    assert "succeeded" in ended.stdout, ended
    log = alice.howdah("logs", job.job_id).stdout
    assert f"tokens of ha-hdfs:{NAME_SERVICE}" in log
    saved = alice.files(STORE)
    assert [path for path in saved if path.endswith("step.txt")]
    assert {owner for owner, _ in saved.values()} == {"ally"}
    make_whole(pair)
