"""A schema from a sample of records of a sample of files, and between Spark's types and Arrow's."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from howdah.spark.tfrecord import folders
from howdah.spark.tfrecord.codec.columns import BYTES_COLUMN, FeatureKind, RecordType
from howdah.spark.tfrecord.codec.decode import in_usual_form, read_lists, read_nested
from howdah.spark.tfrecord.codec.framing import RecordBlock
from howdah.spark.tfrecord.codec.parsing import Parsed
from howdah.spark.tfrecord.codec.values import FoundLists
from howdah.spark.tfrecord.errors import TFRecordError
from howdah.spark.tfrecord.folders import RecordFile

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class _Seen:
    """What is known of one feature."""

    def __init__(self, nested: bool) -> None:
        self.nested = nested
        self.most = 0
        self.kinds: set[FeatureKind] = set()
        self.text = True


class Inferred(msgspec.Struct, frozen=True):
    """A feature's type."""

    name: str
    kind: FeatureKind
    depth: int
    text: bool
    """Bytes that are UTF-8."""


def infer(
    blocks: Iterable[RecordBlock], record_type: RecordType, binary_features: Iterable[str] = ()
) -> list[Inferred]:
    """The features of those records, by name.

    A feature is a scalar if no record has more than one value of it, else an array; numbers that
    are whole in some records only are floats; bytes are strings if all are UTF-8 and no hint says
    binary. A feature that is empty in all records is taken for a string.

    Raises:
        TFRecordError: a feature has bytes in some records and numbers in others.
        CorruptRecord: a record is no message of that type.
    """
    if record_type is RecordType.BYTES:
        return [Inferred(BYTES_COLUMN, FeatureKind.BYTES, 0, text=False)]
    binary = set(binary_features)
    seen: dict[str, _Seen] = {}
    for block in blocks:
        _look(block, record_type, binary, seen)
    return [_decided(name, each, name in binary) for name, each in sorted(seen.items())]


def _look(
    block: RecordBlock, record_type: RecordType, binary: set[str], seen: dict[str, _Seen]
) -> None:
    for name, nested, lists in in_usual_form(block, record_type, None, _lists):
        each = seen.setdefault(name, _Seen(nested))
        if each.nested is not nested:
            raise TFRecordError(
                f"{name!r} is both a context feature and a feature list: read one of them by a"
                " schema of its own"
            )
        for found in lists:
            _count(each, found, name in binary)


def _lists(
    parsed: Parsed, block: RecordBlock, odd: Any
) -> list[tuple[str, bool, list[FoundLists]]]:
    """By feature: its name, whether it is a feature list, and what is in it."""
    buffer = parsed.buffer
    for key, each in (*parsed.context.items(), *parsed.lists.items()):
        if not _is_text(key):
            odd[each.owners] = True  # protobuf, which rewrites these records, refuses them
    if odd.any():
        return []
    flat = [
        (key.decode(), False, read_lists(buffer, each.owners, each.starts, each.ends, odd))
        for key, each in parsed.context.items()
    ]
    nested = [
        (key.decode(), True, read_nested(buffer, each, odd)[1])
        for key, each in parsed.lists.items()
    ]
    return flat + nested


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def _count(seen: _Seen, found: FoundLists, binary: bool) -> None:
    if not len(found.values):
        return
    seen.kinds.add(found.kind)
    seen.most = max(seen.most, int(found.counts.max()))
    if found.kind is FeatureKind.BYTES and not binary and seen.text:
        try:
            found.values.cast(pa.string())
        except pa.ArrowInvalid:
            seen.text = False


def _decided(name: str, seen: _Seen, binary: bool) -> Inferred:
    kinds = set(seen.kinds)
    if kinds == {FeatureKind.INT, FeatureKind.FLOAT}:
        kinds = {FeatureKind.FLOAT}
    if len(kinds) > 1:
        told = " and ".join(sorted(kind.list_name for kind in kinds))
        raise TFRecordError(
            f"feature {name!r} is {told} in different records: no column's type has room for both."
            " Leave it out by giving a schema"
        )
    depth = 2 if seen.nested else int(seen.most > 1)
    kind = kinds.pop() if kinds else FeatureKind.BYTES
    return Inferred(name, kind, depth, text=seen.text and not binary)


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
