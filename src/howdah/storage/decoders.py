"""Decoders of JSON documents, made one at a time.

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


def decoder(type: type[T]) -> Callable[[bytes], T]:
    """What decodes a document of that type."""
    return _made(type)


@cache
def _made(type: Any) -> Any:
    with _making:
        return msgspec.json.Decoder(type).decode
