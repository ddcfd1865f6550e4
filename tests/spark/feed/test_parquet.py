"""Parquet files read by the training processes themselves."""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as arrow
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah.spark import FeedError, ParquetFeed
from howdah.spark.parquet import remainder, share
from tests.cli.howdah import howdah

ROWS = 1000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows numbered from 0: 7 files in two folders by day, row groups of 37 rows."""
    top = tmp_path_factory.mktemp("rows")
    for number, ids in enumerate(np.array_split(np.arange(ROWS), 7)):
        day = top / f"day={number % 2}"
        day.mkdir(exist_ok=True)
        images = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(ids, 4).astype("f4")), 4)
        table = pa.table({"id": ids, "image": images, "name": [f"row {i}" for i in ids]})
        pq.write_table(table, day / f"part-{number}.parquet", row_group_size=37)
    (top / "_SUCCESS").touch()
    return top


def ids(feed: ParquetFeed, size: int = 64) -> list[int]:
    return [int(i) for batch in feed.batches(size) for i in batch["id"]]


def feeds(folder: Path, ranks: int, **options: Any) -> list[ParquetFeed]:
    return [ParquetFeed(str(folder), rank=r, world_size=ranks, **options) for r in range(ranks)]


@pytest.mark.parametrize("shuffle", [None, 7])
def test_ranks_have_equal_shares_and_every_row_once(folder: Path, shuffle: int | None) -> None:
    found = [ids(feed) for feed in feeds(folder, 4, shuffle=shuffle)]
    assert [len(each) for each in found] == [250] * 4
    assert sorted(chain(*found)) == list(range(ROWS))


def test_what_does_not_divide_is_dropped_repeated_or_uneven_as_asked(folder: Path) -> None:
    sizes = {}
    for align in ("drop", "pad", "none"):
        found = [ids(feed) for feed in feeds(folder, 3, align=align)]
        sizes[align] = sorted(len(each) for each in found), len(set(chain(*found)))
    assert sizes == {
        "drop": ([333, 333, 333], 999),
        "pad": ([334, 334, 334], 1000),
        "none": ([333, 333, 334], 1000),
    }


def test_each_epoch_is_shuffled_anew_and_the_same_everywhere(folder: Path) -> None:
    feed = ParquetFeed(str(folder), shuffle=7, epochs=2)
    first, second = ([int(i) for b in epoch.batches(50) for i in b["id"]] for epoch in feed)
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second
    assert ids(ParquetFeed(str(folder), shuffle=7)) == first
    assert ids(ParquetFeed(str(folder), shuffle=8)) != first


def test_batches_are_arrays_of_the_columns_asked_for(folder: Path) -> None:
    feed = ParquetFeed(str(folder), columns=["id", "image", "day"], rank=1, world_size=2)
    assert feed.num_rows == 500 and feed.steps(200) == 3 and feed.steps(200, drop_last=True) == 2
    batches = list(feed.batches(200, shapes={"image": (2, 2)}))
    assert [len(batch["id"]) for batch in batches] == [200, 200, 100]
    assert set(batches[0]) == {"id", "image", "day"}
    assert batches[0]["image"].shape == (200, 2, 2)
    assert (batches[0]["image"][:, 1, 1] == batches[0]["id"]).all()
    # The folder's name is a column.
    assert {int(day) for batch in batches for day in batch["day"]} <= {0, 1}
    assert [len(b["id"]) for b in ParquetFeed(str(folder)).batches(300, drop_last=True)] == [
        300
    ] * 3


def test_a_file_a_pattern_a_list_and_a_dataset_are_sources(folder: Path) -> None:
    one = str(folder / "day=0" / "part-0.parquet")
    assert ids(ParquetFeed(one)) == list(range(143))
    assert sorted(ids(ParquetFeed(f"{folder}/day=*/part-[0-6].parquet"))) == list(range(ROWS))
    assert ParquetFeed([one, f"file://{folder}/day=1/part-1.parquet"]).num_rows == 286
    assert ParquetFeed(arrow.dataset(str(folder), partitioning="hive")).num_rows == ROWS


def test_folders_of_a_column_that_begins_with_an_underscore_are_read(tmp_path: Path) -> None:
    for day in ("_day=1", "_day=2"):
        (tmp_path / day).mkdir()
        pq.write_table(pa.table({"id": [int(day[-1])]}), tmp_path / day / "part-0.parquet")
    [batch] = ParquetFeed(str(tmp_path)).batches(8)
    assert (batch["id"] == batch["_day"]).all() and list(batch["id"]) == [1, 2]


def test_files_of_several_file_systems_are_read_together(tmp_path: Path) -> None:
    import fsspec

    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "here.parquet")
    with fsspec.open("memory://far/there.parquet", "wb") as file:
        pq.write_table(pa.table({"id": [3, 4]}), file)
    assert ids(ParquetFeed([str(tmp_path), "memory://far"])) == [1, 2, 3, 4]


@pytest.mark.parametrize("then", [1, 2, 3, 5])
def test_another_number_of_ranks_goes_on_where_four_were(folder: Path, then: int) -> None:
    four = feeds(folder, 4, shuffle=3, epochs=2)
    seen: list[int] = []
    for feed in four:
        batches = feed.batches(30)
        seen += [int(i) for _ in range(5) for i in next(batches)["id"]]
    positions = {feed.position_bytes() for feed in four}
    assert len(positions) == 1, "every rank has the same one"
    again = feeds(folder, then, shuffle=3, epochs=2)
    for feed in again:
        feed.restore(*positions)
        epoch = next(iter(feed))
        assert epoch.number == 0
        seen += [int(i) for batch in epoch.batches(30) for i in batch["id"]]
        assert len(ids(feed)) == ROWS // then, "and the second epoch as ever"
    counts = Counter(seen)
    assert max(counts.values()) == 1
    assert len(counts) > ROWS - then


def test_leaving_a_loop_goes_on_with_the_next_row_and_prefetched_batches_do_not_count(
    folder: Path,
) -> None:
    expected = ids(ParquetFeed(str(folder)))
    feed = ParquetFeed(str(folder))
    for _ in zip(range(3), feed.batches(100)):
        pass
    assert int(next(feed.batches(100))["id"][0]) == expected[300]
    trained = ParquetFeed(str(folder))
    trained.restore(feed.position(batches=2))
    assert int(next(trained.batches(100))["id"][0]) == expected[200]
    with pytest.raises(FeedError, match="5000 batches ago"):
        feed.position(batches=5000)


def test_a_position_of_other_files_or_another_order_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    position = ParquetFeed(str(folder), shuffle=1).position_bytes()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "x.parquet")
    with pytest.raises(FeedError, match="other files"):
        ParquetFeed(str(tmp_path), shuffle=1).restore(position)
    with pytest.raises(FeedError, match="shuffle=1, which is 2 now"):
        ParquetFeed(str(folder), shuffle=2).restore(position)
    with pytest.raises(FeedError, match="no position"):
        ParquetFeed(str(folder)).restore(b"\x00")


def test_what_cannot_be_read_is_said(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FeedError, match="no Parquet file at"):
        ParquetFeed(str(tmp_path))
    (tmp_path / "x.parquet").write_text("no such thing")
    with pytest.raises(FeedError, match="cannot be read"):
        ParquetFeed(str(tmp_path))
    with pytest.raises(FeedError, match=r"no column 'labels', only id, image, name, day"):
        ParquetFeed(str(folder), columns=["labels"])
    with pytest.raises(ValueError, match="no rank 2 of 2"):
        ParquetFeed(str(folder), rank=2, world_size=2)
    with pytest.raises(ValueError, match="drop, pad, none"):
        ParquetFeed(str(folder), align="trim")
    with pytest.raises(FeedError, match="cannot be read"):
        ParquetFeed(str(tmp_path / "nothing.parquet"))


def test_torch_takes_it(folder: Path) -> None:
    import torch

    feed = ParquetFeed(str(folder), epochs=2)
    loader = feed.torch_loader(100, columns="image", label="id")
    for _ in range(2):
        batches = list(loader)
        assert len(batches) == len(loader) == 10
        assert isinstance(batches[0][0], torch.Tensor)
        assert torch.equal(batches[3][0][:, 0].long(), batches[3][1])
    assert list(loader) == [], "two epochs were asked for"
    restored = ParquetFeed(str(folder), epochs=2)
    restored.restore(feed_after(folder, 3))
    loader = restored.torch_loader(300, columns="id", drop_last=True)
    with pytest.raises(TypeError, match="not certain"):
        len(loader)
    assert len(list(loader)) == 2
    assert len(list(islice(loader, len(loader)))) == 3
    assert list(loader) == []


@pytest.mark.nightly
def test_keras_takes_it(folder: Path) -> None:
    import tensorflow as tf

    data = ParquetFeed(str(folder), epochs=None).tf_dataset(100, columns="image", label="id")
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(loss="mse")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Your input ran out of data")
        history = model.fit(data, epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2


def feed_after(folder: Path, batches: int) -> bytes:
    feed = ParquetFeed(str(folder), epochs=2)
    for _ in zip(range(batches), feed.batches(100)):
        pass
    return feed.position_bytes()


PROGRAM = """
import json, sys
from howdah import task
from howdah.spark.parquet import ParquetFeed

feed = ParquetFeed(sys.argv[1], shuffle=5)
print(json.dumps([int(i) for batch in feed.batches(64) for i in batch["id"]]), flush=True)
"""


def test_tasks_of_a_job_share_the_files(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    run = howdah(
        "run", "--role", "worker=2", "--set", f"environment.python={sys.executable}", "--",
        "python", "program.py", str(folder), cwd=tmp_path,
    )  # fmt: skip
    lists = [json.loads(line[line.index("[") :]) for line in run.out if "[" in line]
    found = [each for each in lists if isinstance(each, list) and len(each) == ROWS // 2]
    assert len(found) == 2, run.text
    assert sorted(chain(*found)) == list(range(ROWS))


# -- who has which rows ----------------------------------------------------------------------------


@st.composite
def _sizes(draw: st.DrawFn) -> Any:
    total = draw(st.integers(1, 60))
    align = draw(st.sampled_from(["drop", "pad", "none"]))
    sizes = draw(st.lists(st.tuples(st.integers(1, 7), st.integers(0, 12)), max_size=5))
    return total, align, sizes


@given(_sizes())
def test_every_row_has_one_owner_however_often_the_ranks_change(drawn: Any) -> None:
    total, align, sizes = drawn
    left = [(0, total)]
    seen: Counter[int] = Counter()

    def take(left: list[Any], rank: int, ranks: int, count: int | None) -> list[int]:
        owned = [row for a, b in share(left, rank, ranks, align) for row in range(a, b)]
        return owned if count is None else owned[:count]

    for ranks, count in sizes:
        for rank in range(ranks):
            seen.update(take(left, rank, ranks, count))
        left = remainder(left, ranks, count, align)
    ranks = 3
    last = [take(left, rank, ranks, None) for rank in range(ranks)]
    for rows in last:
        seen.update(rows)
    if align != "none":
        assert len({len(rows) for rows in last}) == 1
    if align == "pad":
        assert set(seen) == set(range(total))
    else:
        assert max(seen.values(), default=1) == 1
        assert len(seen) > total - ranks
