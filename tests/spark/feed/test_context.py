"""What a training function is given, and how it finds the controller."""

from __future__ import annotations

import os
import pickle
import shutil
import threading
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from howdah.spark.context import Context, absolute_path
from howdah.spark.errors import FeedError
from howdah.spark.feed.messages import Broken, Returned
from howdah.spark.feed.trainer import connect, run
from tests.spark.feed.rig import JOB, Rig


@pytest.mark.parametrize(
    ("default", "path", "expected"),
    [
        ("hdfs://nn:8020", "hdfs://other/x", "hdfs://other/x"),
        ("hdfs://nn:8020", "s3a://bucket/x", "s3a://bucket/x"),
        ("hdfs://nn:8020", "file:///x", "file:///x"),
        ("hdfs://nn:8020", "/x", "hdfs://nn:8020/x"),
        ("hdfs://nn:8020/", "x/y", "hdfs://nn:8020/user/ada/x/y"),
        ("viewfs://site", "x", "viewfs://site/user/ada/x"),
        ("file:///", "/x", "file:///x"),
        ("file://", "x", "file:///executor/x"),
        ("s3a://bucket", "x", "s3a://bucket/x"),
    ],
)
def test_paths_belong_to_the_clusters_file_system(default: str, path: str, expected: str) -> None:
    assert absolute_path(path, default, "ada", "/executor") == expected


@pytest.fixture
def task_env(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    wiring = {
        "job_id": JOB,
        "host": "127.0.0.1",
        "port": rig.controller.port,
        "workers": 3,
        "new": 1,
    }
    (tmp_path / "wiring.json").write_bytes(msgspec.json.encode(wiring))
    given = {
        "HOWDAH_JOB_ID": JOB,
        "HOWDAH_ROLE": "worker",
        "HOWDAH_INDEX": "1",
        "HOWDAH_RANK": "2",
        "HOWDAH_WORLD_SIZE": "3",
        "HOWDAH_GENERATION": "4",
        "HOWDAH_CLUSTER": '{"chief": ["a:1"], "worker": ["b:1", "c:1"]}',
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return {
        "HOWDAH_SPARK_WIRING": str(tmp_path / "wiring.json"),
        "HOWDAH_SPARK_SECRETS": str(rig.secrets),
        "HOWDAH_SPARK_FOLDER": str(tmp_path),
    }


def test_the_function_is_told_who_it_is_and_its_end_is_told(
    rig: Rig, task_env: dict[str, str]
) -> None:
    def train(args: Any, ctx: Context) -> tuple[Any, ...]:
        feed = ctx.feed("train")
        assert ctx.feed("train") is feed
        batch = next(feed.batches(2))
        return args, ctx.role, ctx.index, ctx.rank, ctx.generation, ctx.num_workers, batch["y"][1]

    place_of = rig.endpoint

    def feed() -> None:
        endpoint = place_of(2)
        assert (endpoint.role, endpoint.index, endpoint.generation) == ("worker", 1, 4)
        rig.open(align="none")
        rig.feeder(2).send([pa.record_batch({"y": [5, 6]})], pa.schema({"y": pa.int64()})).hear()

    thread = threading.Thread(target=feed)
    thread.start()
    value = pickle.loads(pickle.dumps(run(train, {"lr": 1}, task_env)))
    assert value == ({"lr": 1}, "worker", 1, 2, 4, 3, 6)
    thread.join()
    rig.controller.wait(Returned)


@pytest.mark.parametrize("code", [0, None, 3])
def test_exits_by_number_are_returns_or_failures(
    rig: Rig, task_env: dict[str, str], code: int | None
) -> None:
    def train(args: Any, ctx: Context) -> None:
        raise SystemExit(code)

    with pytest.raises(SystemExit):
        run(train, None, task_env)
    rig.controller.wait(Broken if code else Returned)


def test_without_wiring_there_is_a_context_and_no_feed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def train(args: Any, ctx: Context) -> str:
        assert ctx.num_workers == 1 and ctx.is_chief
        ctx.report(step=1, loss=0.5)
        assert not ctx.checkpoint_requested()
        with pytest.raises(FeedError, match='mode="feed"'):
            ctx.feed()
        return ctx.absolute_path("data")

    assert pickle.loads(pickle.dumps(run(train, None, {}))) == f"file://{tmp_path}/data"


def test_a_folder_that_leaves_the_checkpoints_meanwhile_is_no_trouble(
    rig: Rig, task_env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unfinished = tmp_path / "checkpoints/tmp-1"
    unfinished.mkdir(parents=True)
    monkeypatch.setenv("HOWDAH_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    scandir = os.scandir

    def listed(folder: Any) -> Any:
        if str(folder) == str(unfinished):
            shutil.rmtree(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", listed)
    run(lambda args, ctx: ctx.rank, None, task_env)
    assert not unfinished.exists()
    rig.controller.wait(Returned)


def test_wiring_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(FeedError, match="nowhere.json"):
        connect({"HOWDAH_SPARK_WIRING": str(tmp_path / "nowhere.json")})


def test_a_value_that_cannot_be_pickled_is_the_functions_own_error(
    rig: Rig, task_env: dict[str, str]
) -> None:
    with pytest.raises(
        pickle.PicklingError, match=r"returned a lock in rank 2, .* Return what can"
    ):
        run(lambda args, ctx: threading.Lock(), None, task_env)
    assert "returned a lock" in rig.controller.wait(Broken).error
