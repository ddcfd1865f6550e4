"""One of Hadoop's XML files as a list of properties, includes followed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

from howdah.hadoop.errors import ConfigurationError

_XINCLUDE = "{http://www.w3.org/2001/XInclude}"
_MAX_DEPTH = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Property:
    """One property as it stands in a file."""

    name: str
    value: str
    final: bool
    source: str


def read_properties(path: Path) -> list[Property]:
    """The properties of a file and of what it includes, in order of appearance.

    Raises:
        ConfigurationError: the file can't be read or is no configuration; includes nest too
            deep or are not local files.
    """
    return list(_read(path, 0))


def _read(path: Path, depth: int) -> Iterator[Property]:
    if depth > _MAX_DEPTH:
        raise ConfigurationError(f"{path}: more than {_MAX_DEPTH} files include each other")
    try:
        root = ElementTree.fromstring(path.read_bytes())  # noqa: S314 - the user's own files; expat bounds entities
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror or error}") from error
    except (ElementTree.ParseError, ValueError) as error:
        raise ConfigurationError(f"{path} is not well-formed XML: {error}") from error
    if root.tag != "configuration":
        raise ConfigurationError(
            f"{path}: the outermost element is <{root.tag}>, not <configuration>"
        )
    yield from _elements(root, path, depth)


def _elements(parent: ElementTree.Element, path: Path, depth: int) -> Iterator[Property]:
    for element in parent:
        if element.tag == "property":
            found = _property(element, path)
            if found is not None:
                yield found
        elif element.tag == "configuration":
            yield from _elements(element, path, depth)
        elif element.tag == _XINCLUDE + "include":
            yield from _include(element, path, depth)


def _include(element: ElementTree.Element, path: Path, depth: int) -> Iterator[Property]:
    href = element.get("href", "")
    parts = urlsplit(href)
    if parts.scheme not in ("", "file") or not parts.path:
        raise ConfigurationError(f"{path}: the include {href!r} is not a local file")
    target = path.parent / unquote(parts.path)
    if target.exists():
        yield from _read(target, depth + 1)
        return
    fallback = element.find(_XINCLUDE + "fallback")
    if fallback is None:
        raise ConfigurationError(f"{path}: the included file {target} does not exist")
    yield from _elements(fallback, path, depth)


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
