"""Rows answered by the training processes: a lazy DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from howdah.backends.spark.error_texts import error_text
from howdah.client.errors import BadInput
from howdah.spark.errors import FeedError
from howdah.spark.feed.arrow.answers import untyped
from howdah.spark.feed.messages import Align, Options, Purpose
from howdah.spark.feed.tasks.feeding import FeedTask
from howdah.spark.frames import map_in_arrow
from howdah.spark.rows import partition_feeder
from howdah.spark.scoring.frames import PROBE_ROWS

if TYPE_CHECKING:
    from howdah.spark.live import Live


def answered(
    live: Live,
    frame: Any,
    *,
    feed: str,
    schema: Any,
    keep: bool,
    columns: Sequence[str] | None,
) -> Any:
    """See `howdah.spark.cluster.Cluster.inference`.

    Raises:
        BadInput: it is no DataFrame, the schema is none, or answers would have the name of a column.
        FeedError: no schema was given, and the first rows could not be answered.
    """
    if not hasattr(frame, "mapInArrow"):
        raise BadInput(
            f"A {type(frame).__name__} cannot be scored; give a DataFrame (of an RDD: "
            "spark.createDataFrame(rdd))"
        )
    from pyspark.sql.pandas.types import to_arrow_schema

    said = None if schema is None else _parsed(schema)
    task = _opened(live, feed, columns)
    answer = _probed(frame, task) if said is None else said
    names = [field.name for field in answer.fields]
    if keep:
        there = {name.lower() for name in frame.columns}  # Spark finds columns in any case
        taken = sorted(name for name in names if name.lower() in there)
        if taken:
            raise BadInput(
                f"the answers have the columns {', '.join(taken)}, which the rows have too: give "
                "the answers other names, or keep=False"
            )
    promised = to_arrow_schema(answer).serialize().to_pybytes()
    sent = msgspec.msgpack.encode(msgspec.structs.replace(task, keep=keep, answer=promised))
    fields = [*(frame.schema.fields if keep else []), *answer.fields]
    return map_in_arrow(frame, partition_feeder(sent), type(answer)(fields))


def scorer(live: Live, feed: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What a Spark task does with record batches that are to be answered: for RDDs of other kinds.

    It gives as many record batches as it is given, each with as many rows.
    """
    return partition_feeder(msgspec.msgpack.encode(_opened(live, feed, None)))


def _opened(live: Live, feed: str, columns: Sequence[str] | None) -> FeedTask:
    """Let the programs expect rows to be answered."""
    with live.controller.changed:
        live.check()
    run = live.controller.open(Purpose.SCORE, Options(feed=feed, align=Align.NONE))
    live.controller.announce(run)
    return FeedTask(
        access=live.access,
        feed=feed,
        run=run.number,
        purpose=Purpose.SCORE,
        columns=list(columns) if columns is not None else None,
        keep=False,
    )


def _prober(sent: bytes) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def task(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from howdah.spark.feed.tasks.feeder import feed_partition

        for answer in feed_partition(sent, batches):
            yield pa.record_batch({"schema": pa.array([answer.schema.serialize().to_pybytes()])})

    return task


def _probed(frame: Any, task: FeedTask) -> Any:
    """The schema of the answers to the first rows."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    sent = msgspec.msgpack.encode(task)
    found = map_in_arrow(frame.limit(PROBE_ROWS), _prober(sent), "schema binary").collect()
    if not found:
        raise FeedError(
            "there are no rows to see what the answers look like: say it with schema=, such as "
            'schema="prediction float"'
        )
    schema = pa.ipc.read_schema(pa.py_buffer(bytes(found[0]["schema"])))
    if unknown := untyped(schema):
        raise FeedError(
            f"the answers {unknown!r} are only nulls or empty lists for the first rows, which tell no "
            'type: say it with schema=, such as schema="prediction array<double>"'
        )
    return from_arrow_schema(schema)


def _parsed(schema: Any) -> Any:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType, _parse_datatype_string

    why = ""
    if isinstance(schema, str):
        try:
            parsed = _parse_datatype_string(schema)
        except PySparkException as error:
            parsed, why = None, f", which Spark cannot read ({error_text(error)})"
    else:
        parsed = schema
    if isinstance(parsed, StructType):
        return parsed
    raise BadInput(
        f'schema is {schema!r}{why}; give a StructType or a string such as "prediction float"'
    )
