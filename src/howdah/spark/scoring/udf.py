"""A model as a function of columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from howdah.spark.errors import ScoringError
from howdah.spark.scoring.frames import plan_of, struct_type
from howdah.spark.scoring.predictors import Loaded
from howdah.spark.scoring.worker import ScoringPlan, answer, loaded, rechunk


def predict_udf(
    spark: Any,
    model: Any,
    schema: Any,
    *,
    inputs: Sequence[str] | None = None,
    batch_size: int = 1024,
    shapes: Mapping[str, Sequence[int]] | None = None,
    pad: bool = False,
) -> Any:
    """The model as a function of columns, for `select`, `withColumn`, `where` and, registered, SQL.

        probability = predict_udf(spark, "hdfs:///models/digits", "array<float>")
        df.withColumn("p", probability("pixels"))
        spark.udf.register("probability", probability)

    `score` is the faster way where all of a DataFrame's rows are scored, and takes vector columns;
    Spark hands them to no function of columns. Before Spark 4.1 columns also go through pandas.

    Args:
        spark: the session.
        model: a `Predictor`, a function ``predict(batch)``, or the path or URL of a saved model.
        schema: type of the answer, such as ``"float"``, if the model gives one; else the answers by
            name, ``"label int, probability array<float>"``: one of them is a column of that type,
            several are a struct.
        inputs: tensors, one for each column of a call. Without: the model's own, in its order; a
            function needs them.
        batch_size, shapes, pad: as those of `score`.

    Raises:
        BadInput: ``schema`` is none, or the model is none.
        ScoringError: model and columns do not fit each other (from Spark's tasks).
    """
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = struct_type(spark, schema)
    plan = plan_of(
        spark,
        model,
        inputs={name: name for name in inputs or ()},
        outputs={("" if len(wanted.names) == 1 else name): name for name in wanted.names},
        shapes=shapes or {},
        batch_size=batch_size,
        pad=pad,
        schema=to_arrow_schema(wanted),
    )
    returned = wanted[0].dataType if len(wanted.names) == 1 else wanted

    arrow = hasattr(functions, "arrow_udf")
    one = len(wanted.names) == 1

    def answers(columns: Any) -> Any:
        for found in predictions(plan, columns):
            if arrow:
                yield found.column(0) if one else found.to_struct_array()
            else:
                # Or pandas makes floats of whole numbers that have nulls among them.
                frame = found.to_pandas(integer_object_nulls=True)
                yield frame.iloc[:, 0] if one else frame

    # Spark looks at the types themselves.
    if arrow:
        make: Any = functions.arrow_udf
        given, back = pa.Array, pa.Array
    else:
        import pandas as pd

        make = functions.pandas_udf
        given, back = pd.Series, pd.Series if one else pd.DataFrame
    answers.__annotations__ = {
        "columns": Iterator[tuple[given, ...]],
        "return": Iterator[back],
    }
    return make(answers, returned)


def predictions(plan: ScoringPlan, calls: Iterator[Any]) -> Iterator[pa.RecordBatch]:
    """Answers to what Spark gives a function of columns: arrays or pandas's, of one or several."""
    calls = iter(calls)
    for first in calls:  # if there are rows: the others go with the first ones
        model = loaded(plan)
        batches = (_batch(plan, model, columns) for columns in itertools.chain([first], calls))
        for batch in rechunk(batches, plan.batch_size):
            yield answer(plan, model, batch)


def _batch(plan: ScoringPlan, model: Loaded, columns: Any) -> pa.RecordBatch:
    columns = columns if isinstance(columns, tuple) else (columns,)
    arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
    names = [column for column, _ in plan.inputs] or [tensor.name for tensor in model.inputs or ()]
    if not names:
        raise ScoringError(
            'the model does not say what its inputs are called: give predict_udf inputs=["…"], one '
            "for each column"
        )
    if len(names) != len(arrays):
        raise ScoringError(
            f"the model takes {', '.join(map(repr, names))}, {len(names)} in all, and was given "
            f"{len(arrays)} columns"
        )
    return pa.RecordBatch.from_arrays(arrays, names=names)
