"""One of Hadoop's XML files as a list of properties, includes followed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

from howdah.hadoop.errors import ConfigurationError

_XINCLUDE = "{http://www.w3.org/2001/XInclude}"
_MAX_DEPTH = 20
_MAX_FILES = 200
"""Two includes in each file of twenty levels are a million files to read."""
_MAX_BYTES = 16 * 1024 * 1024
"""Of one file. The largest of Hadoop's own defaults has a quarter of a megabyte."""


class Property(NamedTuple):
    """One property as it stands in a file."""

    name: str
    value: str
    final: bool
    source: str


def read_properties(path: Path) -> list[Property]:
    """The properties of a file and of what it includes, in order of appearance.

    Raises:
        ConfigurationError: the file can't be read or is no configuration; includes nest too
            deep, are too many, or are not local files.
    """
    return list(_Reading(path).read(path, 0))


class _Reading:
    """One file with all it includes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = 0

    def read(self, path: Path, depth: int) -> Iterator[Property]:
        if depth > _MAX_DEPTH:
            raise ConfigurationError(f"{path}: more than {_MAX_DEPTH} files include each other")
        self._files += 1
        if self._files > _MAX_FILES:
            raise ConfigurationError(f"{self._path} includes more than {_MAX_FILES} files")
        root = _parsed(path)
        if root.tag != "configuration":
            raise ConfigurationError(
                f"{path}: the outermost element is <{root.tag}>, not <configuration>"
            )
        yield from self._elements(root, path, depth)

    def _elements(self, parent: ElementTree.Element, path: Path, depth: int) -> Iterator[Property]:
        for element in parent:
            if element.tag == "property":
                found = _property(element, path)
                if found is not None:
                    yield found
            elif element.tag == "configuration":
                yield from self._elements(element, path, depth)
            elif element.tag == _XINCLUDE + "include":
                yield from self._include(element, path, depth)

    def _include(self, element: ElementTree.Element, path: Path, depth: int) -> Iterator[Property]:
        href = element.get("href", "")
        try:
            parts = urlsplit(href)
            target = path.parent / unquote(parts.path)
            is_local = parts.scheme in ("", "file") and bool(parts.path)
            is_there = is_local and target.exists()
        except (OSError, ValueError):  # such as a bracket in a host name, or a NUL in a path
            is_local = is_there = False
            target = path
        if not is_local:
            raise ConfigurationError(f"{path}: the include {href!r} is not a local file")
        if is_there:
            yield from self.read(target, depth + 1)
            return
        fallback = element.find(_XINCLUDE + "fallback")
        if fallback is None:
            raise ConfigurationError(f"{path}: the included file {target} does not exist")
        yield from self._elements(fallback, path, depth)


def _parsed(path: Path) -> ElementTree.Element:
    try:
        if path.exists() and not path.is_file():
            raise ConfigurationError(f"{path} is not a file")  # a pipe would be waited for
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise ConfigurationError(f"{path} is larger than {_MAX_BYTES >> 20} MiB")
        return ElementTree.fromstring(text)  # noqa: S314 - the user's own files; expat bounds entities
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror or error}") from error
    except (ElementTree.ParseError, ValueError, LookupError, RecursionError) as error:
        raise ConfigurationError(f"{path} is not well-formed XML: {error}") from error


def _property(element: ElementTree.Element, path: Path) -> Property | None:
    """A property with name and value as elements or as attributes; None if it has no value."""

    def part(key: str) -> str | None:
        child = element.find(key)
        if child is None:
            return element.get(key)
        return "".join(child.itertext())

    name, value = part("name"), part("value")
    if name is None or not name.strip():
        raise ConfigurationError(f"{path}: a <property> has no <name>")
    if value is None:
        return None
    final = (part("final") or "").strip().lower() == "true"
    return Property(name.strip(), value, final, str(path))
