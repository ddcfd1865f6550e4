"""Moments as people write them: so long ago, or a date. Pure."""

from __future__ import annotations

import datetime
import re

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGO = re.compile(r"(\d{1,9})([smhdw])")


def moment(text: str, now: float) -> float:
    """Seconds since the epoch of ``12h`` ago, or of a date in local time unless it says otherwise.

    Raises:
        ValueError: it is neither; the text is for the user.
    """
    ago = _AGO.fullmatch(text)
    if ago:
        return now - int(ago[1]) * _UNITS[ago[2]]
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text[:40]!r} is neither a span of time such as 30m, 12h or 7d, nor a date such as "
            "2026-11-24 or '2026-11-24 14:30'"
        ) from None
