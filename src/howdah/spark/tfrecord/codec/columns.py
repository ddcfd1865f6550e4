"""Which kind of feature a column is."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa

from howdah.spark.feed.arrow.arrays import is_binary, unfolded
from howdah.spark.tfrecord.errors import TFRecordError


class RecordType(enum.Enum):
    """What the records of a file are."""

    EXAMPLE = "Example"
    SEQUENCE_EXAMPLE = "SequenceExample"
    BYTES = "ByteArray"
    """Anything: one binary column has each record as it is."""

    @classmethod
    def named(cls, name: str) -> RecordType:
        """By its name in any case.

        Raises:
            TFRecordError: there is none of that name.
        """
        for each in cls:
            if each.value.lower() == name.strip().lower():
                return each
        names = ", ".join(each.value for each in cls)
        raise TFRecordError(f"unknown recordType {name!r}: it is one of {names}")


class FeatureKind(enum.Enum):
    """Of a feature's list. The value is the list's tag inside `tf.train.Feature`."""

    BYTES = 0x0A
    FLOAT = 0x12
    INT = 0x1A

    @property
    def list_name(self) -> str:
        """Of the field of `tf.train.Feature`."""
        return {"BYTES": "bytes_list", "FLOAT": "float_list", "INT": "int64_list"}[self.name]


class FeatureColumn(msgspec.Struct, frozen=True):
    """A column and the feature it is."""

    name: str
    kind: FeatureKind
    depth: int
    """0: one value or none; 1: a list; 2: a feature list of a SequenceExample."""
    type: pa.DataType
    """Of the whole column."""

    @property
    def key(self) -> bytes:
        """The feature's name as it is written."""
        return self.name.encode()

    @property
    def element(self) -> pa.DataType:
        """Type of one value."""
        return unfolded(self.type)[1]


BYTES_COLUMN = "byteArray"
"""The only column of ``ByteArray`` records, if no schema names it otherwise."""


def columns(fields: Iterable[pa.Field], record_type: RecordType) -> tuple[FeatureColumn, ...]:
    """The features of an Arrow schema.

    Raises:
        TFRecordError: a column's type is none that TFRecord files can have.
    """
    found: list[FeatureColumn] = []
    for field in fields:
        depth, inner = unfolded(field.type)
        kind = _kind(inner)
        if kind is None:
            raise TFRecordError(_no_feature(field.name, field.type, inner))
        if depth > 2 or (depth == 2 and record_type is not RecordType.SEQUENCE_EXAMPLE):
            raise TFRecordError(
                f"column {field.name!r} ({field.type}) has arrays inside arrays: a tf.train.Example"
                " has none, a SequenceExample (recordType=SequenceExample) one array deep;"
                " flatten() the column and keep its shape in another one"
            )
        found.append(FeatureColumn(field.name, kind, depth, field.type))
    if record_type is RecordType.BYTES and (
        len(found) != 1 or found[0].depth or not is_binary(found[0].type)
    ):
        raise TFRecordError(
            "recordType=ByteArray has one column, of type binary; this schema has "
            + ", ".join(f"{each.name} {each.type}" for each in found)
        )
    return tuple(found)


def _kind(inner: pa.DataType) -> FeatureKind | None:
    types: Any = pa.types
    if types.is_floating(inner) or types.is_decimal(inner):
        return FeatureKind.FLOAT
    if types.is_integer(inner) or types.is_boolean(inner):
        return FeatureKind.INT
    if types.is_date32(inner) or types.is_timestamp(inner):
        return FeatureKind.INT
    if types.is_string(inner) or types.is_large_string(inner) or is_binary(inner):
        return FeatureKind.BYTES
    if types.is_null(inner):
        return FeatureKind.BYTES  # never a value
    return None


def _no_feature(name: str, whole: pa.DataType, inner: pa.DataType) -> str:
    if pa.types.is_struct(inner):
        advice = "select its fields as columns (an ML vector: pyspark.ml.functions.vector_to_array)"
    elif pa.types.is_map(inner):
        advice = "make it two arrays with map_keys and map_values"
    else:
        advice = "cast it to a number, string or binary"
    return f"column {name!r} has type {whole}, which no feature of a TFRecord can hold: {advice}"
