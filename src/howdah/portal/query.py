"""What an address asks the list of jobs for, and addresses that ask for something else. Pure.

A saved link is an address: all that was chosen stands in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from howdah.client.lookup.states import STATES
from howdah.portal.index import PAGE, PAGE_MAX, SORTS, JobQuery
from howdah.spec.units import moment

_TEXT = {"type": "string"}
_FILTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("A part of the id, the name, the user, a tag or the reason, in any case.", _TEXT),
    "state": (
        "Any of these states.",
        {"type": "array", "items": {"type": "string", "enum": list(STATES)}},
    ),
    "name": ("A pattern of the name, as of file names.", _TEXT),
    "user": ("Only this user's.", _TEXT),
    "tag": ("Only with this tag.", _TEXT),
    "backend": ("Only of this backend.", _TEXT),
    "queue": ("Only of this queue.", _TEXT),
    "framework": ("Only of this framework.", _TEXT),
    "cause": ("Only those whose first failure has this cause, such as `user-code`.", _TEXT),
    "since": ("Submitted since then: `12h` or `7d` ago, or a date.", _TEXT),
}
PARAMETERS: dict[str, tuple[str, dict[str, Any]]] = {
    **_FILTERS,
    "sort": (
        f"One of {', '.join(SORTS)}; with a minus the largest first. `-submitted` unless given.",
        _TEXT,
    ),
    "page": ("Which page, from 1.", {"type": "integer"}),
    "limit": (f"Jobs of a page: {PAGE} unless given, {PAGE_MAX} at most.", {"type": "integer"}),
}
"""What can be asked: meaning and JSON schema of each."""
PAGES_MAX = 1_000_000


class BadQuery(ValueError):
    """An address that asks for what cannot be; the text is for the user."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked, as it was written."""

    given: tuple[tuple[str, str], ...] = ()
    """Names and values, without empty ones."""

    def value(self, name: str) -> str:
        """The first value of that name; empty without one."""
        return next((value for key, value in self.given if key == name), "")

    def link(self, **changes: str) -> str:
        """The address with these values in the place of others, on the first page."""
        kept = [(k, v) for k, v in self.given if k not in changes and k != "page"]
        wanted = [*kept, *((k, v) for k, v in changes.items() if v)]
        return f"?{urlencode(wanted)}" if wanted else "./"

    @property
    def is_filtered(self) -> bool:
        """Whether it leaves jobs out."""
        return any(name in _FILTERS for name, _ in self.given)


def asked(parameters: Iterable[tuple[str, str]]) -> Asked:
    """What stands in an address."""
    return Asked(given=tuple((key, value.strip()) for key, value in parameters if value.strip()))


def read(given: Asked, now: float) -> JobQuery:
    """The question that is asked.

    Raises:
        BadQuery: it cannot be answered.
    """
    found: Mapping[str, str] = dict(reversed(given.given))
    if unknown := sorted(found.keys() - set(PARAMETERS)):
        raise BadQuery(
            f"jobs are not found by {unknown[0][:40]!r}; there are: {', '.join(PARAMETERS)}"
        )
    states = tuple(value for key, value in given.given if key == "state")
    if wrong := sorted(set(states) - set(STATES)):
        raise BadQuery(f"state={wrong[0][:40]!r} is none; there are: {', '.join(STATES)}")
    sort = found.get("sort", "-submitted")
    if sort.removeprefix("-") not in SORTS:
        raise BadQuery(
            f"sort={sort[:40]!r} is no order; there are: {', '.join(SORTS)}, with - turned round"
        )
    limit = _number(found, "limit", PAGE, PAGE_MAX)
    page = _number(found, "page", 1, PAGES_MAX)
    since = None
    if "since" in found:
        try:
            since = moment(found["since"], now)
        except ValueError as error:
            raise BadQuery(f"since: {error}") from None
    words = {
        name: found.get(name, "")[:300]
        for name in ("text", "name", "user", "tag", "backend", "queue", "framework", "cause")
    }
    return JobQuery(
        **words, states=states, since=since, sort=sort, skip=(page - 1) * limit, limit=limit
    )


def _number(found: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = found.get(name)
    if text is None:
        return default
    if not text.isdecimal() or not 1 <= int(text[:10]) <= most or len(text) > 10:
        raise BadQuery(f"{name}={text[:40]!r} is no number from 1 to {most}")
    return int(text)
