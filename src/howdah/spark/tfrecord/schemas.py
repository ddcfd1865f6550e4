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
    from pyspark.sql.types import DataType, StructType


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
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        DateType,
        DoubleType,
        FloatType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
    )

    of_folders = folders.names([piece.values for piece in found])
    fields: list[Any] = []
    for each in features:
        if each.name in of_folders:
            continue
        kind: DataType
        if each.kind is FeatureKind.INT:
            kind = LongType()
        elif each.kind is FeatureKind.FLOAT:
            kind = DoubleType() if doubles else FloatType()
        else:
            kind = StringType() if each.text else BinaryType()
        for _ in range(each.depth):
            kind = ArrayType(kind)
        fields.append(StructField(each.name, kind))
    types = {
        "int": IntegerType(),
        "bigint": LongType(),
        "double": DoubleType(),
        "date": DateType(),
        "string": StringType(),
    }
    for at, name in enumerate(of_folders):
        kind = types[folders.type_of([piece.values[at][1] for piece in found])]
        fields.append(StructField(name, kind))
    return StructType(fields)
