"""TensorFlowOnSpark's ``dfutil``: the same names and signatures, without TensorFlow and RDDs of rows.

Kept: columns in the order of names, floats as double, ``binary_features``, empty features as null.
Better: arrays of strings, binaries and booleans, all values of an array, nulls as absent features, a
schema from a sample of records of many files.
"""

from __future__ import annotations

import io
import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from howdah.spark.tfrecord.codec import protos
from howdah.spark.tfrecord.codec.columns import RecordType, columns
from howdah.spark.tfrecord.codec.encode import encode
from howdah.spark.tfrecord.codec.framing import blocks
from howdah.spark.tfrecord.errors import TFRecordError
from howdah.spark.tfrecord.functions import read, write_tfrecords
from howdah.spark.tfrecord.options import TFRecordOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.types import StructType

loadedDF: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""DataFrames that `loadTFRecords` has given, and where from."""

_ROWS = 1000
_ARROW: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def saveAsTFRecords(df: DataFrame, output_dir: str) -> None:
    """Write a DataFrame as TFRecords of `tf.train.Example` into a folder that is not there yet.

    Raises:
        FileExistsError: there is something.
        TFRecordError: a column's type cannot be written.
    """
    write_tfrecords(df, output_dir)


def loadTFRecords(sc: Any, input_dir: str, binary_features: Sequence[str] = []) -> DataFrame:
    """A DataFrame of TFRecords of `tf.train.Example`.

    Args:
        sc: a SparkContext or a SparkSession.
        binary_features: features that become binary columns; others of bytes become strings if they
            are UTF-8.
    """
    options = TFRecordOptions(paths=(input_dir,), binary_features=tuple(binary_features))
    df = read(_session(sc), options, None, doubles=True)
    loadedDF[df] = input_dir
    return df


def isLoadedDF(df: DataFrame) -> bool:
    """Whether `loadTFRecords` has given this DataFrame."""
    return df in loadedDF


def toTFExample(dtypes: Sequence[tuple[str, str]]) -> Callable[[Iterable[Any]], list[Any]]:
    """A function for `RDD.mapPartitions`: rows into ``(bytearray of an Example, None)``.

    Args:
        dtypes: `DataFrame.dtypes`.

    Raises:
        TFRecordError: a type cannot be written.
    """
    schema = pa.schema([(name, _arrow(name, dtype)) for name, dtype in dtypes])
    wanted = columns(schema, RecordType.EXAMPLE)

    def to_examples(rows: Iterable[Any]) -> list[Any]:
        done: list[Any] = []
        rest = iter(rows)
        while some := list(itertools.islice(rest, _ROWS)):
            arrays = [pa.array([row[field.name] for row in some], field.type) for field in schema]
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
            stream = io.BytesIO(b"".join(encode(batch, wanted, RecordType.EXAMPLE)))
            for block in blocks(stream, verify=False):
                done += [(bytearray(payload), None) for payload in block.payloads()]
        return done

    return to_examples


def fromTFExample(iter: Iterable[Any], binary_features: Sequence[str] = []) -> list[Row]:
    """For `RDD.mapPartitions`: ``(bytes of an Example, anything)`` into rows, each by itself."""
    from pyspark.sql import Row

    rows: list[Row] = []
    for record in iter:
        example = protos.message("Example").FromString(bytes(record[0]))
        features = sorted(example.features.feature.items())
        rows.append(Row(**{name: _value(name, each, binary_features) for name, each in features}))
    return rows


def infer_schema(example: Any, binary_features: Sequence[str] = []) -> StructType:
    """The schema of one `tf.train.Example` (TensorFlow's own, or its bytes)."""
    from pyspark.sql import types as T

    if isinstance(example, bytes | bytearray):
        example = protos.message("Example").FromString(bytes(example))
    fields: list[T.StructField] = []
    for name, feature in sorted(example.features.feature.items()):
        kind: T.DataType
        if feature.int64_list.value:
            values, kind = feature.int64_list.value, T.LongType()
        elif feature.float_list.value:
            values, kind = feature.float_list.value, T.DoubleType()
        else:
            values = feature.bytes_list.value
            kind = T.BinaryType() if name in binary_features else T.StringType()
        fields.append(T.StructField(name, T.ArrayType(kind) if len(values) > 1 else kind, True))
    return T.StructType(fields)


def _session(sc: Any) -> Any:
    if hasattr(sc, "createDataFrame"):
        return sc
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or SparkSession(sc)


def _arrow(name: str, dtype: str) -> pa.DataType:
    if dtype.startswith("array<") and dtype.endswith(">"):
        return pa.list_(_arrow(name, dtype[6:-1]))
    if dtype.startswith("decimal("):
        precision, scale = dtype[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    if dtype not in _ARROW:
        raise TFRecordError(f"column {name!r} has type {dtype}, which no TFRecord can hold")
    return _ARROW[dtype]


def _value(name: str, feature: Any, binary_features: Sequence[str]) -> Any:
    values: list[Any] = list(feature.int64_list.value) or list(feature.float_list.value)
    if not values:
        convert: Any = bytearray if name in binary_features else bytes.decode
        values = [convert(value) for value in feature.bytes_list.value]
    if not values:
        return None
    return values if len(values) > 1 else values[0]
