"""YAML with the line of every key, built from PyYAML's parsing events.

The events are plain syntax: no tag constructs anything here, aliases cost what they stand for,
repeated keys are noticed, and words are read as YAML 1.2 reads them: `off`, `no` and `12:30`
stay text, only `true` and `false` are switches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from howdah.spec.problems import KeyPath, printable, shown
from howdah.spec.readers.reading import PlacedValues, Unreadable
from howdah.spec.values import Table, is_list, is_table

if TYPE_CHECKING:
    import yaml

_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]{1,40}(\.[0-9]*)?)([eE][-+]?[0-9]{1,4})?")
_TAGS = "tag:yaml.org,2002:"
_MERGE = "<<"


def read(text: str) -> tuple[Any, PlacedValues]:
    """The document and the lines of its keys; ``None`` for an empty one.

    Raises:
        Unreadable: it is not YAML, holds what a job file cannot, or is past its bounds.
    """
    import yaml

    parse = cast("Any", yaml.parse)  # pyright: ignore
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Builder(yaml, parse(text, Loader=loader)).document()
    except yaml.MarkedYAMLError as error:
        raise _in_our_words(text, error) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise Unreadable(line, "not YAML: it has a character no text has") from None
    except yaml.YAMLError as error:
        raise Unreadable(None, f"not YAML: {printable(str(error))}") from None


def _in_our_words(text: str, error: yaml.MarkedYAMLError) -> Unreadable:
    """PyYAML's complaint, with a hint where the mistake is a common one."""
    message = ", ".join(part for part in (error.context, error.problem) if part)
    mark = error.problem_mark or error.context_mark
    if "simple key" in message:
        # The word without a colon, not the line after it where that was noticed.
        mark = error.context_mark or mark
    if mark is None:
        return Unreadable(None, f"not YAML: {printable(message)}")
    lines = text.split("\n")
    number = min(mark.line, len(lines) - 1)
    hint = None
    if re.match(r" *\t", lines[number]):
        hint = "indent with spaces, not tabs"
    elif "mapping values are not allowed" in message:
        hint = 'a text with ": " in it needs quotes'
    elif "simple key" in message:
        hint = "write key: value"
    return Unreadable(number + 1, f"not YAML: {printable(message)}", hint)


class _Anchored(NamedTuple):
    value: Any
    size: int
    """Values in it, itself included."""
    depth: int
    """Levels below it."""


class _Builder:
    def __init__(self, module: Any, events: Iterator[Any]) -> None:
        self._yaml = module
        self._events = events
        self._anchors: dict[str, _Anchored | None] = {}
        """What each anchor stands for; None while it is still being read."""
        self.reading = PlacedValues()

    def document(self) -> tuple[Any, PlacedValues]:
        """The one document of the stream."""
        value: Any = None
        documents = 0
        for event in self._events:
            if isinstance(event, self._yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    line = event.start_mark.line + 1
                    raise Unreadable(line, "a second document begins", "a file is one job")
            elif isinstance(event, self._yaml.NodeEvent):
                value = self._node(event, ()).value
        return value, self.reading

    def _next(self) -> Any:
        return next(self._events)

    def _node(self, event: Any, path: KeyPath, line: int | None = None) -> _Anchored:
        """The value that begins with this event; its line is its key's, if it has one."""
        line = line or int(event.start_mark.line) + 1
        if isinstance(event, self._yaml.AliasEvent):
            return self._alias(event, path, line)
        self.reading.value(path, line)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if isinstance(event, self._yaml.ScalarEvent):
            node = _Anchored(_scalar(event), 1, 0)
            if node.value is None and not event.value:
                self.reading.empty.add(path)
        elif isinstance(event, self._yaml.SequenceStartEvent):
            node = self._list(event, path)
        else:
            node = self._table(event, path)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: Any, path: KeyPath, line: int) -> _Anchored:
        name = event.anchor
        if name not in self._anchors:
            raise Unreadable(line, f"the alias *{printable(name)} is not defined above")
        node = self._anchors[name]
        if node is None:
            raise Unreadable(line, f"the alias *{printable(name)} is used inside itself")
        self.reading.value(path, line)
        self.reading.more(node.size - 1, len(path) + node.depth, line)
        return node

    def _list(self, event: Any, path: KeyPath) -> _Anchored:
        _plain_tag(event, "seq")
        items: list[_Anchored] = []
        while not isinstance(item := self._next(), self._yaml.SequenceEndEvent):
            items.append(self._node(item, (*path, len(items))))
        return _around([node.value for node in items], items)

    def _table(self, event: Any, path: KeyPath) -> _Anchored:
        _plain_tag(event, "map")
        table: Table = {}
        merged: Table = {}
        nodes: list[_Anchored] = []
        while not isinstance(key_event := self._next(), self._yaml.MappingEndEvent):
            line = key_event.start_mark.line + 1
            key = self._key(key_event, line)
            node = self._node(self._next(), (*path, key), line)
            nodes.append(node)
            if key == _MERGE and not key_event.style:
                for part in reversed(node.value if is_list(node.value) else [node.value]):
                    if not is_table(part):
                        raise Unreadable(line, f"<< merges {shown(part)}, which is no table")
                    merged.update(part)
                    self.reading.more(len(part), 0, line)
            else:
                table[key] = node.value
        return _around({**merged, **table}, nodes)

    def _key(self, event: Any, line: int) -> str:
        if not isinstance(event, self._yaml.ScalarEvent):
            raise Unreadable(line, "a key is no plain word")
        return event.value


def _around(value: Any, parts: list[_Anchored]) -> _Anchored:
    size = 1 + sum(part.size for part in parts)
    return _Anchored(value, size, 1 + max((part.depth for part in parts), default=0))


def _plain_tag(event: Any, kind: str) -> None:
    if event.tag not in (None, "!", _TAGS + kind):
        raise _strange_tag(event)


def _strange_tag(event: Any) -> Unreadable:
    tag = event.tag.replace(_TAGS, "!!")
    message = f"the tag {printable(tag)} is not for job files"
    return Unreadable(event.start_mark.line + 1, message, "remove it")


def _scalar(event: Any) -> Any:
    text, line = event.value, event.start_mark.line + 1
    if event.tag in ("!", _TAGS + "str") or (event.tag is None and event.style):
        return text
    if event.tag is not None and event.tag not in (
        _TAGS + kind for kind in ("int", "float", "bool", "null")
    ):
        raise _strange_tag(event)
    if _NULL.fullmatch(text):
        return None
    if _TRUE.fullmatch(text):
        return True
    if _FALSE.fullmatch(text):
        return False
    if _INT.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if event.tag is not None:
        kind = event.tag.removeprefix(_TAGS)
        raise Unreadable(line, f"{shown(text)} is tagged !!{kind}, which it is not")
    return text
