"""What can be wrong with TFRecord files, and with rows that should become such."""

from __future__ import annotations

import functools
from typing import Self


class TFRecordError(ValueError):
    """Data, schema or options do not fit together; the text says which and what to do."""


class RecordError(TFRecordError):
    """One record of a file is not what the schema says. The text names the file and the byte."""

    def __init__(self, problem: str, *, offset: int, file: str = "") -> None:
        where = f"{file}, byte {offset}" if file else f"byte {offset}"
        super().__init__(f"{where}: {problem}")
        self.problem = problem
        self.offset = offset
        """Of the record's begin, in the file or, if it is compressed, in what it unpacks to."""
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        again = functools.partial(type(self), self.problem, offset=self.offset, file=self.file)
        return again, ()

    def of_file(self, file: str) -> Self:
        """The same with a file's name."""
        return type(self)(self.problem, offset=self.offset, file=file)


class CorruptRecord(RecordError):
    """A file is damaged or is no TFRecord file."""
