"""TFRecord files through Spark Connect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from howdah.spark.tfrecord import read_tfrecords, register, write_tfrecords


def test_functions_and_format_work_on_connect(connect_spark: Any, tmp_path: Path) -> None:
    spark, path = connect_spark, str(tmp_path / "out")
    rows = spark.range(0, 100, 1, 2).selectExpr("id", "array(id) a", "concat('s', id) s")
    assert write_tfrecords(rows, path) == 100
    wanted = [row.asDict() for row in rows.collect()]
    found = read_tfrecords(spark, path, rows.schema).collect()
    assert sorted((row.asDict() for row in found), key=lambda row: row["id"]) == wanted
    register(spark)
    rows.write.format("tfrecord").mode("append").save(path)
    assert spark.read.format("tfrecord").load(path).count() == 200
