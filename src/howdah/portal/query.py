"""What an address asks the list of jobs for, and addresses that ask for something else. Pure.

A saved link is an address: all that was chosen stands in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlencode

import msgspec

from howdah.client.moments import moment
from howdah.client.states import STATES
from howdah.portal.index import PAGE, PAGE_MAX, SORTS, Query

FILTERS = (
    "text",
    "state",
    "name",
    "user",
    "tag",
    "backend",
    "queue",
    "framework",
    "cause",
    "since",
)
NAMES = (*FILTERS, "sort", "page", "limit")
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
        return any(name in FILTERS for name, _ in self.given)


def asked(parameters: Iterable[tuple[str, str]]) -> Asked:
    """What stands in an address."""
    return Asked(given=tuple((key, value.strip()) for key, value in parameters if value.strip()))


def read(given: Asked, now: float) -> Query:
    """The question that is asked.

    Raises:
        BadQuery: it cannot be answered.
    """
    found: Mapping[str, str] = dict(reversed(given.given))
    if unknown := sorted(found.keys() - set(NAMES)):
        raise BadQuery(f"jobs are not found by {unknown[0][:40]!r}; there are: {', '.join(NAMES)}")
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
    return Query(
        **words, states=states, since=since, sort=sort, skip=(page - 1) * limit, limit=limit
    )


def _number(found: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = found.get(name)
    if text is None:
        return default
    if not text.isdecimal() or not 1 <= int(text[:10]) <= most or len(text) > 10:
        raise BadQuery(f"{name}={text[:40]!r} is no number from 1 to {most}")
    return int(text)
