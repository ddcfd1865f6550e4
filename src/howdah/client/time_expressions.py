"""Moments as people write them: so long ago, or a date. Pure."""

from __future__ import annotations

import datetime

from howdah.spec.units import seconds


def moment(text: str, now: float) -> float:
    """Seconds since the epoch of ``12h`` ago, or of a date in local time unless it says otherwise.

    Raises:
        ValueError: it is neither; the text is for the user.
    """
    try:
        return now - span(text)
    except ValueError:
        pass
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text[:40]!r} is neither a span of time such as 30m, 12h or 7d, nor a date such as "
            "2026-11-24 or '2026-11-24 14:30'"
        ) from None


def span(text: str) -> float:
    """Seconds of a span of time, as job files have them.

    Raises:
        ValueError: it is none.
    """
    found = seconds(text)
    if found is None:
        raise ValueError("is no span of time")
    return found
