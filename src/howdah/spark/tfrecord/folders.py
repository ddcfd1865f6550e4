"""Folders whose names are values: ``year=2026/country=DE``."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, unquote

import msgspec
import pyarrow as pa

from howdah.spark.tfrecord.errors import TFRecordError

NULL = "__HIVE_DEFAULT_PARTITION__"
_SAFE = " !\"$&'()+,;<>@[]^`{|}~"  # what Spark leaves as it is, besides letters and digits


class RecordFile(msgspec.Struct, frozen=True):
    """A file and what its folders say."""

    path: str
    size: int
    values: tuple[tuple[str, str | None], ...] = ()


def values_of(root: str, path: str) -> tuple[tuple[str, str | None], ...]:
    """Names and values of the folders between a root and a file, None for null."""
    inside = path.removeprefix(root).strip("/").split("/")[:-1]
    found: list[tuple[str, str | None]] = []
    for part in inside:
        name, sign, text = part.partition("=")
        if sign and name:
            found.append((unquote(name), None if text == NULL else unquote(text)))
    return tuple(found)


def name_of(name: str, value: Any) -> str:
    """The folder of a value.

    Raises:
        TFRecordError: a value of that type is no folder's name.
    """
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        text = NULL
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, (str, int, float, datetime.date)):
        text = quote(str(value), safe=_SAFE)
    else:
        raise TFRecordError(
            f"column {name!r} cannot be a folder's name: it has a {type(value).__name__};"
            " partition by strings, numbers, booleans or dates"
        )
    return f"{quote(name, safe=_SAFE)}={text}"


def names(all_values: Sequence[tuple[tuple[str, str | None], ...]]) -> tuple[str, ...]:
    """The partition columns of files.

    Raises:
        TFRecordError: not all files have the same.
    """
    kinds = {tuple(name for name, _ in values) for values in all_values}
    if len(kinds) > 1:
        told = ", ".join(sorted("/".join(kind) or "none" for kind in kinds))
        raise TFRecordError(
            f"the folders do not agree in their partition columns ({told}): read them one by one"
        )
    return kinds.pop() if kinds else ()


_TYPES: tuple[tuple[str, pa.DataType, Callable[[str], Any]], ...] = (
    ("int", pa.int32(), int),
    ("bigint", pa.int64(), int),
    ("double", pa.float64(), float),
    ("date", pa.date32(), datetime.date.fromisoformat),
)


def type_of(texts: Sequence[str | None]) -> str:
    """Spark's name for the narrowest type of all values: int, bigint, double, date or string."""
    known = [text for text in texts if text is not None]
    for name, kind, read in _TYPES:
        try:
            # Python takes 1_2 for a number, Arrow 0x1F: what only one of them can read is a name.
            for text in known:
                read(text)
            pa.array(known, pa.string()).cast(kind)
        except ValueError:  # Arrow's ArrowInvalid is one
            continue
        return name if known else "string"
    return "string"


def column(text: str | None, kind: pa.DataType, rows: int, name: str) -> pa.Array:
    """A folder's value as a column.

    Raises:
        TFRecordError: it is no value of that type.
    """
    if text is None:
        return pa.nulls(rows, kind)
    try:
        value = pa.scalar(text).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TFRecordError(f"folder {name}={text} is no {kind}: {error}") from None
    return pa.array([value.as_py()], kind).take(pa.array([0] * rows, pa.int32()))
