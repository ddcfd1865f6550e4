"""The job of a cluster: what its arguments become, without any Spark."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from howdah.client.submission.functions import FunctionJob
from howdah.client.submission.loading import load_object
from howdah.spark.job import ClusterJob


def job_of(train: Callable[..., Any], **options: Any) -> ClusterJob:
    """The job of ``Cluster.start(spark, train, …)`` with its usual arguments."""
    usual: dict[str, Any] = {
        "workers": 2,
        "ps": 0,
        "chief": 0,
        "evaluator": False,
        "roles": None,
        "framework": "command",
        "tensorboard": False,
        "checkpoint": None,
        "env": None,
        "restarts": 2,
        "name": None,
        "gpus": 0,
        "resume": None,
        "fields": {},
    }
    return ClusterJob(train, None, **{**usual, **options})


def called(name: str) -> Callable[..., Any]:
    def train(args: Any, ctx: Any) -> None: ...

    train.__name__ = name
    return train


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train", "train"),
        ("_train", "train"),
        ("train_", "train"),
        ("größe", "gr-e"),
        ("<lambda>", "lambda"),
        ("t" * 200, "t" * 100),
        ("___", "function"),
        ("量", "function"),
    ],
)
def test_a_function_gives_its_job_a_name_that_is_one(name: str, expected: str) -> None:
    for job in (FunctionJob(called(name)).job, job_of(called(name)).job):
        assert job.name == expected
        load_object(job)


def test_what_has_no_name_is_called_by_its_type() -> None:
    job = job_of(functools.partial(called("train"), 1)).job
    assert load_object(job).job.name == "partial"
