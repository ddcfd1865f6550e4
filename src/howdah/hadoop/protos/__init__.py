"""Hadoop's messages, from descriptors loaded at run time into a pool of their own.

The `.proto` texts beside this file hold the messages that are used here, with the names and
numbers of Hadoop's public interface; `tools/hadoop_protos.py` makes ``descriptors.bin`` and the
type stubs of them. Nothing is generated as Python code, so that any protobuf runtime from 4.25 on
works, whichever a user's environment has; the own pool keeps clear of other libraries that
describe the same messages.

The modules `common`, `yarn` and `hdfs` have each package's messages and enums as attributes::

    from howdah.hadoop.protos import yarn

    yarn.ResourceProto(memory=1024, virtual_cores=1)
    yarn.YarnApplicationStateProto.Name(report.yarn_application_state)
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

P = ParamSpec("P")
R = TypeVar("R")

_building = threading.RLock()
_classes: dict[str, type[Message]] = {}


def _once(build: Callable[P, R]) -> Callable[P, R]:
    """`functools.cache`, which alone does not keep two threads from building at the same time: the
    classes of two pools do not go together."""
    cached = functools.cache(build)

    @functools.wraps(build)
    def get(*args: P.args, **kwargs: P.kwargs) -> R:
        with _building:
            return cached(*args, **kwargs)

    return get


@_once
def pool() -> DescriptorPool:
    """The pool that holds all descriptors."""
    native = _native()
    if native is not None:
        own = native.DescriptorPool()
    else:
        from google.protobuf import descriptor_pool

        own = descriptor_pool.DescriptorPool()
    # Not importlib.resources: importing that costs more than all of this module.
    for file in _files(Path(__file__).with_name("descriptors.bin").read_bytes()):
        own.AddSerializedFile(file)
    return own


@_once
def message(name: str) -> type[Message]:
    """The class of a message by its full name, such as ``hadoop.yarn.ApplicationReportProto``.

    Raises:
        KeyError: no message of that name is described here.
    """
    native, descriptor = _native(), pool().FindMessageTypeByName(name)
    if native is not None:
        return _of_native(native, descriptor)
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(descriptor)


def _of_native(native: Any, descriptor: Any) -> type[Message]:
    """As `google.protobuf.message_factory` makes it: the class, and those of its fields."""
    from google.protobuf.message import Message

    if descriptor.full_name not in _classes:
        names = {"DESCRIPTOR": descriptor, "__module__": None}
        _classes[descriptor.full_name] = native.MessageMeta(descriptor.name, (Message,), names)
        for field in descriptor.fields:
            if field.message_type:
                _of_native(native, field.message_type)
    return _classes[descriptor.full_name]


def _native() -> Any:
    """protobuf's implementation in C, None if this one has none.

    `google.protobuf.descriptor_pool` and ``message_factory`` hand out the same classes, and import the
    implementation in Python to do so: 40 modules, a tenth of what a master imports before it asks for containers.
    """
    from google.protobuf.internal import api_implementation

    if api_implementation.Type() != "upb":
        return None
    from google._upb import _message  # pyright: ignore[reportMissingTypeStubs]

    return _message


def _files(data: bytes) -> Iterator[bytes]:
    """The files of a serialized ``FileDescriptorSet``: field 1, each after its length."""
    at = 0
    while at < len(data):
        at += 1  # the tag
        size = shift = 0
        more = True
        while more:
            size |= (data[at] & 0x7F) << shift
            more = data[at] > 0x7F
            at, shift = at + 1, shift + 7
        yield data[at : at + size]
        at += size


@_once
def enum(name: str) -> Any:
    """An enum by its full name, with its values as attributes and ``Name``, ``Value``.

    Raises:
        KeyError: no enum of that name is described here.
    """
    from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

    return EnumTypeWrapper(pool().FindEnumTypeByName(name))


def attribute(package: str, name: str) -> Any:
    """What the module of a package has under a name; `AttributeError` if nothing."""
    if name.startswith("__"):
        raise AttributeError(name)
    full = f"{package}.{name}"
    for find in (message, enum):
        try:
            return find(full)
        except KeyError:
            continue
    raise AttributeError(f"{full} is not among the messages described here")
