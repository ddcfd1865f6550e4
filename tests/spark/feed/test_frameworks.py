"""Feeds as TensorFlow and PyTorch take them."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from howdah.spark.errors import FeedError
from howdah.spark.feed.adapters.batching import Batch, Batching, PassSource
from howdah.spark.feed.arrow.columns import Shapes
from howdah.spark.feed.messages import Close, Counted, Position
from tests.spark.feed.rig import Rig


def table(start: int, rows: int) -> pa.RecordBatch:
    numbers = np.arange(start, start + rows)
    images = np.repeat(numbers, 4).astype(np.float32)
    offsets = np.arange(rows + 1, dtype=np.int32) * 4
    return pa.record_batch(
        {
            "image": pa.ListArray.from_arrays(pa.array(offsets), pa.array(images)),
            "label": pa.array(numbers),
            "name": pa.array([f"n{number}" for number in numbers]),
            "words": pa.array([[1] * (number % 3) for number in numbers], pa.list_(pa.int64())),
        }
    )


class _Given(PassSource):
    """A feed that gives these batches in each pass."""

    def __init__(self, batches: list[Batch]) -> None:
        self._batches = batches

    @property
    def name(self) -> str:
        return "train"

    def sample(self, columns: Sequence[str] | None = None, shapes: Shapes | None = None) -> Batch:
        return self._batches[0]

    def passes(self, asked: Batching, per_epoch: bool) -> Iterator[Batch]:
        return iter(self._batches)

    def length(self, size: int, drop_last: bool) -> None:
        return None


@pytest.fixture
def fed(rig: Rig) -> Rig:
    rig.trainer()
    rig.open(align="none", epochs=2)
    for epoch in range(2):
        feeder = rig.feeder(epoch=epoch)
        feeder.send(
            [table(100 * epoch, 3), table(100 * epoch + 3, 1), table(100 * epoch + 4, 1)],
            table(0, 1).schema,
        ).hear()
        rig.fed(epoch=epoch)
    return rig


def test_a_torch_loader_gives_an_epoch_a_pass(fed: Rig) -> None:
    import torch

    feed = fed.trainers[0].feed("train")
    loader = feed.torch_loader(4, "image", "label", shapes={"image": (2, 2)})
    first = list(loader)
    assert [image.shape for image, _ in first] == [(4, 2, 2), (1, 2, 2)]
    assert [label.tolist() for _, label in first] == [[0, 1, 2, 3], [4]]
    assert first[0][0].dtype == torch.float32
    first[0][0].add_(1)  # its own memory
    assert [label.tolist() for _, label in loader] == [[100, 101, 102, 103], [104]]
    fed.end()
    assert list(loader) == []


def test_a_torch_loader_shuffles_collates_and_draws_ahead(fed: Rig) -> None:
    feed = fed.trainers[0].feed("train")
    loader = feed.torch_loader(
        2, "label", shuffle_buffer=3, seed=2, prefetch=1, device="cpu", collate=lambda x: {"y": [x]}
    )
    first = iter(loader)
    batches = [next(first)["y"][0]]
    # Four rows are mixed, and the second batch of them is made.
    assert feed.position(batches=3).rows == {}
    assert feed.position().rows == {0: [(0, 4)]}
    batches += [batch["y"][0] for batch in first]
    assert [len(batch) for batch in batches] == [2, 2, 1]
    rows = [batch.tolist() for batch in batches]
    assert sorted(rows[0] + rows[1]) == [0, 1, 2, 3] and rows[0] + rows[1] != [0, 1, 2, 3]
    assert rows[2] == [4]
    for wrong in ({"shuffle_buffer": -1}, {"prefetch": -1}, {"pin": True, "device": "cpu"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            feed.torch_loader(2, **wrong)


@pytest.mark.nightly
def test_batches_are_jax_arrays_laid_out_as_asked(fed: Rig) -> None:
    import jax

    feed = fed.trainers[0].feed("train")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",))
    by_row = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))
    batches = feed.jax_batches(
        4, ["image", "name"], "label", {"image": (2, 2)}, sharding=by_row, prefetch=2
    )
    first = list(batches)
    assert [label.tolist() for _, label in first] == [[0, 1, 2, 3], [4]]
    features, label = first[0]
    assert isinstance(label, jax.Array) and label.sharding == by_row
    assert features["image"].shape == (4, 2, 2) and features["image"].dtype == np.float32
    assert features["name"].tolist() == ["n0", "n1", "n2", "n3"]
    mixed = list(feed.jax_batches(3, "label", shuffle_buffer=5))
    assert [len(batch) for batch in mixed] == [3, 2]
    assert sorted(np.concatenate(mixed).tolist()) == [100, 101, 102, 103, 104]


def test_the_length_of_loaders_is_known_where_one_rank_reads_rows_that_spark_has_counted(
    rig: Rig,
) -> None:
    feed = rig.trainer().feed("train")
    rig.open(epochs=2, readers=1, rows=5)
    loader = feed.torch_loader(2, "label", shuffle_buffer=3)
    assert len(loader) == 3
    assert len(feed.torch_loader(2, "label", drop_last=True)) == 2
    give(rig, epochs=2)
    with pytest.raises(TypeError, match="not certain how many"):
        len(feed.torch_loader(2, "label", per_epoch=False))
    # Who takes as many as that and never looks for an end has an epoch a pass as well.
    first = list(itertools.islice(loader, len(loader)))
    assert sorted(value for batch in first for value in batch.tolist()) == [0, 1, 2, 3, 4]
    with warnings.catch_warnings(action="error"):
        assert sum(len(batch) for batch in loader) == 5
    rig.end()
    assert len(loader) == 3, "as that of the last epoch, for those who divide by it then"


@pytest.mark.nightly
def test_the_length_of_other_loaders_is_known_as_that_of_torchs(rig: Rig) -> None:
    import jax
    import tensorflow as tf

    feed = rig.trainer().feed("train")
    rig.open(epochs=2, readers=1, rows=5)
    assert len(feed.jax_batches(2, "label", prefetch=2)) == 3
    give(rig, epochs=2)
    assert feed.tf_dataset(2, "label").cardinality().numpy() == 3
    assert feed.tf_dataset(2, "label", per_epoch=False).cardinality() == tf.data.UNKNOWN_CARDINALITY
    first = list(itertools.islice(feed.jax_batches(2, "label"), 3))
    second = list(feed.tf_dataset(2, "label").take(3))
    assert [batch.tolist() for batch in first] == [[0, 1], [2, 3], [4]]
    assert isinstance(first[0], jax.Array)
    assert [batch.numpy().tolist() for batch in second] == [[100, 101], [102, 103], [104]]


def test_the_length_of_one_run_is_not_taken_for_that_of_the_next(rig: Rig) -> None:
    feed = rig.trainer().feed("train")
    loader = feed.torch_loader(2, "label")
    rig.open(epochs=1, readers=1, rows=5)
    give(rig, epochs=1)
    for index, _ in enumerate(itertools.islice(loader, len(loader))):
        if index == 2:
            rig.controller.say(Close(feed="train", run=1))
            rig.controller.wait(Counted)
            assert index == len(loader) - 1, "the loop is still in that epoch"
    with pytest.raises(TypeError):
        len(loader)
    rig.open(run=2, epochs=1, readers=1, rows=9)
    rig.feeder(run=2).send([table(0, 9)], table(0, 1).schema).hear()
    rig.credit(5, run=2, final=True)
    rig.fed(run=2)
    assert sum(1 for _ in feed.torch_loader(2, "label")) == 5
    rig.controller.say(Close(feed="train", run=2))
    rig.controller.wait(Counted, lambda message: message.run == 2)
    assert len(loader) == 5, "for those who divide by it after a loop"


@pytest.mark.parametrize(("rows", "length"), [(5, 3), (None, None)])
def test_the_number_of_steps_that_the_driver_program_says_is_no_length(
    rig: Rig, rows: int | None, length: int | None
) -> None:
    feed = rig.trainer().feed("train")
    rig.open(readers=1, rows=rows, steps=1000)
    assert feed.steps(2) == 1000
    assert feed.length(2, False) == length


def give(rig: Rig, epochs: int) -> None:
    """Five rows an epoch, and as many batches of two as there are."""
    for epoch in range(epochs):
        rig.feeder(epoch=epoch).send([table(100 * epoch, 5)], table(0, 1).schema).hear()
        rig.credit(3, epoch=epoch)
        rig.fed(epoch=epoch)
        rig.credit(3, epoch=epoch, final=True)


def test_ranks_that_share_an_epoch_know_its_length_once_it_is_cached(rig: Rig) -> None:
    feed = rig.trainer().feed("train")
    rig.open(epochs=3, cache=True, readers=2, rows=11)
    give(rig, epochs=1)
    loader = feed.torch_loader(2, "label")
    assert feed.steps(2) == 3
    with pytest.raises(TypeError, match=r"ranks' shares.*feed\.steps"):
        len(loader)
    assert len(list(loader)) == 3
    rig.credit(2, epoch=1, final=True)  # another rank has no more
    assert len(loader) == 2
    with pytest.raises(TypeError):
        len(feed.torch_loader(4, "label"))
    assert len(list(itertools.islice(loader, 2))) == 2
    rig.credit(2, epoch=2, final=True)
    assert len(list(loader)) == len(loader) == 2
    rig.end()
    assert list(loader) == []


def test_an_epoch_in_whose_midst_a_position_was_restored_has_no_known_length(rig: Rig) -> None:
    feed = rig.trainer().feed("train")
    feed.restore(Position(run=1, epoch=0, rows={0: [(0, 2)]}, batches=1))
    rig.open(align="none", epochs=2, readers=1, rows=5)
    loader = feed.torch_loader(2, "label")
    with pytest.raises(TypeError):
        len(loader)
    for epoch in range(2):
        rig.feeder(epoch=epoch, skip=[(0, 2)] if epoch == 0 else []).send(
            [table(0, 5).slice(2 - 2 * epoch)], table(0, 1).schema
        ).hear()
        rig.fed(epoch=epoch)
    assert len(list(loader)) == 2
    assert len(loader) == 3


@pytest.mark.nightly
def test_keras_trains_what_is_left_of_an_epoch_and_then_whole_ones(rig: Rig) -> None:
    import keras

    feed = rig.trainer().feed("train")
    feed.restore(Position(run=1, epoch=0, rows={0: [(0, 8)]}, batches=4))
    rig.open(align="none", epochs=3, readers=1, rows=10)
    for epoch in range(3):
        left = 8 if epoch == 0 else 0
        rig.feeder(epoch=epoch, skip=[(0, left)] if left else []).send(
            [table(100 * epoch, 10).slice(left)], table(0, 1).schema
        ).hear()
        rig.fed(epoch=epoch)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    seen: list[int] = []
    counting = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: seen.append(step)
    )
    dataset = feed.tf_dataset(2, "image", "label")
    model.fit(dataset, epochs=1, verbose=0, callbacks=[counting])
    model.fit(dataset, initial_epoch=1, epochs=3, verbose=0, callbacks=[counting])
    assert seen == [0, *range(5), *range(5)]


@pytest.mark.nightly
def test_integers_that_jax_would_cut_off_are_refused() -> None:
    from howdah.spark.feed.adapters.jax_feeds import JaxBatches

    feed = _Given([{"id": np.array([2**31])}])
    batches = JaxBatches(feed, 1, None, None, None, False, True, sharding=None)
    with pytest.raises(FeedError, match="column 'id' has numbers beyond 32 bits"):
        list(batches)


def test_nulls_no_tensor_holds_are_named() -> None:
    from howdah.spark.feed.adapters.torch_feeds import FeedDataset

    feed = _Given([{"age": np.ma.MaskedArray([1, 2], [True, False])}])
    batches = FeedDataset(feed, 2, None, None, None, False, True)
    with pytest.raises(FeedError, match=r"column 'age' has nulls.*fillna"):
        list(batches)


@pytest.mark.nightly
def test_a_tf_dataset_gives_an_epoch_a_pass(fed: Rig) -> None:
    import tensorflow as tf

    feed = fed.trainers[0].feed("train")
    dataset = feed.tf_dataset(4, ["image", "words", "name"], "label", shapes={"image": (2, 2)})
    features, label = dataset.element_spec
    assert features["image"] == tf.TensorSpec((None, 2, 2), tf.float32)
    assert features["name"].dtype == tf.string
    assert label == tf.TensorSpec((None,), tf.int64)

    def passed() -> list[Any]:
        return [
            (values["words"].to_list(), values["name"].numpy().tolist(), given.numpy().tolist())
            for values, given in dataset
        ]

    assert passed() == [
        ([[], [1], [1, 1], []], [b"n0", b"n1", b"n2", b"n3"], [0, 1, 2, 3]),
        ([[1]], [b"n4"], [4]),
    ]
    assert [labels for _, _, labels in passed()] == [[100, 101, 102, 103], [104]]
    fed.end()
    assert passed() == []


@pytest.mark.nightly
def test_the_position_beside_a_tf_dataset_is_what_the_loop_has_come_to(fed: Rig) -> None:
    feed = fed.trainers[0].feed("train")
    dataset = feed.tf_dataset(1, "label", per_epoch=False)
    seen: list[int] = []
    for batch in dataset.take(4):
        seen += batch.numpy().tolist()
        assert feed.position().rows == {0: [(0, len(seen))]}
    assert seen == [0, 1, 2, 3]


@pytest.mark.nightly
def test_large_batches_of_a_tf_dataset_keep_their_rows_wherever_these_lie() -> None:
    """Also where they are kept, and their memory is used again."""
    from howdah.spark.feed.adapters.tensorflow_feeds import dataset

    rows = np.arange(3 * 20_000 + 1, dtype=np.float32)[1:].reshape(3, 20_000)
    feed = _Given([{"y": rows[at : at + 1]} for at in range(len(rows))])
    made = dataset(feed, 1, "y", None, None, True, True)
    for _ in range(3):
        assert np.array_equal(np.concatenate([batch.numpy() for batch in list(made)]), rows)
        assert np.array_equal(
            np.concatenate([y.numpy() for y in made.map(lambda y: y + 1)]), rows + 1
        )


@pytest.mark.nightly
def test_an_exception_passes_through_a_tf_dataset(fed: Rig) -> None:
    import tensorflow as tf

    from howdah.spark.feed.messages import Abort

    feed = fed.trainers[0].feed("train")
    dataset = feed.tf_dataset(5, "label", per_epoch=False)
    fed.controller.say(Abort(feed="train", run=1, error="Spark: no such table"))
    with pytest.raises((tf.errors.UnknownError, tf.errors.InvalidArgumentError), match="no such"):
        list(dataset)


@pytest.mark.nightly
def test_a_feed_without_rows_makes_no_dataset(rig: Rig) -> None:
    feed = rig.trainer().feed("train")
    rig.end()
    with pytest.raises(FeedError, match="without any rows"):
        feed.tf_dataset(4)
