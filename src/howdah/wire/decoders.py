"""Decoders of messages and documents, made one at a time and once.

msgspec up to 0.22 ends the process (SIGSEGV) where two threads are the first to decode the same
struct: one uses what the other has made half of. A decoder that is made can be used by any number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_making = threading.Lock()


def document_decoder(type: type[T]) -> Callable[[bytes], T]:
    """What decodes a JSON document of that type. Whatever is wrong with it is a `msgspec.DecodeError`."""
    return _of_documents(type)


@cache
def _of_documents(type: Any) -> Any:
    with _making:
        decode = msgspec.json.Decoder(type).decode

    def decoded(document: bytes) -> Any:
        try:
            return decode(document)
        except RecursionError:
            raise msgspec.DecodeError("it is nested too deeply") from None

    return decoded


@cache
def message_decoder(types: Any) -> msgspec.msgpack.Decoder[Any]:
    """The decoder of a message type or union: made once, for that takes milliseconds.

    A parent that has asked for it gives it to every process it forks.
    """
    with _making:
        return msgspec.msgpack.Decoder(types)
