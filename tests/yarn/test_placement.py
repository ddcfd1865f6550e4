"""Where containers are put, on three nodes of which the last has a label and GPUs, and what such a cluster refuses."""

from __future__ import annotations

import re

import pytest

from tests.cli.howdah import howdah
from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster
from tests.yarn.runner import Yarn, YarnJob
from tests.yarn.test_client import refusal

pytestmark = [pytest.mark.timeout(300), pytest.mark.nightly]


@pytest.fixture(scope="module")
def yarn_cluster(hadoop_module_cluster: MakeCluster) -> Cluster:
    return hadoop_module_cluster(node_managers=3, node_memory_mib=6144, gpu_node=True)


def nodes(job: YarnJob, role: str) -> list[str]:
    return [task.node or "" for task in job.view().tasks if task.role == role]


def role(
    name: str, instances: int, placement: str = "", more: str = "", memory: str = "256m"
) -> str:
    return f"""
[roles.{name}]
instances = {instances}
memory = "{memory}"
command = "sleep 300"
{more}
placement = {{ {placement} }}
"""


def test_tasks_that_are_to_be_spread_are_on_nodes_of_their_own(yarn: Yarn) -> None:
    job = yarn.submit(role("worker", 2, "spread = true"))
    job.running()
    assert len(set(nodes(job, "worker"))) == 2
    job.handle.stop()
    job.wait()


def test_roles_are_kept_apart_and_asked_for_near_each_other_as_the_job_says(yarn: Yarn) -> None:
    job = yarn.submit(
        role("ps", 1) + role("apart", 2, 'apart = ["ps"]') + role("near", 1, 'near = ["ps"]')
    )
    job.running()
    assert set(nodes(job, "apart")).isdisjoint(nodes(job, "ps"))
    # How long a scheduler waits for a preferred node is the site's (node-locality-delay).
    assert len(nodes(job, "near")) == 1
    job.handle.stop()
    job.wait()


def test_a_role_together_with_another_is_on_its_node_or_waits_though_others_have_room(
    yarn: Yarn,
) -> None:
    # A node has 6 GiB: beside the one of ps there is room for one of these two, elsewhere for both.
    job = yarn.submit(
        role("ps", 1, memory="3g") + role("worker", 2, 'together = ["ps"]', memory="2g")
    )
    why = "worker: it must be on a node of ps, and none of them has 2 GiB"
    job.until(
        lambda view: view.pending_reason.startswith(why) and any(nodes(job, "worker")),
        "one of them waits, and says why",
    )
    (there,) = nodes(job, "ps")
    assert sorted(nodes(job, "worker")) == ["", there]
    job.handle.stop()
    job.wait()


def test_a_label_and_gpus_lead_to_the_node_that_has_them(yarn: Yarn) -> None:
    job = yarn.submit('queue = "gpu"\n' + role("worker", 1, more='label = "gpu"\ngpus = 1'))
    job.running()
    (node,) = nodes(job, "worker")
    labels = {n["id"]: n.get("nodeLabels") for n in yarn.cluster.nodes()}
    assert [has for name, has in labels.items() if name.startswith(node)] == [["gpu"]]
    job.handle.stop()
    job.wait()


def test_labels_and_gpus_that_no_node_has_are_refused_with_what_there_is(yarn: Yarn) -> None:
    text = refusal(yarn, roles__worker__gpus=1)
    assert "ask for none, or for other nodes by their label" in text
    text = refusal(yarn, queue="gpu", roles__worker__label="gpu", roles__worker__gpus=9)
    assert re.search(r"9 GPUs is more than .*2 GPUs", text)
    assert "did you mean 'gpu'?" in refusal(yarn, queue="gpu", roles__worker__label="gpus")
    text = refusal(yarn, roles__worker__label="gpu")
    assert "jobs of the queue 'default' may not use nodes labelled 'gpu'" in text
    assert "ok  GPUs: 2 on 1 nodes" in howdah("doctor", "--backend", "yarn").text
