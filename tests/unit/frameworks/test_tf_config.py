"""Who is in whose TF_CONFIG."""

from __future__ import annotations

import json
from typing import Any

from howdah.core.messages import Topology
from howdah.spec.model import Job, TensorBoard
from tests.unit.frameworks.gangs import environment, job, topology

FULL = topology(
    ("chief:0", 0), ("worker:0", 1), ("worker:1", 2), ("ps:0", None), ("evaluator:0", None)
)
TRAINING = {"chief": ["h0:20000"], "worker": ["h1:20010", "h2:20020"], "ps": ["h3:20030"]}


def tf_config(made: Job, place: Topology, task: str) -> Any:
    env = environment(made, place, task)
    assert set(env) == {"TF_CONFIG", "TF_GRPC_REUSE_PORT"}
    return json.loads(env["TF_CONFIG"])


def full() -> Job:
    return job("tensorflow", {"chief": 1, "worker": 2, "ps": 1, "evaluator": 1})


def test_every_training_role_sees_chief_workers_and_ps_but_no_evaluator():
    for task, kind, index in (
        ("chief:0", "chief", 0), ("worker:1", "worker", 1), ("ps:0", "ps", 0)
    ):  # fmt: skip
        assert tf_config(full(), FULL, task) == {
            "cluster": TRAINING,
            "task": {"type": kind, "index": index},
        }


def test_the_evaluator_is_in_its_own_cluster_only():
    assert tf_config(full(), FULL, "evaluator:0") == {
        "cluster": {**TRAINING, "evaluator": ["h4:20040"]},
        "task": {"type": "evaluator", "index": 0},
    }


def test_workers_alone_have_no_chief_in_the_cluster():
    made = job("tensorflow", {"worker": 2})
    place = topology(("worker:0", 0), ("worker:1", 1))
    assert tf_config(made, place, "worker:0") == {
        "cluster": {"worker": ["h0:20000", "h1:20010"]},
        "task": {"type": "worker", "index": 0},
    }


def test_a_master_is_written_chief_since_tensorflow_2_refuses_the_old_name():
    made = job("tensorflow", {"master": 1, "worker": 1})
    place = topology(("master:0", 0), ("worker:0", 1))
    cluster = {"chief": ["h0:20000"], "worker": ["h1:20010"]}
    chief = {"cluster": cluster, "task": {"type": "chief", "index": 0}}
    assert tf_config(made, place, "master:0") == chief


def test_sidecars_and_unknown_roles_are_in_nobodys_cluster():
    made = job("tensorflow", {"worker": 2, "loader": 1}, tensorboard=TensorBoard())
    place = topology(("worker:0", 0), ("worker:1", 1), ("loader:0", None), ("tensorboard:0", None))
    assert tf_config(made, place, "worker:1")["cluster"] == {"worker": ["h0:20000", "h1:20010"]}
    assert environment(made, place, "tensorboard:0") == {}


def test_in_an_elastic_gang_the_index_is_the_place_in_the_list():
    made = job("tensorflow", {"worker": "1..4"})
    place = topology(("worker:0", 0), ("worker:3", 1))
    assert tf_config(made, place, "worker:3")["task"] == {"type": "worker", "index": 1}
