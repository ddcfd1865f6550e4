"""TFRecord files and DataFrames, without TensorFlow.

`register` makes ``spark.read.format("tfrecord")`` and ``df.write.format("tfrecord")`` work on Spark
4; `read_tfrecords` and `write_tfrecords` do the same by functions, on Spark 3.5 too. `dfutil` has
TensorFlowOnSpark's functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from howdah.spark.tfrecord.codec.columns import RecordType as RecordType
    from howdah.spark.tfrecord.errors import CorruptRecord as CorruptRecord
    from howdah.spark.tfrecord.errors import RecordError as RecordError
    from howdah.spark.tfrecord.errors import TFRecordError as TFRecordError
    from howdah.spark.tfrecord.functions import read_tfrecords as read_tfrecords
    from howdah.spark.tfrecord.functions import register as register
    from howdah.spark.tfrecord.functions import write_tfrecords as write_tfrecords

_FROM = {
    "register": "functions",
    "read_tfrecords": "functions",
    "write_tfrecords": "functions",
    "RecordType": "codec.columns",
    "TFRecordError": "errors",
    "RecordError": "errors",
    "CorruptRecord": "errors",
}

__all__ = list(_FROM)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_FROM[name]}"), name)
