"""Iceberg tables read by the training processes themselves, by pyiceberg and a catalog in SQLite."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from howdah.spark import FeedError, ParquetFeed

pytest.importorskip("pyiceberg")
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

pytestmark = pytest.mark.nightly

FILES, ROWS = 4, 50
"""Data files, and rows of each."""


def load(folder: Path) -> Any:
    """The table as a process opens it."""
    catalog = SqlCatalog("t", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    return catalog.load_table("vision.digits")


def rows(start: int, count: int) -> pa.Table:
    ids = np.arange(start, start + count)
    images = [[float(number)] * 4 for number in ids]
    return pa.table({"id": ids, "image": images, "name": [f"n{number}" for number in ids]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    catalog = SqlCatalog(
        "t", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}"
    )
    catalog.create_namespace("vision")
    table = catalog.create_table("vision.digits", schema=rows(0, 1).schema)
    for number in range(FILES):
        table.append(rows(ROWS * number, ROWS))
    return tmp_path


def ids(feed: ParquetFeed, size: int = 16) -> list[int]:
    return [int(value) for batch in feed.batches(size) for value in batch["id"]]


@pytest.mark.parametrize("shuffle", [None, 7])
def test_ranks_share_the_rows_of_a_table(folder: Path, shuffle: int | None) -> None:
    found = [
        ids(ParquetFeed(load(folder), rank=rank, world_size=3, shuffle=shuffle, align="none"))
        for rank in range(3)
    ]
    assert sorted(len(each) for each in found) == [66, 67, 67]
    assert sorted(chain(*found)) == list(range(FILES * ROWS))


def test_columns_are_arrays_also_after_one_was_renamed_and_rows_were_deleted(folder: Path) -> None:
    table = load(folder)
    first = table.current_snapshot().snapshot_id
    table.delete("id < 10")
    with table.update_schema() as update:
        update.rename_column("name", "label")
    table.append(rows(200, 1).rename_columns(["id", "image", "label"]))
    feed = ParquetFeed(load(folder), columns=["image", "label"])
    assert feed.schema.names == ["image", "label"]
    [batch] = feed.batches(1000)
    assert batch["image"].shape == (191, 4)
    assert sorted(batch["label"]) == sorted(f"n{number}" for number in range(10, 201))
    before = ParquetFeed(load(folder).scan(snapshot_id=first))
    assert sorted(ids(before)) == list(range(200))
    filtered = ParquetFeed(load(folder).scan(row_filter="id >= 75 and id < 120"), world_size=1)
    assert filtered.num_rows == 45 and sorted(ids(filtered)) == list(range(75, 120))
    with pytest.raises(FeedError, match="no column 'name', only id, image, label"):
        ParquetFeed(load(folder), columns=["name"])
    with pytest.raises(FeedError, match="limit=5"):
        ParquetFeed(load(folder).scan(limit=5))


def test_a_scan_of_fields_of_structs_and_of_names_in_another_case_gives_all_that_it_selects(
    tmp_path: Path,
) -> None:
    catalog = SqlCatalog(
        "t", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}"
    )
    catalog.create_namespace("vision")
    places = pa.table({"id": [1, 2], "place": [{"x": 3, "y": 5}, {"x": 4, "y": 6}]})
    table = catalog.create_table("vision.places", schema=places.schema)
    table.append(places)
    [batch] = ParquetFeed(table.scan(selected_fields=("id", "place.x"))).batches(8)
    assert batch["id"].tolist() == [1, 2] and list(batch["place"]) == ["x"]
    assert batch["place"]["x"].tolist() == [3, 4]
    [batch] = ParquetFeed(table.scan(selected_fields=("ID",), case_sensitive=False)).batches(8)
    assert batch["id"].tolist() == [1, 2]


def test_rows_of_a_positional_delete_file_are_left_out_and_not_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = load(folder).scan()
    tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
    data = tasks[0]
    start = int(parquet.read_table(data.file.file_path, columns=["id"])["id"][0].as_py())
    deleted = folder / "deleted.parquet"
    gone = {"file_path": [data.file.file_path] * 3, "pos": [0, 7, 49]}
    parquet.write_table(pa.table(gone), deleted)
    data.delete_files = {
        DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=f"file://{deleted}",
            file_format=FileFormat.PARQUET,
        )
    }
    # pyiceberg reads such files, and writes none.
    monkeypatch.setattr(scan, "plan_files", lambda: tasks)
    feed = ParquetFeed(scan)
    assert feed.num_rows == FILES * ROWS - 3
    assert sorted(ids(feed)) == sorted({*range(FILES * ROWS)} - {start, start + 7, start + 49})


def test_a_data_file_that_cannot_be_read_is_named(folder: Path) -> None:
    feed = ParquetFeed(load(folder))
    [lost, *_] = sorted(folder.rglob("data/*.parquet"))
    lost.unlink()
    with pytest.raises(FeedError, match=f"The data file .*{lost.name} cannot be read"):
        ids(feed)


def test_reading_goes_on_from_a_position_with_other_ranks_and_not_in_another_snapshot(
    folder: Path,
) -> None:
    seen: list[int] = []
    for rank in range(2):
        feed = ParquetFeed(load(folder), rank=rank, world_size=2, shuffle=3)
        for _, batch in zip(range(3), feed.batches(8)):
            seen += batch["id"].tolist()
    position = feed.position_bytes()
    for rank in range(4):
        again = ParquetFeed(load(folder), rank=rank, world_size=4, shuffle=3)
        again.restore(position)
        seen += ids(again)
    assert sorted(seen) == list(range(FILES * ROWS))
    load(folder).append(rows(200, 1))
    with pytest.raises(FeedError, match="other files"):
        ParquetFeed(load(folder), shuffle=3).restore(position)
