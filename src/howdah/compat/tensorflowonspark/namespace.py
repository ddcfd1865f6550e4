"""TensorFlowOnSpark's ``Namespace``, and batches of rows as lists of columns."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any


class Namespace:
    """Arguments as attributes, made of a dictionary, a namespace, or a list of words (``argv``).

    Iterating gives the words, or the names; ``"batch_size" in arguments`` therefore works.
    """

    argv: list[str] | None = None

    def __init__(self, d: Mapping[str, Any] | list[str] | argparse.Namespace | Namespace) -> None:
        if isinstance(d, list):
            self.argv = d
        elif isinstance(d, Mapping):
            self.__dict__.update(d)
        elif isinstance(d, (argparse.Namespace, Namespace)):
            self.__dict__.update(vars(d))
        else:
            raise TypeError(
                f"Unsupported Namespace args: {d!r}; give a dictionary, a list, a namespace"
            )

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __iter__(self) -> Iterator[str]:
        return iter(self.argv if self.argv else list(self.__dict__))

    def __repr__(self) -> str:
        if self.argv:
            return repr(self.argv)
        items = (f"{name}={value!r}" for name, value in sorted(self.__dict__.items()))
        return f"{type(self).__name__}({', '.join(items)})"

    def __eq__(self, other: object) -> bool:
        if self.argv:
            return self.argv == (other.argv if isinstance(other, Namespace) else other)
        return isinstance(other, (Namespace, argparse.Namespace)) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def yield_batch(
    iterable: Iterable[Any], batch_size: int, num_tensors: int = 1
) -> Iterator[list[list[Any]]]:
    """Rows as batches: a list for each of the first ``num_tensors`` fields.

    Ends with the rows, or with a row that is None. The last batch may be shorter. Binary values are
    ``bytes`` (TensorFlowOnSpark makes them the text ``bytearray(b'…')``).
    """
    tensors: list[list[Any]] = [[] for _ in range(num_tensors)]
    for item in iterable:
        if item is None:
            break
        for place, column in enumerate(tensors):
            value = item[place]
            column.append(bytes(value) if isinstance(value, bytearray) else value)
        if len(tensors[0]) >= batch_size:
            yield tensors
            tensors = [[] for _ in range(num_tensors)]
    if tensors[0]:
        yield tensors
