"""The plain values a document is made of, before anything is known about them."""

from __future__ import annotations

import datetime
from typing import Any, TypeGuard

Table = dict[str, Any]


def is_table(value: object) -> TypeGuard[Table]:
    """A table: readers make only tables with text keys."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """A list."""
    return isinstance(value, list)


def kind_of(value: object) -> str:
    """What kind of value it is, in a user's words."""
    match value:
        case None:
            return "no value"
        case bool():
            return "true or false"
        case str():
            return "text"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case dict():
            return "a table"
        case datetime.date() | datetime.time():
            return "a date or time"
        case _:
            return f"a {type(value).__name__}"


def is_writable(text: str) -> bool:
    """Whether the text can be written as UTF-8: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
