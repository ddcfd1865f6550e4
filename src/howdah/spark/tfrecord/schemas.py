"""Between Spark's types and Arrow's."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from howdah.spark.tfrecord import folders
from howdah.spark.tfrecord.codec.columns import FeatureKind
from howdah.spark.tfrecord.infer import Inferred
from howdah.spark.tfrecord.reading import RecordFile

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of rows of a schema.

    Raises:
        TFRecordError: Arrow has no such type.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


def spark_schema(
    features: Sequence[Inferred], found: Sequence[RecordFile], *, doubles: bool = False
) -> StructType:
    """Features by name, then the folders' columns.

    Args:
        doubles: floats become double columns.
    """
    from pyspark.sql import types as T

    of_folders = folders.names([piece.values for piece in found])
    fields: list[Any] = []
    for each in features:
        if each.name in of_folders:
            continue
        kind: T.DataType
        if each.kind is FeatureKind.INT:
            kind = T.LongType()
        elif each.kind is FeatureKind.FLOAT:
            kind = T.DoubleType() if doubles else T.FloatType()
        else:
            kind = T.StringType() if each.text else T.BinaryType()
        for _ in range(each.depth):
            kind = T.ArrayType(kind)
        fields.append(T.StructField(each.name, kind))
    types = {
        "int": T.IntegerType(),
        "bigint": T.LongType(),
        "double": T.DoubleType(),
        "date": T.DateType(),
        "string": T.StringType(),
    }
    for at, name in enumerate(of_folders):
        kind = types[folders.type_of([piece.values[at][1] for piece in found])]
        fields.append(T.StructField(name, kind))
    return T.StructType(fields)
