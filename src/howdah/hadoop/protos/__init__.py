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
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

P = ParamSpec("P")
R = TypeVar("R")

_building = threading.RLock()


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
    from google.protobuf import descriptor_pb2, descriptor_pool

    # Not importlib.resources: importing that costs more than all of this module.
    data = Path(__file__).with_name("descriptors.bin").read_bytes()
    own = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        own.AddSerializedFile(file.SerializeToString())
    return own


@_once
def message(name: str) -> type[Message]:
    """The class of a message by its full name, such as ``hadoop.yarn.ApplicationReportProto``.

    Raises:
        KeyError: no message of that name is described here.
    """
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(pool().FindMessageTypeByName(name))


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
