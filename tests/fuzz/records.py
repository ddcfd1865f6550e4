"""TFRecord files: their frames, their compression, and the messages inside of them."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from howdah.spark.tfrecord.codec import protos
from howdah.spark.tfrecord.codec.columns import RecordType, columns
from howdah.spark.tfrecord.codec.compression import Unpacking, told_by
from howdah.spark.tfrecord.codec.decode import decode
from howdah.spark.tfrecord.codec.framing import blocks, frame
from howdah.spark.tfrecord.errors import TFRecordError
from howdah.spark.tfrecord.schemas import infer
from tests.fuzz.target import Target

_PACKED = frame([b"one", b"", b"x" * 50])
_FLAT = pa.schema(
    [("a", pa.int64()), ("b", pa.list_(pa.float32())), ("c", pa.string()), ("d", pa.binary())]
)
_NESTED = pa.schema([*_FLAT, ("e", pa.list_(pa.list_(pa.int64())))])


def _frames(data: bytes) -> None:
    for block in blocks(io.BytesIO(data)):
        block.payloads()


def _packed(data: bytes) -> None:
    for block in blocks(Unpacking(io.BytesIO(data), told_by(data))):
        block.payloads()


def _features(message: Any) -> None:
    message.feature["a"].int64_list.value.append(-3)
    message.feature["b"].float_list.value.extend([1.5, 2.5, 3.5])
    message.feature["c"].bytes_list.value.append("é".encode())
    message.feature["d"].bytes_list.value.append(b"\xff")


def _example() -> bytes:
    made = protos.message("Example")()
    _features(made.features)
    return made.SerializeToString(deterministic=True)


def _sequence() -> bytes:
    made = protos.message("SequenceExample")()
    _features(made.context)
    for values in ([1, 2], [], [1 << 40]):
        made.feature_lists.feature_list["e"].feature.add().int64_list.value.extend(values)
    return made.SerializeToString(deterministic=True)


def _message(kind: RecordType, schema: pa.Schema, good: bytes) -> Callable[[bytes], Any]:
    """A record alone, or among others: what is alike is found in another way."""
    wanted = columns(schema, kind)

    def look(data: bytes) -> None:
        payloads = [good, data, good] if len(data) & 1 else [data]
        (block,) = blocks(io.BytesIO(frame(payloads)))
        _whole(decode(block, wanted, schema, kind))

    return look


def _sample(kind: RecordType, good: bytes) -> Callable[[bytes], Any]:
    return lambda data: infer(blocks(io.BytesIO(frame([good, data]))), kind)


def _whole(batch: pa.RecordBatch) -> None:
    """Offsets and lengths of all columns lie inside of their buffers."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise AssertionError(f"a batch that is none: {error}") from None


_FAST, _ALL = _example(), _sequence()
RECORDS: dict[str, Target] = {
    "tfrecord": Target([_PACKED], _frames, (TFRecordError,)),
    "tfrecord-packed": Target(
        [gzip.compress(_PACKED, mtime=0), zlib.compress(_PACKED)], _packed, (TFRecordError,)
    ),
    "tfrecord-example": Target(
        [_FAST],
        _message(RecordType.EXAMPLE, _FLAT, _FAST),
        (TFRecordError,),
        (b"\x0a", b"\x12", b"\x1a"),
        0.4,
    ),
    "tfrecord-sequence": Target(
        [_ALL],
        _message(RecordType.SEQUENCE_EXAMPLE, _NESTED, _ALL),
        (TFRecordError,),
        (b"\x0a", b"\x12", b"\x1a"),
        0.4,
    ),
    "tfrecord-schema": Target(
        [_ALL],
        _sample(RecordType.SEQUENCE_EXAMPLE, _ALL),
        (TFRecordError,),
        (b"\x0a", b"\x12", b"\x1a"),
        0.4,
    ),
}
