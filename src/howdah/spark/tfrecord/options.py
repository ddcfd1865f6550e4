"""Options of reading and writing, the same for the data source and the functions."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from howdah.spark.tfrecord.codec import compression as packing
from howdah.spark.tfrecord.codec.columns import RecordType
from howdah.spark.tfrecord.codec.compression import Compression
from howdah.spark.tfrecord.errors import TFRecordError

SAMPLE_FILES = 16
SAMPLE_RECORDS = 1000
PARTITION_BYTES = 128 * 1024 * 1024


class TFRecordOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a user may say."""

    paths: tuple[str, ...]
    record_type: RecordType = RecordType.EXAMPLE
    compression: Compression | None = None
    """Reading: None lets each file's first bytes tell. Writing: None is none."""
    binary_features: tuple[str, ...] = ()
    """Features that are binary although all of the sample is UTF-8."""
    sample_files: int = SAMPLE_FILES
    """A schema is inferred from so many files, spread evenly over all."""
    sample_records: int = SAMPLE_RECORDS
    """Of each of those files."""
    partition_by: tuple[str, ...] = ()
    """Writing: columns that become folders."""
    verify: bool = True
    """Reading: check the checksums."""
    partition_bytes: int = PARTITION_BYTES
    """Reading: small files are read together by one task up to so many bytes."""


_SPARK_NAMES = {
    "path": "", "paths": "",
    "recordtype": "recordType",
    "compression": "compression", "codec": "compression",
    "binaryfeatures": "binaryFeatures",
    "samplefiles": "sampleFiles", "samplerecords": "sampleRecords",
    "partitionby": "partitionBy",
    "verify": "verify",
    "maxpartitionbytes": "maxPartitionBytes",
}  # fmt: skip


def options(given: Mapping[str, str]) -> TFRecordOptions:
    """From the options of a data source, whose names are in any case.

    Raises:
        TFRecordError: an option is unknown or has no sense.
    """
    told = {name.lower(): str(value) for name, value in given.items()}
    if unknown := sorted(set(told) - set(_SPARK_NAMES)):
        names = ", ".join(sorted(set(_SPARK_NAMES.values()) - {""}))
        raise TFRecordError(f"unknown option {unknown[0]!r} of tfrecord; there are: {names}")
    paths = json.loads(told["paths"]) if "paths" in told else []
    if "path" in told:
        paths.append(told["path"])
    if not paths:
        raise TFRecordError("no path: give one to load() or save()")
    codec = told.get("compression", told.get("codec"))
    return TFRecordOptions(
        paths=tuple(paths),
        record_type=RecordType.named(told.get("recordtype", "Example")),
        compression=None if codec in (None, "", "auto") else packing.named(codec),
        binary_features=_names(told.get("binaryfeatures", "")),
        sample_files=_number(told, "samplefiles", SAMPLE_FILES),
        sample_records=_number(told, "samplerecords", SAMPLE_RECORDS),
        partition_by=_names(told.get("partitionby", "")),
        verify=_truth(told, "verify"),
        partition_bytes=_number(told, "maxpartitionbytes", PARTITION_BYTES),
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _number(told: Mapping[str, str], name: str, default: int) -> int:
    text = told.get(name, str(default))
    if not text.isdigit() or int(text) < 1:
        raise TFRecordError(
            f"option {_SPARK_NAMES[name]}={text!r} must be a whole number from 1 on"
        )
    return int(text)


def _truth(told: Mapping[str, str], name: str) -> bool:
    text = told.get(name, "true").lower()
    if text not in ("true", "false"):
        raise TFRecordError(f"option {_SPARK_NAMES[name]}={text!r} must be true or false")
    return text == "true"
