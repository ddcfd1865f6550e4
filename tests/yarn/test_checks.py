"""What a cluster can never grant is refused with the reason and the nearest possible value."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from howdah.backends.base import role_resources
from howdah.backends.yarn.amounts import GPU, Amount
from howdah.backends.yarn.client import checks, cluster_report
from howdah.backends.yarn.client.cluster import Queue, Share, YarnCluster, YarnNode
from howdah.frameworks.planning import expand
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.protos import yarn
from howdah.spec.model import Acl, Hadoop, Job, Master, Mode, Placement, Role

PLAIN = YarnNode(host="n1:8041", capability=Amount(memory_mb=4096, cores=8))
WITH_GPUS = YarnNode(
    host="n2:8041", capability=Amount(memory_mb=4096, cores=8, more={GPU: 2}), labels=("gpu",)
)
DEFAULT = Queue(name="default", path="root.default", labels=())
RESEARCH = Queue(name="research", path="root.research", labels=("gpu",))
CLUSTER = YarnCluster(
    user="ada",
    largest=Amount(memory_mb=4096, cores=8, more={GPU: 8}),
    smallest=Amount(memory_mb=64, cores=1),
    nodes=(PLAIN, WITH_GPUS),
    queues=(Queue(name="root", path="root", leaf=False), DEFAULT, RESEARCH),
    labels=("gpu",),
    resource_types=(GPU,),
    may_submit=frozenset({"default", "research"}),
)


def found(cluster: YarnCluster = CLUSTER, **fields: Any) -> list[str]:
    role = {name: fields.pop(name) for name in list(fields) if name in Role.__struct_fields__}
    role = {n: v for n, v in role.items() if n not in Job.__struct_fields__} | {
        n: v for n, v in role.items() if n == "label"
    }
    job = expand(Job(command="true", roles={"worker": Role(**role)}, **fields))
    return checks.problems(job, role_resources(job), cluster, checks.asked_for(job, cluster))


def doubted(cluster: YarnCluster = CLUSTER, **fields: Any) -> str:
    """What is only warned of: it may be so that the job never runs."""
    label, queue = fields.get("label"), fields.get("queue")
    assert found(cluster, **fields) == []
    job = expand(Job(command="true", queue=queue, roles={"worker": Role(label=label)}))
    asked = checks.asked_for(job, cluster)
    doubts = checks.warnings(job, role_resources(job), cluster, asked)
    return only([*checks.unusable(job, cluster), *doubts])


def only(problems: list[str]) -> str:
    assert len(problems) == 1, problems
    return problems[0]


def test_what_fits_is_no_problem() -> None:
    assert found(instances=3, memory="1g", cores=2) == []
    assert found(queue="research", label="gpu", gpus=2, memory="2g") == []
    assert found(queue="root.research", label="gpu") == []


def test_a_container_larger_than_the_cluster_gives() -> None:
    text = only(found(memory="8g"))
    assert text.startswith("roles.worker.memory: 8 GiB of memory is more than")
    assert "yarn.scheduler.maximum-allocation-mb" in text
    assert text.endswith('at most: memory = "4096m"')


def test_a_container_larger_than_any_node() -> None:
    cluster = YarnCluster(user="ada", largest=Amount(memory_mb=65536, cores=64), nodes=(PLAIN,))
    text = only(found(cluster, memory="6g"))
    assert text == (
        "roles.worker.memory: 6 GiB of memory is more than any node has, 4 GiB of memory; "
        'at most: memory = "4096m"'
    )
    assert "cores = 8" in only(found(cluster, cores=9))


def test_more_gpus_than_any_node_has() -> None:
    text = only(found(queue="research", label="gpu", gpus=4))
    assert "roles.worker.gpus: 4 GPUs is more than any node labelled 'gpu' has, 2 GPUs" in text
    assert text.endswith("at most: gpus = 2")


def test_gpus_on_nodes_that_have_none() -> None:
    assert "ask for none, or for other nodes by their label" in only(found(gpus=1))


def test_a_cluster_without_gpus() -> None:
    cluster = YarnCluster(
        user="ada", largest=CLUSTER.largest, nodes=(PLAIN,), resource_types=("example.com/fpga",)
    )
    assert "schedules no GPUs" in only(found(cluster, gpus=1))
    text = only(found(cluster, resources={"example.com/fgpa": 1}))
    assert "did you mean 'example.com/fpga'?" in text


def test_no_one_node_that_has_it_all() -> None:
    nodes = (
        YarnNode(host="big:1", capability=Amount(memory_mb=4096, cores=1)),
        YarnNode(host="fast:1", capability=Amount(memory_mb=1024, cores=8)),
    )
    cluster = YarnCluster(user="ada", largest=CLUSTER.largest, nodes=nodes)
    text = only(found(cluster, memory="2g", cores=4))
    assert "no one node has 2 GiB of memory, 4 cores together" in text


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ("defualt", "there is no queue 'defualt' (did you mean 'default'?); there is: default"),
        ("root", "'root' only holds other queues, jobs go to one of those: default, research"),
    ],
)
def test_queues_that_cannot_be_used(queue: str, said: str) -> None:
    assert said in doubted(queue=queue)


def test_a_stopped_queue_and_one_that_is_not_for_the_user() -> None:
    stopped = Queue(name="default", running=False, state="STOPPED")
    cluster = YarnCluster(
        user="ada",
        largest=CLUSTER.largest,
        queues=(stopped, RESEARCH),
        may_submit=frozenset({"default"}),
    )
    assert "'default' takes no jobs, it is stopped" in doubted(cluster)
    text = doubted(cluster, queue="research")
    assert "ada may not submit to 'research'" in text


def test_labels() -> None:
    assert "there is no node label 'gpus' (did you mean 'gpu'?)" in only(found(label="gpus"))
    text = only(found(label="gpu"))
    assert "jobs of the queue 'default' may not use nodes labelled 'gpu'" in text
    assert text.endswith("research may")
    cluster = YarnCluster(
        user="ada",
        largest=CLUSTER.largest,
        nodes=(PLAIN,),
        labels=("gpu",),
        queues=(RESEARCH,),
    )
    assert "no node is labelled 'gpu' at present" in doubted(cluster, label="gpu", queue="research")


def test_the_queues_own_label_counts_for_who_names_none() -> None:
    research = Queue(name="research", labels=("gpu",), default_label="gpu")
    cluster = YarnCluster(
        user="ada", largest=CLUSTER.largest, nodes=(PLAIN, WITH_GPUS), queues=(research,)
    )
    assert found(cluster, queue="research", gpus=2) == []


def test_idle_nodes_of_a_label_that_is_not_exclusive_count_for_who_names_none() -> None:
    """YARN gives them to tasks, and to no master."""
    shared = msgspec.structs.replace(CLUSTER, shared_labels=frozenset({"gpu"}))
    assert "roles.worker.gpus" in only(found(gpus=1))
    assert found(shared, gpus=1) == []
    assert found(shared, instances=5, memory="1g") == []
    spread = {"instances": 2, "memory": "1g", "placement": Placement(spread=True)}
    assert found(shared, **spread) == []
    assert "3 tasks want a node each" in only(found(shared, **{**spread, "instances": 3}))
    small = msgspec.structs.replace(PLAIN, capability=Amount(memory_mb=2048, cores=8))
    cluster = msgspec.structs.replace(shared, nodes=(small, WITH_GPUS))
    assert "2 GiB" in only(found(cluster, memory="1g", master=Master(memory="3g")))
    # What the queue may get of its own nodes limits what it gets of the others no more.
    for share in (Share(maximum_part=0.5), Share(maximum=Amount(memory_mb=2048, cores=4))):
        queue = msgspec.structs.replace(DEFAULT, shares={"": share})
        cluster = msgspec.structs.replace(shared, queues=(queue,))
        assert found(cluster, instances=5, memory="1g") == []
        assert "may have at most 6 GiB" in only(found(cluster, instances=6, memory="1g"))


def test_a_gang_larger_than_the_cluster() -> None:
    text = only(found(instances=5, memory="1g"))
    assert "all tasks that must run together need 5.5 GiB of memory with the master" in text
    assert "the cluster has 4 GiB of memory" in text
    assert "roles.worker.instances = 3" in text


def test_a_gang_larger_than_its_queue_may_get() -> None:
    share = Share(maximum=Amount(memory_mb=2048, cores=8))
    queue = Queue(name="default", shares={"": share})
    cluster = YarnCluster(user="ada", largest=CLUSTER.largest, nodes=(PLAIN,), queues=(queue,))
    text = only(found(cluster, instances=2, memory="1g"))
    assert "the queue 'default' may have at most 2 GiB of memory" in text
    assert "roles.worker.instances = 1" in text
    half = Queue(name="default", shares={"": Share(maximum_part=0.5)})
    cluster = YarnCluster(user="ada", largest=CLUSTER.largest, nodes=(PLAIN,), queues=(half,))
    assert "may have at most 2 GiB" in only(found(cluster, instances=2, memory="1g"))


def test_elastic_gangs_count_at_their_least_and_loose_tasks_not_together() -> None:
    assert found(instances="2..64", memory="1g") == []
    assert found(instances=64, memory="1g", mode=Mode.EACH) == []


def test_what_nodes_cannot_hold_after_rounding() -> None:
    cluster = YarnCluster(
        user="ada",
        largest=CLUSTER.largest,
        smallest=Amount(memory_mb=1024, cores=1),
        nodes=(PLAIN,),
    )
    assert "3" in only(found(cluster, instances=4, memory="1g"))


def test_more_tasks_than_nodes_to_spread_over() -> None:
    text = only(found(instances=2, memory="1g", placement=Placement(spread=True)))
    assert "2 tasks want a node each, but only 1 of the nodes can hold one" in text


def test_no_node_for_a_container_and_the_one_it_must_be_together_with() -> None:
    def told(memory: str) -> list[str]:
        worker = Role(memory=memory, placement=Placement(together=("ps",)))
        roles = {"ps": Role(memory="3g"), "worker": worker}
        job = expand(Job(command="true", mode=Mode.EACH, roles=roles))
        return checks.problems(job, role_resources(job), CLUSTER, DEFAULT)

    assert told("1g") == []
    assert only(told("2g")).startswith(
        "roles.worker.placement.together: no one node can hold a container of worker and one of ps "
        "(5 GiB of memory"
    )


def test_the_master_is_looked_at_too() -> None:
    assert only(found(master=Master(memory="16g"))).startswith("master.memory: 16 GiB")


def test_a_cluster_that_tells_nothing_refuses_nothing() -> None:
    cluster = YarnCluster(user="ada", largest=Amount(memory_mb=1 << 20, cores=1 << 10))
    assert found(cluster, queue="any", label="some", instances=100) == []


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"instances": 5, "memory": "1g"}, "the cluster has 4 GiB of memory"),
        ({"queue": "research", "label": "gpu", "gpus": 4}, "more than any node labelled 'gpu' has"),
        ({"instances": 2, "placement": Placement(spread=True)}, "only 1 of the nodes can hold one"),
    ],
)
def test_a_cluster_that_adds_nodes_only_warns_of_what_its_nodes_do_not_hold(
    asked: dict[str, Any], said: str
) -> None:
    assert said in only(found(**asked))
    role = {name: value for name, value in asked.items() if name != "queue"}
    growing = Job(
        command="true",
        queue=asked.get("queue"),
        roles={"worker": Role(**role)},
        hadoop=Hadoop(autoscaling=True),
    )
    job = expand(growing)
    queue = checks.asked_for(job, CLUSTER)
    assert checks.problems(job, role_resources(job), CLUSTER, queue) == []
    assert said in only(checks.warnings(job, role_resources(job), CLUSTER, queue))


def test_what_yarn_itself_refuses_stays_refused_where_nodes_are_added() -> None:
    growing = Hadoop(autoscaling=True)
    assert "yarn.scheduler.maximum-allocation-mb" in only(found(memory="8g", hadoop=growing))
    assert "there is no node label" in only(found(label="gpus", hadoop=growing))


def by_configuration(settings: dict[str, str], job: Job) -> list[str]:
    return checks.by_configuration(job, Configuration(settings))


def test_of_images_only_what_the_configuration_says_is_said() -> None:
    job = expand(Job(command="true", roles={"worker": Role(image="library/python"), "ps": Role()}))
    of_nodes = "yarn.nodemanager"
    runtimes = f"{of_nodes}.runtime.linux.allowed-runtimes"
    linux = {
        f"{of_nodes}.container-executor.class": "org.apache.hadoop.yarn.server.nodemanager.LinuxContainerExecutor"
    }
    for settings in ({}, linux, {runtimes: "default, docker"}):
        assert by_configuration(settings, job) == []
    text = only(by_configuration({runtimes: "default,runc"}, job))
    assert text.startswith("roles.worker.image: nodes refuse containers with an image")
    assert f"{runtimes} is 'default,runc'" in text


def test_access_lists_that_let_everybody_in_lose_nothing_where_there_are_none() -> None:
    job = expand(Job(command="true", roles={"worker": Role()}, acl=Acl(view=("*",))))
    assert by_configuration({}, job) == []
    job = msgspec.structs.replace(job, acl=Acl(view=("*",), modify_groups=("ops",)))
    assert only(by_configuration({}, job)).startswith("acl: modify-groups keep nobody out")
    assert by_configuration({"yarn.acl.enable": "true"}, job) == []


# -- queues that are known only once YARN has taken the job ----------------------------------------


def test_no_queue_is_held_against_a_job_before_it_is_in_one() -> None:
    job = expand(Job(command="true", queue="research", roles={"worker": Role(gpus=2)}))
    tight = Queue(name="research", shares={"": Share(maximum=Amount(memory_mb=512, cores=1))})
    cluster = YarnCluster(
        user="ada", largest=CLUSTER.largest, nodes=(PLAIN, WITH_GPUS), queues=(DEFAULT, tight)
    )
    assert checks.problems(job, role_resources(job), cluster) == []
    assert checks.problems(job, role_resources(job), cluster, tight)
    label = expand(Job(command="true", roles={"worker": Role(label="gpu")}))
    assert checks.problems(label, role_resources(label), CLUSTER) == []
    assert "may not use" in only(checks.problems(label, role_resources(label), CLUSTER, DEFAULT))


@pytest.mark.parametrize(
    ("asked", "got", "said"),
    [
        (None, "root.users.ada", False),
        ("default", "root.default", False),
        ("root.research.vision", "vision", False),
        ("vision", "root.research.vision", False),
        ("research.vision", "root.research.vision", False),
        ("vision", "root.users.ada", True),
        ("default", "root.users.ada", True),
    ],
)
def test_a_queue_that_is_not_the_one_asked_for_is_named(
    asked: str | None, got: str, said: bool
) -> None:
    text = checks.elsewhere(Job(command="true", queue=asked), got)
    assert bool(text) is said
    assert not said or f"into {got!r}, not into {asked!r}" in text


def test_queues_of_the_fair_scheduler_are_known_by_their_paths() -> None:
    info = yarn.QueueInfoProto(queueName="root")
    child = info.childQueues.add(queueName="root.research")
    unlimited = {"maxResourceMemory": 2**63 - 1, "maxResourceVCore": 0}
    child.childQueues.add(queueName="root.research.speech", **unlimited)
    child.childQueues.add(
        queueName="root.research.vision", maxResourceMemory=2048, maxResourceVCore=4
    )
    found = tuple(cluster_report.queues(info))
    cluster = YarnCluster(
        user="ada",
        largest=CLUSTER.largest,
        nodes=(msgspec.structs.replace(WITH_GPUS, labels=()),),
        queues=found,
        resource_types=(GPU,),
    )
    for name in ("root.research.vision", "research.vision"):
        assert cluster.queue(name) == found[-1]
    assert cluster.queue("vision") is None
    job = expand(Job(command="true", roles={"worker": Role(gpus=1, instances=2, memory="1g")}))
    text = only(checks.problems(job, role_resources(job), cluster, found[-1]))
    assert "the queue 'root.research.vision' may have at most 2 GiB of memory" in text
    one = expand(Job(command="true", roles={"worker": Role(gpus=1, memory="1g")}))
    for queue in found:
        assert checks.problems(one, role_resources(one), cluster, queue) == []


def test_a_queue_of_the_fair_scheduler_has_no_more_than_those_it_is_in() -> None:
    unlimited = {"maxResourceMemory": 2**63 - 1, "maxResourceVCore": 0}
    info = yarn.QueueInfoProto(queueName="root", **unlimited)
    parent = info.childQueues.add(
        queueName="root.research", maxResourceMemory=2048, maxResourceVCore=16
    )
    parent.childQueues.add(queueName="root.research.speech", **unlimited)
    info.childQueues.add(queueName="root.researchers", **unlimited)
    cluster = msgspec.structs.replace(CLUSTER, queues=tuple(cluster_report.queues(info)))

    def refused(queue: str, memory: str) -> list[str]:
        job = expand(Job(command="true", roles={"worker": Role(instances=2, memory=memory)}))
        return checks.problems(job, role_resources(job), cluster, cluster.queue(queue))

    text = only(refused("research.speech", "1g"))
    assert "'root.research.speech' and those it is in may have at most 2 GiB of memory" in text
    assert "at most: roles.worker.instances = 1" in text
    # One that YARN has made meanwhile is in the same.
    made = Queue(name="root.research.ada", shares=cluster.queues[2].shares)
    job = expand(Job(command="true", roles={"worker": Role(instances=2, memory="1g")}))
    assert "2 GiB of memory" in only(checks.problems(job, role_resources(job), cluster, made))
    assert refused("research.speech", "512m") == []
    assert refused("researchers", "1g") == []


def test_the_fair_scheduler_gives_containers_in_steps_of_its_own() -> None:
    def rounded(memory_mb: int, **settings: str) -> int:
        fair = {"yarn.resourcemanager.scheduler.class": "org.apache.fair.FairScheduler"}
        configuration = Configuration({**fair, **settings})
        cluster = YarnCluster(
            user="ada",
            largest=Amount(),
            smallest=cluster_report.smallest(configuration),
            step=cluster_report.step(configuration),
        )
        return cluster.rounded(Amount(memory_mb=memory_mb, cores=1)).memory_mb

    least = "yarn.scheduler.minimum-allocation-mb"
    assert rounded(1100) == 2048
    assert rounded(100, **{least: "64"}) == 1024
    older = {"yarn.scheduler.increment-allocation-mb": "512"}
    assert rounded(1100, **older) == 1536
    assert (
        rounded(1100, **older, **{"yarn.resource-types.memory-mb.increment-allocation": "64"})
        == 1152
    )
    assert rounded(100, **older) == 1024
