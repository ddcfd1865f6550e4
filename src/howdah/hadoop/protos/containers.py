"""Types for the stubs of the messages: what protobuf's own containers offer, no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar, overload

from google.protobuf.message import Message

S = TypeVar("S")
M = TypeVar("M", bound=Message)


class Scalars(Protocol[S]):
    """A repeated field of numbers, texts or bytes."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[S]: ...
    @overload
    def __getitem__(self, index: int) -> S: ...
    @overload
    def __getitem__(self, index: slice) -> list[S]: ...
    def append(self, value: S) -> None: ...
    def extend(self, values: Iterable[S]) -> None: ...


class Composites(Protocol[M]):
    """A repeated field of messages."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[M]: ...
    @overload
    def __getitem__(self, index: int) -> M: ...
    @overload
    def __getitem__(self, index: slice) -> list[M]: ...
    def add(self, **fields: Any) -> M: ...
    def append(self, value: M) -> None: ...
    def extend(self, values: Iterable[M]) -> None: ...


class EnumType:
    """An enum: its values are plain numbers, found as attributes."""

    def Name(self, number: int) -> str:
        """The name of a number; ValueError if there is none."""
        raise NotImplementedError

    def Value(self, name: str) -> int:
        """The number of a name; ValueError if there is none."""
        raise NotImplementedError

    def keys(self) -> list[str]:
        """All names, in order of declaration."""
        raise NotImplementedError

    def items(self) -> list[tuple[str, int]]:
        """All names with their numbers."""
        raise NotImplementedError
