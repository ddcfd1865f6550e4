"""Why a job waits is said in words, from what the ResourceManager tells."""

from __future__ import annotations

import pytest

from howdah.backends.yarn import pending_reason
from howdah.backends.yarn.amounts import GPU, Amount
from howdah.backends.yarn.client.cluster import Queue, Share, YarnCluster, YarnNode
from howdah.backends.yarn.pending_reason import Application

MASTER = Amount(memory_mb=512, cores=1)
AM_LIMIT = (
    "[Sat Nov 21 16:00:00 +0000 2026] Application is added to the scheduler and is not yet "
    "activated. Queue's AM resource limit exceeded.  Details : AM Partition = "
    "<DEFAULT_PARTITION>; AM Resource Request = <memory:512, vCores:1>; Queue Resource Limit for "
    "AM = <memory:1024, vCores:1>; User AM Resource Limit of the queue = <memory:1024, vCores:1>; "
    "Queue AM Resource Usage = <memory:1024, vCores:2>; "
)
ACTIVATED = (
    "[Sat Nov 21 16:00:00 +0000 2026] Application is Activated, waiting for resources to be "
    "assigned for AM.  Details : AM Partition = {label} ; Partition Resource = <memory:8192, "
    "vCores:16> ; Queue's Absolute capacity = 50.0 % ; Queue's Absolute used capacity = {used} % ; "
    "Queue's Absolute max capacity = 50.0 % ; "
)
FULL = ACTIVATED.format(label="<DEFAULT_PARTITION>", used="50.0")
FREE = ACTIVATED.format(label="<DEFAULT_PARTITION>", used="10.0")


def accepted(diagnostics: str = "", **fields: object) -> Application:
    values = {"queue": "research", "user": "ada", "master": MASTER, **fields}
    return Application(state="ACCEPTED", diagnostics=diagnostics, **values)  # type: ignore[arg-type]


def node(
    host: str, *, used_mb: int = 0, gpus: int = 0, label: str = "", **fields: object
) -> YarnNode:
    return YarnNode(
        host=host,
        capability=Amount(memory_mb=4096, cores=8, more={GPU: gpus} if gpus else {}),
        used=Amount(memory_mb=used_mb, cores=0, more={GPU: gpus} if gpus else {}),
        labels=(label,) if label else (),
        **fields,  # type: ignore[arg-type]
    )


def cluster(*nodes: YarnNode) -> YarnCluster:
    return YarnCluster(user="ada", largest=Amount(memory_mb=4096, cores=8), nodes=nodes)


def test_too_many_masters_in_the_queue() -> None:
    assert pending_reason.for_master(accepted(AM_LIMIT)) == (
        "the queue 'research' starts no more jobs now: too many masters run in it already "
        "(1 GiB of memory, 2 cores of 1 GiB of memory, 1 core used by masters)"
    )


def test_as_many_masters_as_one_user_may_have() -> None:
    text = AM_LIMIT.replace("Queue's AM", "User's AM")
    assert pending_reason.for_master(accepted(text)).startswith(
        "ada has as many masters in the queue 'research' as one user may"
    )


def test_a_full_queue_with_its_figures_and_who_waits_before() -> None:
    assert pending_reason.for_master(accepted(FULL)) == (
        "the queue 'research' is full: 50.0 % of the cluster used, 50.0 % allowed"
    )
    queue = Queue(
        name="research",
        used=Amount(memory_mb=2048, cores=3),
        shares={"": Share(maximum=Amount(memory_mb=2048, cores=8))},
        pending_applications=3,
    )
    assert pending_reason.for_master(accepted(FULL), queue) == (
        "the queue 'research' is full: 2 GiB of memory of 2 GiB of memory in use; "
        "2 other jobs wait in it"
    )


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (
            " exceeds current queue or its parents maximum resource allowed). Max share of queue: "
            "<memory:2048, vCores:16>",
            "the queue 'root.research' is full: 2 GiB of memory of 2 GiB of memory in use",
        ),
        (
            " exceeds maximum AM resource allowed).",
            "the queue 'root.research' starts no more jobs now: too many masters run in it already",
        ),
        (
            " exceeds the available resources of the node and the request is reserved)",
            "no node has 512 MiB of memory, 1 core free; the nearest, n1:1, has 396 MiB of memory",
        ),
    ],
)
def test_the_fair_schedulers_reasons(why: str, said: str) -> None:
    text = (
        "[Sat Nov 21 16:00:00 +0000 2026] Application is added to the scheduler and is not yet "
        f"activated.  (Resource request: <memory:512, vCores:1>{why}"
    )
    queue = Queue(
        name="root.research",
        used=Amount(memory_mb=2048, cores=3),
        shares={"": Share(maximum=Amount(memory_mb=2048, cores=2**31), partial=True)},
    )
    busy = cluster(node("n1:1", used_mb=3700)) if "of the node" in why else None
    assert pending_reason.for_master(accepted(text), queue, busy) == said
    roomy = Queue(name="root.research")
    begins = text.partition("  (")[0]
    assert pending_reason.for_master(accepted(begins), roomy).startswith(
        "its master waits for 512 MiB of memory"
    )


def test_nodes_that_are_full_or_away() -> None:
    busy = cluster(node("n1:1", used_mb=3700), node("n2:1", used_mb=3900))
    assert pending_reason.for_master(accepted(FREE), cluster=busy) == (
        "no node has 512 MiB of memory, 1 core free; the nearest, n1:1, has 396 MiB of memory"
    )
    away = cluster(node("n1:1", usable=False, state="LOST"))
    assert pending_reason.for_master(accepted(FREE), cluster=away) == (
        "no node takes containers now: n1:1 is lost"
    )
    assert "none has registered" in pending_reason.for_master(accepted(FREE), cluster=cluster())


def test_a_label_without_a_free_node() -> None:
    there = cluster(node("n1:1"), node("n2:1", label="gpu", used_mb=4096))
    text = ACTIVATED.format(label="gpu", used="0.0")
    assert pending_reason.for_master(accepted(text), cluster=there) == (
        "no node labelled 'gpu' has 512 MiB of memory, 1 core free; "
        "the nearest, n2:1, has no memory"
    )


def test_what_only_takes_a_moment() -> None:
    assert "taking the job in" in pending_reason.for_master(Application(state="SUBMITTED"))
    launched = "AM container is launched, waiting for AM container to Register with RM"
    assert pending_reason.for_master(accepted(launched)) == "the master's container starts"
    assert pending_reason.for_master(Application(state="RUNNING")) == ""


def test_what_nobody_has_foreseen_is_passed_on() -> None:
    text = "[Sat Nov 21 16:00:00 +0000 2026] The moon is too low.  Details : it is blue;"
    assert pending_reason.for_master(accepted(text)) == "The moon is too low"
    assert pending_reason.for_master(accepted()).startswith(
        "its master waits for 512 MiB of memory, 1 core in the queue 'research'"
    )


def test_why_containers_do_not_come() -> None:
    each = {"worker": Amount(memory_mb=1024, cores=1), "ps": Amount(memory_mb=1024, cores=1)}
    busy = cluster(node("n1:1", used_mb=3700))
    assert pending_reason.for_containers({"worker": 2, "ps": 1}, each, {}, cluster=busy) == (
        "worker, ps: no node has 1 GiB of memory, 1 core free; "
        "the nearest, n1:1, has 396 MiB of memory"
    )
    assert pending_reason.for_containers({"worker": 0}, each, {}, cluster=busy) == ""
    gpu = {"worker": Amount(memory_mb=64, cores=1, more={GPU: 1})}
    used = cluster(node("n2:1", label="gpu", gpus=2))
    assert pending_reason.for_containers({"worker": 1}, gpu, {"worker": "gpu"}, cluster=used) == (
        "worker: no node labelled 'gpu' has 64 MiB of memory, 1 core, 1 GPU free; "
        "the nearest, n2:1, has no GPU"
    )
    short = Amount(memory_mb=512, cores=4)
    assert pending_reason.for_containers({"worker": 1}, each, {}, headroom=short) == (
        "worker: the queue or the user has no more memory to give: 512 MiB of memory left, "
        "1 GiB of memory needed for one"
    )


def test_containers_that_may_be_on_the_nodes_of_another_role_only() -> None:
    each = {"worker": Amount(memory_mb=2048, cores=1)}
    nodes = cluster(node("a:1", used_mb=3072), node("b:1"))

    def why(*there: str) -> str:
        only_on = {"worker": (("ps",), frozenset(there))}
        return pending_reason.for_containers(
            {"worker": 1}, each, {}, cluster=nodes, only_on=only_on
        )

    assert why() == "worker: it must be on a node of ps, and there is none yet"
    assert why("a") == (
        "worker: it must be on a node of ps, and none of them has 2 GiB of memory, 1 core free; "
        "the nearest, a:1, has 1 GiB of memory"
    )
    assert why("a", "b") == ""
