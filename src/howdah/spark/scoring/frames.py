"""Scoring a DataFrame: every row keeps its columns and its place, and gets the model's answers."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from howdah.client.errors import BadInput
from howdah.spark.errors import ScoringError
from howdah.spark.frames import map_in_arrow, quoted
from howdah.spark.scoring.files import prepare
from howdah.spark.scoring.predictors import Predictor, predictor
from howdah.spark.scoring.worker import (
    ScoringPlan,
    declare_batches,
    describe_batches,
    score_batches,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


PROBE_ROWS = 8
"""Rows that are scored to see what the answers look like, where nobody has said it."""


def score(
    data: DataFrame,
    model: Any,
    *,
    inputs: Mapping[str, str] | None = None,
    outputs: Mapping[str, str] | None = None,
    schema: StructType | str | None = None,
    batch_size: int = 1024,
    keep: bool | Sequence[str] = True,
    shapes: Mapping[str, Sequence[int]] | None = None,
    pad: bool = False,
) -> DataFrame:
    """A DataFrame with the model's answers as further columns. Lazy; rows keep their order.

    Without ``schema`` the model answers some rows now, in a Spark task, to show its columns: that
    runs what it takes of ``data``'s plan to get these.

    Args:
        data: rows, also of a streaming query (then ``schema`` must be given).
        model: a `Predictor`, a function ``predict(batch)``, or the path or URL of a saved model.
        inputs: column to tensor. Several columns of one tensor are put side by side, in this order. An
            empty tensor is the model's only input; ``features`` of a function.
            Without: the columns named as the model's inputs; a function gets all columns.
        outputs: tensor to new column; an empty tensor is the model's only answer. Without: all, by the
            model's names.
        schema: of the new columns: a StructType or its string, such as ``"prediction float"``.
        batch_size: rows that the model is given at once; fewer at the end, and where their texts or
            binaries exceed 2 GiB.
        keep: all columns of ``data`` come too, or those named, or none.
        shapes: tensor to the shape of one row, for models that do not tell: ``{"x": (28, 28)}``.
        pad: fill a batch of fewer rows up by repeating a row (its answers are dropped), for models
            that take one batch size only.

    Raises:
        BadInput: columns that are not there or are there twice, or a model that is none.
        ScoringError: model and rows do not fit each other (from Spark's tasks, as Spark's
            PythonException with this inside).
    """
    source = data.schema  # once: on Connect it may be a request, and so may data.columns
    names = list(source.names)
    if not names:
        raise BadInput("the rows have no columns: there is nothing to score")
    taken = list(inputs or names)
    _demand(names, taken, "inputs")
    kept = names if keep is True else list(keep or ())
    _demand(names, kept, "keep")
    _once((outputs or {}).values())
    plan = plan_of(
        data.sparkSession,
        model,
        inputs=inputs or {},
        outputs=outputs or {},
        shapes=shapes or {},
        batch_size=batch_size,
        pad=pad,
        keep=tuple(kept),
    )
    needed = list(dict.fromkeys([*kept, *taken]))
    if set(needed) != set(names):
        data = data.select(*(quoted(name) for name in needed))
    spark_schema, plan = _with_schema(data, plan, schema)
    _no_twins(kept, spark_schema.names)
    final = type(source)([*(source[name] for name in kept), *spark_schema.fields])
    return map_in_arrow(data, functools.partial(score_batches, plan), final)


def plan_of(
    spark: Any,
    model: Any,
    *,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    shapes: Mapping[str, Sequence[int]],
    batch_size: int,
    **rest: Any,
) -> ScoringPlan:
    """What Spark's workers need to know, with the model's files on their way; ``rest`` as in `Plan`.

    Raises:
        BadInput: ``batch_size`` or the model is none.
    """
    if batch_size < 1:
        raise BadInput(f"batch_size is {batch_size}; it must be at least 1")
    try:
        chosen = predictor(model)
        files = prepare(spark, chosen.path)
    except ScoringError as error:
        raise BadInput(str(error)) from error
    return ScoringPlan(
        predictor=_pickled(chosen),
        path=tuple(str(Path(entry).absolute()) for entry in sys.path),
        files=files,
        inputs=tuple(inputs.items()),
        outputs=tuple(outputs.items()),
        shapes=tuple((name, tuple(shape)) for name, shape in shapes.items()),
        batch_size=batch_size,
        **rest,
    )


def _with_schema(data: DataFrame, plan: ScoringPlan, schema: Any) -> tuple[StructType, ScoringPlan]:
    """Spark's schema of the answers, and the plan that keeps to it."""
    import msgspec
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    if schema is None:
        found = _asked(data, plan)
        return from_arrow_schema(found), msgspec.structs.replace(plan, schema=found)
    wanted = struct_type(data.sparkSession, schema)
    _once(wanted.names)
    mapped = [column for _, column in plan.outputs]
    if mapped and set(mapped) != set(wanted.names):
        raise BadInput(
            f"the output mapping makes {', '.join(mapped)} and the schema has "
            f"{', '.join(wanted.names)}; both must name the same columns"
        )
    by_name = {column: tensor for tensor, column in plan.outputs}
    own = "" if len(wanted.names) == 1 else None  # a single answer may have any name
    outputs = tuple(
        (by_name.get(name, name if own is None else own), name) for name in wanted.names
    )
    arrow = to_arrow_schema(wanted)
    return wanted, msgspec.structs.replace(plan, schema=arrow, outputs=outputs)


def _asked(data: DataFrame, plan: ScoringPlan) -> pa.Schema:
    import pyarrow as pa

    if data.isStreaming:
        raise BadInput('rows of a stream come later: give schema="…", such as "prediction float"')
    describe = functools.partial(describe_batches, plan)
    rows = map_in_arrow(data.limit(PROBE_ROWS), describe, "schema binary").collect()
    if not rows:
        one = data.sparkSession.range(0, 1, 1, 1)
        rows = one.mapInArrow(functools.partial(declare_batches, plan), "schema binary").collect()
    if not rows:
        raise BadInput(
            "there is no row to ask the model with, and it does not declare its outputs: give "
            'schema="…", such as "prediction float"'
        )
    return pa.ipc.read_schema(pa.py_buffer(bytes(rows[0][0])))


def struct_type(spark: Any, schema: Any) -> StructType:
    """A schema given as a StructType or as its string.

    Raises:
        BadInput: Spark does not understand it.
    """
    if not isinstance(schema, str):
        return schema
    try:
        return spark.createDataFrame([], schema).schema
    except Exception as error:
        first = str(error).strip().splitlines()[0]
        raise BadInput(
            f"the schema {schema!r} is not one of Spark's ('name type, name type'): {first}"
        ) from error


def _pickled(chosen: Predictor) -> bytes:
    import cloudpickle

    try:
        return cloudpickle.dumps(chosen)
    except Exception as error:
        raise BadInput(
            f"the function cannot be sent to Spark's workers: {error}. Load models and open files "
            "inside it: Make(make=…) is called once in each worker"
        ) from error


def _demand(there: list[str], wanted: Sequence[str], where: str) -> None:
    counts = Counter(there)
    if missing := [name for name in wanted if not counts[name]]:
        raise BadInput(
            f"{where}: the rows have no column {', '.join(map(repr, missing))}; they have "
            f"{', '.join(map(repr, there))}"
        )
    if twins := [name for name in dict.fromkeys(wanted) if counts[name] > 1]:
        raise BadInput(
            f"{where}: the rows have more than one column {', '.join(map(repr, twins))}; rename "
            "them, or drop the others"
        )


def _once(new: Iterable[str]) -> None:
    if twins := [name for name, count in Counter(new).items() if count > 1]:
        raise BadInput(
            f"more than one of the model's answers is to be {', '.join(map(repr, twins))}; give "
            "each a column of its own"
        )


def _no_twins(kept: list[str], new: list[str]) -> None:
    taken = {name.lower() for name in kept}
    if twins := [name for name in new if name.lower() in taken]:
        raise BadInput(
            f"the rows already have a column {', '.join(map(repr, twins))}; name the model's "
            "answers by outputs={tensor: column}, or keep fewer columns"
        )
