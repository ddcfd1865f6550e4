"""`tf.train.Example` and `SequenceExample` without TensorFlow, for what the fast ways leave over.

The descriptors are made at run time in a pool of their own: any protobuf runtime reads them, and
TensorFlow's own of the same names are left alone.
"""

from __future__ import annotations

import functools
from typing import Any

_TYPES = {"float": 2, "int64": 3, "bytes": 12, "string": 9, "message": 11}


@functools.cache
def message(name: str) -> Any:
    """The class of ``Example``, ``SequenceExample``, ``Features`` or ``Feature``."""
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_file().SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.{name}"))


def rewritten(name: str, record: bytes) -> bytes:
    """The same message in the form that `wire` reads.

    Raises:
        ValueError: it is no such message.
    """
    from google.protobuf.message import DecodeError

    try:
        parsed = message(name).FromString(record)
    except (DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    parsed.DiscardUnknownFields()
    return parsed.SerializeToString(deterministic=True)


def _file() -> Any:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(
        name="howdah/example.proto", package="tensorflow", syntax="proto3"
    )
    for kind in ("Bytes", "Float", "Int64"):
        _field(file.message_type.add(name=f"{kind}List"), "value", 1, kind.lower(), repeated=True)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, kind in enumerate(("Bytes", "Float", "Int64"), 1):
        field = _field(feature, f"{kind.lower()}_list", number, f"{kind}List")
        field.oneof_index = 0
    _map(file.message_type.add(name="Features"), "feature", "Feature")
    lists = file.message_type.add(name="FeatureList")
    _field(lists, "feature", 1, "Feature", repeated=True)
    _map(file.message_type.add(name="FeatureLists"), "feature_list", "FeatureList")
    _field(file.message_type.add(name="Example"), "features", 1, "Features")
    sequence = file.message_type.add(name="SequenceExample")
    _field(sequence, "context", 1, "Features")
    _field(sequence, "feature_lists", 2, "FeatureLists")
    return file


def _field(owner: Any, name: str, number: int, kind: str, *, repeated: bool = False) -> Any:
    field = owner.field.add(name=name, number=number, label=3 if repeated else 1)
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type = _TYPES["message"]
        field.type_name = f".tensorflow.{kind}"
    return field


def _map(owner: Any, name: str, kind: str) -> None:
    entry = owner.nested_type.add(name="".join(x.title() for x in name.split("_")) + "Entry")
    entry.options.map_entry = True
    _field(entry, "key", 1, "string")
    _field(entry, "value", 2, kind)
    _field(owner, name, 1, f"{owner.name}.{entry.name}", repeated=True)
