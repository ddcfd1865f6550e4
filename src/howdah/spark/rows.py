"""Where a feed's rows come from: a DataFrame, or an RDD on classic Spark."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from howdah.backends.spark.error_texts import error_text
from howdah.client.errors import BadInput
from howdah.spark.errors import FeedError
from howdah.spark.feed.control.plan import BATCH_BYTES, batch_rows
from howdah.spark.frames import map_in_arrow, select
from howdah.spark.session import Session, determinate
from howdah.spec.problems import closest, listed

if TYPE_CHECKING:
    import pyarrow as pa

GUESS_BYTES = {
    "boolean": 1,
    "byte": 1,
    "short": 2,
    "integer": 4,
    "float": 4,
    "date": 4,
    "long": 8,
    "double": 8,
    "timestamp": 8,
    "timestamp_ntz": 8,
    "string": 32,
    "binary": 1024,
    "array": 1024,
    "map": 256,
    "variant": 256,
}
"""Bytes of a value, by Spark's name for its type; arrays and binary values may be any size."""


def source_of(session: Session, data: Any, columns: Sequence[str] | None = None) -> RowSource:
    """What feeds those columns of that data; a `RowSource` stays as it is.

    Raises:
        BadInput: it is no DataFrame and no RDD, or the rows of an RDD have no such column.
        FeedError: an RDD was asked for its columns, and could not tell.
    """
    # Not of the object: a DataFrame on Connect has any attribute, as a column.
    if callable(getattr(type(data), "feed", None)):
        return data
    if hasattr(data, "mapInArrow"):
        if getattr(data, "isStreaming", False):
            raise BadInput(
                "This DataFrame is a stream: feed it with cluster.train_stream(frame, …)"
            )
        frame = data if columns is None else select(data, columns)
        if not frame.columns:
            raise BadInput("This DataFrame has no columns: there is nothing to feed")
        return FrameSource(session, frame)
    if hasattr(data, "mapPartitions"):
        return RddSource(data, columns)
    raise BadInput(
        f"{type(data).__module__.partition('.')[0]}'s {type(data).__name__} cannot be fed; give a DataFrame "
        "of Spark (spark.createDataFrame makes one of lists and pandas) or, on classic Spark, an RDD"
    )


class FrameSource:
    """A DataFrame: rows that can be fed, again and again."""

    def __init__(self, session: Session, frame: Any) -> None:
        self._session = session
        self._frame = frame
        self._row_bytes = float(row_bytes(frame.schema))
        self._exact = fixed(frame.schema)
        self._ordered: bool | None = None
        self._kept = False
        """Its partitions are the same in every query."""
        self._made: Any = None
        """The frame that was `materialised`."""

    def feed(self, task: Callable[[], bytes]) -> list[tuple[int, int, int]]:
        """Run the feeding query; partition, rows and bytes of each task."""
        from howdah.spark.feed.tasks.feeder import RESULT

        sent = task()
        ordered = self.ordered()
        if ordered and not self._kept:
            kept = self._session.as_rdd(self._frame)
            if kept is not None:
                self._frame, self._kept = kept, True
        work = partition_feeder(sent, checked=ordered and not self._kept)
        frame = self._session.in_batches(
            self._frame, batch_rows(self._row_bytes), BATCH_BYTES, exact=self._exact
        )
        rows = map_in_arrow(frame, work, RESULT).collect()
        found = [(row["partition"], row["rows"], row["bytes"]) for row in rows]
        if total := sum(each[1] for each in found):
            # The next epoch knows better than the schema.
            self._row_bytes = sum(each[2] for each in found) / total
        return found

    def known_rows(self) -> int | None:
        """How many rows it has; None where Spark would have to count them."""
        return self._session.known_rows(self._frame)

    def ordered(self) -> bool:
        """Whether Spark gives a partition's rows in the same order when it computes them again."""
        if self._ordered is None:
            self._ordered = self._session.ordered(self._frame)
        return self._ordered

    def materialised(self) -> FrameSource | None:
        """The same rows, computed now by a Spark job and kept by the executors, so that a partition's
        rows stay in their order. None where this Spark cannot."""
        frame = self._session.materialised(self._frame)
        if frame is None:
            return None
        made = copy.copy(self)
        made._frame, made._made, made._ordered = frame, frame, True
        return made

    def release(self) -> None:
        """Let the executors drop what was `materialised`."""
        if self._made is not None:
            self._session.release(self._made)


class RddSource:
    """An RDD of rows, tuples, lists, dictionaries or single values: made Arrow where it is."""

    def __init__(self, rdd: Any, columns: Sequence[str] | None = None) -> None:
        """With ``columns`` a row is looked at now: programs do not begin what has no such column."""
        self._rdd = rdd
        self._whole = columns is None
        self._schema: bytes | None = None
        if columns is not None:
            try:
                first = rdd.take(1)
            except Exception as error:  # py4j's
                raise FeedError(
                    f"Spark could not bring the first row: {error_text(error)}"
                ) from error
            self._schema = arrow_schema(first[0], columns) if first else b""

    def feed(self, task: Callable[[], bytes]) -> list[tuple[int, int, int]]:
        if self._schema is None:
            first = self._rdd.take(1)
            self._schema = arrow_schema(first[0]) if first else b""
        to_batches = functools.partial(record_batches, schema=self._schema, whole=self._whole)
        return self._rdd.mapPartitions(rdd_feeder(task(), to_batches)).collect()

    def known_rows(self) -> None:
        """See `FrameSource.known_rows`."""

    def ordered(self) -> bool:
        try:
            return determinate(self._rdd._jrdd.rdd())
        except Exception:  # py4j's
            return False

    def materialised(self) -> RddSource:
        from pyspark import StorageLevel

        made = copy.copy(self)
        # The RDD itself stays as it is.
        made._rdd = rdd = self._rdd.mapPartitions(_same, preservesPartitioning=True)
        # pyspark computes what follows from the kept rows only if it knows that they are kept.
        rdd.persist(StorageLevel.MEMORY_AND_DISK)
        rdd.localCheckpoint()
        rdd.count()
        return made

    def release(self) -> None:
        self._rdd.unpersist()


RowSource = FrameSource | RddSource


def _same(rows: Iterator[Any]) -> Iterator[Any]:
    return rows


def partition_feeder(
    sent: bytes, *, checked: bool = False
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What a Spark task does with its record batches; see `howdah.spark.feed.tasks.feeder.feed_partition`."""

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        from howdah.spark.feed.tasks.feeder import feed_partition

        yield from feed_partition(sent, cut(batches), checked=checked)

    return task


def cut(batches: Iterator[Any]) -> Iterator[Any]:
    """The same rows, in record batches of about `BATCH_BYTES` where they are much larger: Spark does
    not make them as large as it is asked to everywhere, and what is sent at once is held at once."""
    for batch in batches:
        if batch.nbytes <= 2 * BATCH_BYTES:
            yield batch
            continue
        rows = batch_rows(batch.nbytes / batch.num_rows)
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def rdd_feeder(
    sent: bytes, to_batches: Callable[[Iterator[Any]], Iterator[Any]]
) -> Callable[[Iterator[Any]], Iterator[tuple[int, int, int]]]:
    """What a Spark task does with an RDD's rows: partition, rows and bytes are its answer."""

    def task(rows: Iterator[Any]) -> Iterator[tuple[int, int, int]]:
        from howdah.spark.feed.tasks.feeder import feed_partition

        for batch in feed_partition(sent, to_batches(rows)):
            for row in batch.to_pylist():
                yield row["partition"], row["rows"], row["bytes"]

    return task


# -- rows of an RDD -------------------------------------------------------------------------------

FIRST_ROWS = 64
"""Whose width decides how many rows a record batch has."""


def named(row: Any) -> Mapping[str, Any]:
    """A row as a mapping from column to value: ``_1``, ``_2``, … where it has no names."""
    if isinstance(row, Mapping):
        return row
    if fields := getattr(row, "__fields__", None) or getattr(row, "_fields", None):
        return dict(zip(fields, row))
    if isinstance(row, (tuple, list)):
        return {f"_{number}": value for number, value in enumerate(row, 1)}
    return {"_1": row}


def arrow_schema(row: Any, columns: Sequence[str] | None = None) -> bytes:
    """The Arrow schema of rows like this one, or of some of their columns, serialised.

    Raises:
        BadInput: a value is of a type that Arrow has not; there is no such column, none at all, or
            there are two of one name.
    """
    import pyarrow as pa

    values = named(row)
    if not values or (isinstance(row, tuple) and len(values) != len(row)):
        raise BadInput(
            f"{_short(row)}, a row of this RDD, "
            + ("has two columns of one name: rename one" if values else "has no columns")
        )
    for name in columns or ():
        if name not in values:
            near = closest(name, values)
            raise BadInput(
                f"the rows of this RDD have no column {name!r}; "
                + (f"did you mean {near!r}?" if near else f"they have {listed(values)}")
            )
    try:
        found = {
            name: pa.array([_plain(values[name])])
            for name in (values if columns is None else columns)
        }
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise BadInput(
            f"The rows of this RDD cannot be fed as they are: {error}. Make a DataFrame of them "
            "with a schema: spark.createDataFrame(rdd, schema)"
        ) from error
    return pa.schema([(name, array.type) for name, array in found.items()]).serialize().to_pybytes()


def record_batches(rows: Iterable[Any], schema: bytes, *, whole: bool = True) -> Iterator[Any]:
    """The rows as record batches of that schema, ``whole`` or some columns of them. A dictionary may
    lack columns: they are null.

    Raises:
        FeedError: a row does not fit it.
    """
    import pyarrow as pa

    wanted = pa.ipc.read_schema(pa.py_buffer(schema)) if schema else pa.schema([])
    names = set(wanted.names)
    nested = [field for field in wanted if "struct<" in str(field.type)]
    count = FIRST_ROWS
    rows = iter(rows)
    while chunk := list(itertools.islice(rows, count)):
        columns = {name: [] for name in wanted.names}
        for row in chunk:
            values = named(row)
            more, less = values.keys() - names, names - values.keys()
            if (whole and more) or (less and not isinstance(row, Mapping)):
                raise FeedError(
                    f"{_short(row)}, a row of the RDD, has the columns {listed(values)}; its first row has "
                    f"{listed(wanted.names)}. Make the rows alike, or choose columns that all of them have: "
                    "columns=[…]"
                )
            for name, column in columns.items():
                column.append(_plain(values.get(name)))
        for field in nested:
            for value in columns[field.name]:
                if _has_more(value, field.type):
                    raise FeedError(
                        f"{_short(value)}, in column {field.name!r} of the RDD, has a key that its first "
                        f"row has not ({field.type}). Make a DataFrame with a schema: "
                        "spark.createDataFrame(rdd, schema)"
                    )
        try:
            batch = pa.record_batch(
                [pa.array(columns[field.name], field.type) for field in wanted], schema=wanted
            )
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise FeedError(
                f"a row of the RDD is not like its first one ({wanted}): {error}. Make a DataFrame "
                "with a schema: spark.createDataFrame(rdd, schema)"
            ) from error
        yield batch
        count = batch_rows(batch.nbytes / len(chunk))


def _has_more(value: Any, kind: pa.DataType) -> bool:
    """Whether a dictionary in it has a key that is no field: Arrow would drop its value."""
    import pyarrow as pa

    if isinstance(kind, pa.StructType) and isinstance(value, Mapping):
        fields = {field.name: field.type for field in kind}
        return any(
            name not in fields or _has_more(each, fields[name]) for name, each in value.items()
        )
    if isinstance(kind, pa.ListType) and value is not None:
        return any(_has_more(each, kind.value_type) for each in value)
    return False


def _short(row: Any) -> str:
    text = repr(row)
    return text if len(text) <= 100 else f"{text[:100]}…"


def _plain(value: Any) -> Any:
    """As Arrow takes it: arrays of several dimensions, or with a mask, as lists, vectors as their values."""
    shape = getattr(value, "shape", None)
    if shape is not None and (len(shape) > 1 or hasattr(value, "mask")):
        return value.tolist()
    if hasattr(value, "toArray"):  # pyspark.ml.linalg and its older likes
        return value.toArray()
    if isinstance(value, tuple):
        return list(value)
    return value


VARIABLE = frozenset({"string", "binary", "array", "map", "variant", "char", "varchar"})


def fixed(schema: Any) -> bool:
    """Whether all rows have the same width."""
    return all(
        fixed(field.dataType)
        if hasattr(field.dataType, "fields")
        else field.dataType.typeName() not in VARIABLE
        for field in schema.fields
    )


def row_bytes(schema: Any) -> int:
    """Width of a row, as far as its types tell."""
    total = 0
    for field in schema.fields:
        kind = field.dataType
        inner = getattr(kind, "fields", None)
        total += row_bytes(kind) if inner else GUESS_BYTES.get(kind.typeName(), 16)
    return max(total, 1)
