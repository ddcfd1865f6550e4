"""``format("tfrecord")`` on Spark 4, classic and Connect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from howdah.spark.tfrecord import register

COLUMNS = [
    "id",
    "if(id % 2 = 0, null, cast(id as float)) f",
    "concat('s', id) s",
    "array(id, -id) al",
    "timestamp '2026-11-21 20:00:00' moment",
    "cast(id % 3 as int) k",
]


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    register(spark)
    return spark


def _sorted(df: Any) -> list[Any]:
    return sorted(df.collect(), key=lambda row: row["id"])


def test_frames_are_written_and_read_by_format(session: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    rows = session.range(0, 500, 1, 2).selectExpr(*COLUMNS)
    for mode in ("append", "overwrite"):
        rows.write.format("tfrecord").mode(mode).option("codec", "deflate").save(path)
    assert len(list((tmp_path / "out").glob("part-*.tfrecord.deflate"))) == 2
    assert (tmp_path / "out" / "_SUCCESS").exists()
    found = session.read.format("tfrecord").load(path)
    assert found.dtypes == [
        ("al", "array<bigint>"), ("f", "float"), ("id", "bigint"), ("k", "bigint"),
        ("moment", "bigint"), ("s", "string"),
    ]  # fmt: skip
    assert found.where("id < 3").count() == 3
    same = session.read.format("tfrecord").schema(rows.schema).load(path)
    assert _sorted(same) == _sorted(rows)
    few = session.read.format("tfrecord").schema("s string, id bigint").load(path)
    assert _sorted(few)[7] == ("s7", 7)
    both = session.read.format("tfrecord").load([path, path])
    assert both.count() == 1000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"recordTpe": "Example"}, "unknown option 'recordtpe' of tfrecord"),
        ({"path": "/nowhere/at/all"}, "there is no /nowhere/at/all"),
    ],
)
def test_a_mistake_is_told_when_the_frame_is_made(
    session: Any, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        session.read.format("tfrecord").options(**options).load()


@pytest.mark.nightly
def test_a_failed_write_by_format_leaves_what_was_there(session: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "out")
    session.range(5).write.format("tfrecord").mode("append").save(path)
    bad = session.range(0, 10, 1, 2).selectExpr("if(id = 9, array(null, id), array(id)) a")
    with pytest.raises(Exception, match="has a null inside an array"):
        bad.write.format("tfrecord").mode("overwrite").save(path)
    assert session.read.format("tfrecord").load(path).count() == 5
    assert not list((tmp_path / "out").glob("_temporary*"))
    with pytest.raises(Exception, match="select its fields as columns"):
        session.range(1).selectExpr("struct(id) a").write.format("tfrecord").mode("append").save(
            path
        )
