"""Which files there are, what their schema is, and their rows: all but Spark itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from howdah.spark.tfrecord import filesystems, folders
from howdah.spark.tfrecord.codec.columns import RecordType, columns
from howdah.spark.tfrecord.codec.compression import Compression, Unpacking, told_by
from howdah.spark.tfrecord.codec.decode import decode
from howdah.spark.tfrecord.codec.framing import BLOCK_BYTES, RecordBlock, blocks
from howdah.spark.tfrecord.errors import RecordError, TFRecordError
from howdah.spark.tfrecord.folders import RecordFile
from howdah.spark.tfrecord.options import TFRecordOptions
from howdah.spark.tfrecord.schemas import Inferred, infer

_OPENING_BYTES = 4 * 1024 * 1024
"""What opening a file is worth when files are shared out, as in Spark."""
_TASKS_ENOUGH = 256
"""With fewer files than that each is a task of its own."""
_SAMPLE_BLOCK_BYTES = 256 * 1024


class Split(msgspec.Struct, frozen=True):
    """What one task reads."""

    pieces: tuple[RecordFile, ...]


def pieces(options: TFRecordOptions, default_fs: str = "") -> list[RecordFile]:
    """All files.

    Raises:
        FileNotFoundError: a path is not there.
        TFRecordError: folders do not agree in their partition columns.
    """
    paths = [filesystems.qualified(path, default_fs) for path in options.paths]
    found = [
        RecordFile(file.path, file.size, folders.values_of(root, file.path))
        for root, file in filesystems.find(paths)
    ]
    folders.names([piece.values for piece in found])
    return found


def check(schema: pa.Schema, found: Sequence[RecordFile], options: TFRecordOptions) -> None:
    """Refuse a schema that no record can fill, before anything runs.

    Raises:
        TFRecordError: a column's type.
    """
    of_folders = folders.names([piece.values for piece in found])
    columns([field for field in schema if field.name not in of_folders], options.record_type)


def splits(found: Sequence[RecordFile], partition_bytes: int) -> list[Split]:
    """Who reads what. A file is never divided; many small ones are read by one task."""
    found = [piece for piece in found if piece.size]
    if len(found) <= _TASKS_ENOUGH:
        return [Split((piece,)) for piece in found]
    shares: list[Split] = []
    mine: list[RecordFile] = []
    room = partition_bytes
    for piece in found:
        cost = piece.size + _OPENING_BYTES
        if mine and cost > room:
            shares.append(Split(tuple(mine)))
            mine, room = [], partition_bytes
        mine.append(piece)
        room -= cost
    return [*shares, Split(tuple(mine))]


def inferred(found: Sequence[RecordFile], options: TFRecordOptions) -> list[Inferred]:
    """The features of a sample.

    Raises:
        TFRecordError: there is nothing to look at, or features of two kinds.
        CorruptRecord: a file is damaged.
    """
    full = [piece for piece in found if piece.size]
    if not full and options.record_type is not RecordType.BYTES:
        raise TFRecordError(
            f"{', '.join(options.paths)}: no file with records, so that nothing tells the columns;"
            " give a schema"
        )
    count = min(len(full), options.sample_files)
    chosen = [full[at * len(full) // count] for at in range(count)]

    def sample() -> Iterator[RecordBlock]:
        places: dict[str, filesystems.FileSystem] = {}
        for piece in chosen:
            left = options.sample_records
            for block in _blocks(piece, places, options, _SAMPLE_BLOCK_BYTES):
                yield block.cut(0, left)
                left -= len(block)
                if left <= 0:
                    break

    return infer(sample(), options.record_type, options.binary_features)


def rows(split: Split, schema: pa.Schema, options: TFRecordOptions) -> Iterator[pa.RecordBatch]:
    """The rows of a split, in the files' order, some MiB at a time.

    Args:
        schema: features, and any of the folders' columns.

    Raises:
        CorruptRecord: a file is damaged; the text has its name and the byte.
        RecordError: a record does not fit the schema.
        TFRecordError: the schema has a type that no TFRecord has.
    """
    of_folders = {name for piece in split.pieces for name, _ in piece.values}
    fields = [field for field in schema if field.name not in of_folders]
    features = pa.schema(fields)
    wanted = columns(fields, options.record_type)
    places: dict[str, filesystems.FileSystem] = {}
    for piece in split.pieces:
        values = dict(piece.values)
        for block in _blocks(piece, places, options, BLOCK_BYTES):
            try:
                batch = decode(block, wanted, features, options.record_type)
            except RecordError as error:
                raise error.of_file(piece.path) from None
            if not of_folders:
                yield batch
                continue
            arrays = [
                folders.column(values.get(field.name), field.type, len(block), field.name)
                if field.name in of_folders
                else batch.column(field.name)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _blocks(
    piece: RecordFile,
    places: dict[str, filesystems.FileSystem],
    options: TFRecordOptions,
    block_bytes: int,
) -> Iterator[RecordBlock]:
    source: Any = filesystems.file_system(piece.path, places).read(piece.path)
    try:
        head = source.read(block_bytes)
        stream: Any = filesystems.Rewound(head, source)
        compression = told_by(head) if options.compression is None else options.compression
        if compression is not Compression.NONE:
            stream = Unpacking(stream, compression)
        yield from blocks(stream, block_bytes=block_bytes, verify=options.verify)
    except RecordError as error:
        raise error.of_file(piece.path) from None
    finally:
        source.close()
