"""Nulls of a frame on every way through programs and models: null again, NaN, or refused in words."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from howdah.spark import rows
from howdah.spark.errors import FeedError, ScoringError
from howdah.spark.feed.arrow.answers import record_batch
from howdah.spark.feed.arrow.columns import array, concatenated, tensors
from howdah.spark.pipeline import loops
from howdah.spark.scoring import Function, worker
from howdah.spark.scoring.columns import Batch, Tensor

ROWS = pa.record_batch(
    {
        "i": pa.array([1, None, 2**53 + 1]),
        "small": pa.array([None, 5, 6], pa.int32()),
        "b": pa.array([True, None, False]),
        "d": pa.array([1.5, None, 2.5]),
        "s": pa.array(["x", None, "z"]),
        "t": pa.array([None, 1, 2], pa.timestamp("us")),
        "pair": pa.array([[1, None], [3, 4], [None, 6]], pa.list_(pa.int32())),
        "ragged": pa.array([[1, None], None, [3, 4, 5]], pa.list_(pa.int32())),
        "flags": pa.array([[None, True], [False], []]),
        "deep": pa.array([[[1, None], [2]], None, [[]]]),
        "inner": pa.array([{"n": 1}, None, {"n": None}], pa.struct({"n": pa.int64()})),
    }
)
INTEGERS = ["i", "small", "b", "s", "t", "pair", "ragged", "flags", "deep"]
FED = {name: array(ROWS[name], name) for name in ROWS.schema.names}
MASKED = FED["i"]


def scored(function: Any, rows: pa.RecordBatch = ROWS, **options: Any) -> pa.RecordBatch:
    plan = worker.ScoringPlan(predictor=pickle.dumps(Function()), **options)
    return worker.answer(plan, Function(function=function).load(""), rows)


def test_nulls_that_are_answered_are_nulls_of_their_type() -> None:
    answered = record_batch({name: FED[name] for name in INTEGERS}, 3, "train")
    assert answered.equals(ROWS.select(INTEGERS))
    assert record_batch(MASKED * 2, 3, "train")["prediction"].to_pylist() == [2, None, 2**54 + 2]
    assert scored(lambda batch: {name: batch[name] for name in INTEGERS}) == ROWS.select(INTEGERS)
    assert scored(lambda batch: {"n": batch["inner"]["n"]})["n"].to_pylist() == [1, None, None]


@pytest.mark.parametrize(
    "given",
    [
        list(MASKED),
        [np.int64(1), np.ma.masked, np.int64(2**53 + 1)],
        pd.Series([1, None, 2**53 + 1], dtype="Int64"),
        pd.array([1, None, 2**53 + 1], dtype="Int64"),
        pd.DataFrame({"prediction": pd.array([1, None, 2**53 + 1], dtype="Int64")}),
        np.ma.MaskedArray([1, 7, 2**53 + 1], [False, True, False], dtype=object),
        pa.table({"prediction": ROWS["i"]}),
        ROWS["i"],
    ],
)
def test_answers_of_every_kind_keep_their_nulls(given: Any) -> None:
    expected = [1, None, 2**53 + 1]
    assert record_batch(given, 3, "train")["prediction"].to_pylist() == expected
    assert scored(lambda _: given)["prediction"].to_pylist() == expected


def test_rows_that_are_masked_arrays_keep_their_nulls() -> None:
    rows = [np.ma.MaskedArray([1, 2], [False, True]), np.array([3, 4])]
    assert record_batch(rows, 2, "train")["prediction"].to_pylist() == [[1, None], [3, 4]]
    cube = np.ma.MaskedArray(np.arange(8).reshape(2, 2, 2), np.arange(8).reshape(2, 2, 2) == 5)
    nested = [[[0, 1], [2, 3]], [[4, None], [6, 7]]]
    assert record_batch(cube, 2, "train")["prediction"].to_pylist() == nested
    narrow = np.ma.MaskedArray([1, 2], [False, True], dtype="uint8")
    assert scored(lambda _: narrow, ROWS.slice(0, 2))["prediction"].to_pylist() == [1, None]


def test_a_batch_that_is_filled_up_keeps_its_nulls() -> None:
    found = scored(lambda batch: batch["small"], ROWS, pad=True, batch_size=8)
    assert found["prediction"].to_pylist() == [None, 5, 6]
    last = scored(lambda batch: batch["i"], ROWS.slice(0, 2), pad=True, batch_size=8)
    assert last["prediction"].to_pylist() == [1, None]


def test_columns_side_by_side_keep_their_nulls() -> None:
    inputs = (("small", "x"), ("i", "x"))
    found = scored(lambda batch: batch["x"], inputs=inputs)
    assert found["prediction"].to_pylist() == [[None, 1], [5, None], [6, 2**53 + 1]]


def test_pieces_of_a_column_keep_their_nulls() -> None:
    lists = [
        pa.array(rows, pa.list_(pa.int64())) for rows in ([[1, None], [2, 3]], [None, [4], [5]])
    ]
    whole = concatenated([array(each) for each in lists])
    assert record_batch(whole, 5, "train")["prediction"].to_pylist() == [
        *([1, None], [2, 3]),
        *(None, [4], [5]),
    ]


class Declared:
    """A model that says what it takes, and answers with that."""

    outputs = None

    def __init__(self, dtype: str) -> None:
        self.inputs = (Tensor("x", dtype, ()),)

    def __call__(self, batch: Batch, /) -> Any:
        return batch["x"]


@pytest.mark.parametrize(
    ("column", "dtype", "text"),
    [
        ("i", "int64", "column 'i' has nulls"),
        ("b", "bool", "column 'b' has nulls"),
        ("d", "int32", "column 'd' has nulls"),
        ("t", "int64", "column 't' has nulls"),
        ("t", "float32", "column 't' has nulls"),
        ("half", "int64", "column 'half' has values that int64 cannot hold"),
        ("wide", "int32", "column 'wide' has values that int32 cannot hold"),
    ],
)
def test_what_a_models_tensor_cannot_hold_is_refused(column: str, dtype: str, text: str) -> None:
    rows = ROWS.append_column("half", pa.array([0.5, 1.0, 2.0]))
    rows = rows.append_column("wide", pa.array([1, 2, 2**40]))
    plan = worker.ScoringPlan(predictor=b"", inputs=((column, "x"),))
    with pytest.raises(ScoringError, match=text):
        worker.answer(plan, Declared(dtype), rows)


@pytest.mark.parametrize("column", ["small", "b", "d"])
def test_missing_numbers_are_nan_for_a_model_of_floats(column: str) -> None:
    plan = worker.ScoringPlan(predictor=b"", inputs=((column, "x"),))
    [found] = worker.answer(plan, Declared("float32"), ROWS).columns
    expected = np.ma.filled(FED[column].astype("float32"), np.nan)
    assert np.array_equal(found.to_numpy(), expected, equal_nan=True)
    assert found.type == pa.float32()


def test_a_model_of_a_type_that_numpy_has_not_is_given_no_mask() -> None:
    plan = worker.ScoringPlan(predictor=b"", inputs=(("small", "x"),))
    [found] = worker.answer(plan, Declared(""), ROWS).columns
    assert np.array_equal(found.to_numpy(), [np.nan, 5, 6], equal_nan=True)


def test_masked_values_of_an_rdd_are_nulls() -> None:
    given = [{"x": np.ma.MaskedArray([1, 2], [False, True]), "y": np.ma.masked}, {"x": [3], "y": 4}]
    schema = rows.arrow_schema({"x": [0], "y": 0})
    [batch] = rows.record_batches(given, schema)
    assert batch.to_pydict() == {"x": [[1, None], [3]], "y": [None, 4]}


def test_times_that_are_null_are_in_no_tensor() -> None:
    with pytest.raises(FeedError, match="column 't' has nulls"):
        tensors(FED["t"], "t", lambda values, _: values)
    assert tensors(array(ROWS["t"].slice(1)), "t", lambda values, _: values).tolist() == [1, 2]


def test_rows_of_a_feed_have_none_for_nulls_within_lists() -> None:
    from howdah.spark.feed.feed import _item

    assert [_item(FED["i"], index) for index in range(3)] == [1, None, 2**53 + 1]


@pytest.mark.nightly
@pytest.mark.parametrize("column", ["ragged", "flags"])
def test_lists_with_nulls_are_in_no_ragged_tensor(column: str) -> None:
    from howdah.spark.feed.adapters.tensorflow_feeds import _parts

    with pytest.raises(FeedError, match=f"column '{column}' has nulls"):
        _parts(FED[column], column)


def trained(features: Any, label: Any, weight: Any = None, held_back: Any = None) -> Any:
    """What `torch_training` makes of one batch, and of another one to validate with."""
    import torch

    def feed(name: str = "train") -> Any:
        given = held_back if name == "validation" else {"features": features, "label": label}
        if weight is not None:
            given = {**given, "sample_weight": weight}
        return [SimpleNamespace(batches=lambda *_, **__: [given])]

    named = {"checkpoint": None, "resume": "", "model_dir": "", "callbacks": []}
    args = SimpleNamespace(
        **named,
        seed=0,
        shapes={},
        batch_size=8,
        export_dir="",
        validation_fraction=0.0,
        validation_col="held" if held_back is not None else "",
    )
    ctx = SimpleNamespace(feed=feed, world_size=1, rank=0, report=lambda **_: None)
    loop = loops.torch_training(
        lambda: torch.nn.Linear(1, 1), lambda output, label: (output - label) ** 2
    )
    return loop(args, ctx)


COLUMN = np.ma.MaskedArray([[1], [2]], [[False], [True]])
GOOD = np.array([[1.0], [2.0]])
LABEL = np.array([1.0, 2.0])


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("features", {"features": COLUMN, "label": LABEL}),
        ("features", {"features": np.array([[1.0], [np.nan]]), "label": LABEL}),
        ("features", {"features": array(pa.array([[1.0], None])), "label": LABEL}),
        ("label", {"features": GOOD, "label": MASKED[:2]}),
        ("sample_weight", {"features": GOOD, "label": LABEL, "weight": MASKED[:2]}),
        (
            "label",
            {
                "features": GOOD,
                "label": LABEL,
                "held_back": {"features": GOOD, "label": FED["b"][:2]},
            },
        ),
    ],
)
def test_a_ready_loop_trains_no_nulls(name: str, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"'{name}' has nulls.*dropna"):
        trained(**given)


@pytest.mark.nightly
def test_a_model_of_the_ready_loop_answers_nulls_with_nan() -> None:
    model = trained(GOOD, LABEL)
    found = model.make()({"features": COLUMN})
    assert np.isnan(found).tolist() == [False, True]


def test_a_schema_is_looked_for_in_some_rows_and_none_is_a_guess() -> None:
    def described(*answers: Any) -> Any:
        plan = worker.ScoringPlan(predictor=pickle.dumps(Function(function=_Of(answers))))
        [found] = worker.describe_batches(plan, iter([pa.record_batch({"x": range(len(answers))})]))
        return pa.ipc.read_schema(pa.py_buffer(found["schema"][0].as_py())).field(0).type

    assert described([], [2**53 + 1]) == pa.list_(pa.int64())
    assert described(None, 1) == pa.int64()
    for nothing in ([None, None], [[], []], [[None], []]):
        with pytest.raises(ScoringError, match="'prediction' has only nulls.*schema="):
            described(*nothing)


class _Of:
    def __init__(self, answers: Any) -> None:
        self._answers = list(answers)

    def __call__(self, batch: dict[str, Any]) -> Any:
        return self._answers[: len(batch["x"])]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ([2**53 + 1], pa.float64()),
        ([[2**53 + 1]], pa.list_(pa.float64())),
        (np.array([2**24 + 1]), pa.float32()),
        ([0.5], pa.int64()),
        ([2**40], pa.int32()),
    ],
)
def test_answers_that_would_change_in_the_schemas_type_are_refused(answer: Any, kind: Any) -> None:
    schema = pa.schema({"prediction": kind})
    with pytest.raises(ScoringError, match="'prediction' is .* and cannot be"):
        scored(lambda _: answer, ROWS.slice(0, 1), schema=schema)
