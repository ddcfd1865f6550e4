"""Java's object serialisation, read as data: no classes are looked up, no code is run.

Only what YARN's indexed log format needs: objects with fields, the collections' own data behind
them, strings, enums, arrays. Source: the Java Object Serialization Specification, chapter 6.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

from howdah.hadoop.aggregated.source import LogFormatError, modified_utf8

_PRIMITIVES = {
    "B": ">b",
    "C": ">H",
    "D": ">d",
    "F": ">f",
    "I": ">i",
    "J": ">q",
    "S": ">h",
    "Z": ">?",
}
_MAX_DEPTH = 100
_WRITE_METHOD, _SERIALIZABLE, _BLOCK_DATA = 1, 2, 8
_END = object()


@dataclasses.dataclass
class JavaObject:
    """An object: its class's name, its fields by name, and what its class wrote by itself."""

    class_name: str
    fields: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    written: list[Any] = dataclasses.field(default_factory=list[Any])

    def items(self) -> list[tuple[Any, Any]]:
        """Keys and values, if it is one of Java's hash maps."""
        entries = [item for item in self.written if not isinstance(item, _Block)]
        return list(zip(entries[::2], entries[1::2], strict=False))

    def elements(self) -> list[Any]:
        """The elements, if it is one of Java's lists."""
        return [item for item in self.written if not isinstance(item, _Block)]


class _Block(bytes):
    """Primitive data that a class wrote by itself."""


@dataclasses.dataclass
class _Class:
    name: str
    flags: int
    fields: list[tuple[str, str]]
    parent: _Class | None


def loads(data: bytes) -> Any:
    """The first object in a serialisation stream.

    Raises:
        LogFormatError: the bytes are something else, or use what is not known here.
    """
    try:
        return _Reader(data).stream()
    except (struct.error, RecursionError, IndexError) as error:
        raise LogFormatError(f"serialised data are damaged: {error}") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._handles: list[Any] = []

    def stream(self) -> Any:
        if self._take(4) != b"\xac\xed\x00\x05":
            raise LogFormatError("data are not Java's serialisation")
        return self._content(0)

    def _take(self, count: int) -> bytes:
        if count < 0 or count > len(self._data) - self._at:
            raise LogFormatError("serialised data end too early")
        self._at += count
        return self._data[self._at - count : self._at]

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _utf(self, form: str = ">H") -> str:
        return modified_utf8(self._take(self._number(form)))

    def _content(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise LogFormatError("serialised objects nest too deep")
        match self._take(1)[0]:
            case 0x70:
                return None
            case 0x71:
                return self._reference()
            case 0x73:
                return self._object(depth)
            case 0x74:
                return self._remember(self._utf())
            case 0x7C:
                return self._remember(self._utf(">Q"))
            case 0x75:
                return self._array(depth)
            case 0x7E:
                return self._enum(depth)
            case 0x77:
                return _Block(self._take(self._number(">B")))
            case 0x7A:
                return _Block(self._take(self._number(">I")))
            case 0x78:
                return _END
            case other:
                raise LogFormatError(f"serialised data hold the unexpected mark {other:#x}")

    def _remember(self, value: Any) -> Any:
        self._handles.append(value)
        return value

    def _reference(self) -> Any:
        number = self._number(">I") - 0x7E0000
        if not 0 <= number < len(self._handles):
            raise LogFormatError("serialised data refer to what is not there")
        return self._handles[number]

    def _class(self, depth: int) -> _Class | None:
        if depth > _MAX_DEPTH:
            raise LogFormatError("serialised classes nest too deep")
        mark = self._take(1)[0]
        if mark == 0x70:
            return None
        if mark == 0x71:
            found = self._reference()
            if not isinstance(found, _Class):
                raise LogFormatError("serialised data refer to a class that is none")
            return found
        if mark != 0x72:
            raise LogFormatError(f"a serialised class begins with the mark {mark:#x}")
        made = _Class(self._utf(), 0, [], None)
        self._take(8)  # serialVersionUID
        self._handles.append(made)
        made.flags = self._number(">B")
        for _ in range(self._number(">H")):
            kind = chr(self._take(1)[0])
            made.fields.append((self._utf(), kind))
            if kind in "[L":
                self._content(depth + 1)  # the type's name
            elif kind not in _PRIMITIVES:
                raise LogFormatError(f"a serialised field has the type {kind!r}")
        while self._content(depth + 1) is not _END:
            pass  # annotations of the class
        made.parent = self._class(depth + 1)
        return made

    def _object(self, depth: int) -> JavaObject:
        declared = self._class(depth + 1)
        if declared is None:
            raise LogFormatError("a serialised object has no class")
        made = JavaObject(declared.name)
        self._handles.append(made)
        chain: list[_Class] = []
        each: _Class | None = declared
        while each is not None:
            if len(chain) > _MAX_DEPTH:  # or one that is its own ancestor
                raise LogFormatError(f"{declared.name} is serialised with too many ancestors")
            chain.append(each)
            each = each.parent
        for level in reversed(chain):
            if not level.flags & _SERIALIZABLE:
                raise LogFormatError(f"{level.name} is serialised in a way that is not known here")
            for name, kind in level.fields:
                made.fields[name] = self._value(kind, depth)
            if level.flags & _WRITE_METHOD:
                while (item := self._content(depth + 1)) is not _END:
                    made.written.append(item)
        return made

    def _value(self, kind: str, depth: int) -> Any:
        form = _PRIMITIVES.get(kind)
        return self._content(depth + 1) if form is None else self._number(form)

    def _array(self, depth: int) -> list[Any]:
        declared = self._class(depth + 1)
        made: list[Any] = self._remember([])
        kind = declared.name[1:2] if declared is not None else ""
        for _ in range(self._number(">I")):
            made.append(self._value(kind, depth))
        return made

    def _enum(self, depth: int) -> str:
        self._class(depth + 1)
        place = len(self._handles)
        self._handles.append("")
        name = self._content(depth + 1)
        self._handles[place] = name
        return str(name)
