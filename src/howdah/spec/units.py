"""Quantities and moments as users write them, turned into numbers.

Everything here raises `ValueError` with words for the user: the value, what is allowed and,
where it can be guessed, what was meant. Values of a checked job never raise.
"""

from __future__ import annotations

import datetime
import math
import re

from howdah.spec.model import COUNT_PATTERN, DURATION_PATTERN, MAX_TASKS, MEMORY_PATTERN

MAX_SECONDS = 3650 * 86400.0
"""Ten years: anything longer is a slip of the keyboard, and "off" says "for ever"."""
MAX_MEBIBYTES = 1 << 30
"""A pebibyte."""
MAX_NUMBER = 1_000_000_000
"""No count in a job file is greater."""

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION = re.compile(DURATION_PATTERN)
_MEMORY = re.compile(MEMORY_PATTERN)
_COUNT = re.compile(COUNT_PATTERN)
_PORTS = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_TIME_WORDS = {
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "milliseconds"), "ms"),
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}


def seconds(duration: str) -> float | None:
    """Seconds of a duration; ``None`` for "off", which is no limit.

    Raises:
        ValueError: it is no duration, or longer than ten years.
    """
    if not _DURATION.fullmatch(duration):
        raise ValueError("is not a time")
    if duration == "off":
        return None
    number = duration.rstrip("mshd")
    value = float(number) * _SECONDS[duration[len(number) :]]
    if value > MAX_SECONDS:
        raise ValueError('is longer than ten years; "off" means no limit')
    return value


def octets(memory: str) -> int:
    """Bytes of an amount of memory.

    Raises:
        ValueError: it is no amount of memory, or more than a pebibyte.
    """
    if not _MEMORY.fullmatch(memory):
        raise ValueError("is not an amount of memory")
    number = re.match(r"[0-9.]+", memory)
    assert number is not None
    value = float(number[0]) * _BYTES[memory[number.end()].lower()]
    if value > MAX_MEBIBYTES << 20:
        raise ValueError("is more memory than any machine has; look at the unit")
    return math.ceil(value)


def mebibytes(memory: str) -> int:
    """Mebibytes (2**20 bytes) of an amount of memory, rounded up.

    Raises:
        ValueError: as `octets`.
    """
    return -(-octets(memory) // (1 << 20))


def instance_range(count: int | str) -> tuple[int, int]:
    """Least and greatest number of tasks; both are the same for a plain number.

    Raises:
        ValueError: it is neither a number nor a range, is below one, or runs backwards.
    """
    if isinstance(count, int):
        low = high = count
    elif _COUNT.fullmatch(count) and len(count) <= 20:
        first, _, last = count.partition("..")
        low, high = int(first), int(last or first)
    else:
        raise ValueError('is not a number of tasks; write a number such as 4, or a range "2..8"')
    if low < 1:
        raise ValueError("is less than one task")
    if low > high:
        raise ValueError(f'runs backwards; did you mean "{high}..{low}"?')
    if high > MAX_TASKS:
        raise ValueError(f"is more than {MAX_TASKS:,} tasks; no job may have more")
    return low, high


def port_range(text: str) -> tuple[int, int]:
    """First and last port of a range such as "20000-29999", both included.

    Raises:
        ValueError: it is no range, runs backwards, or leaves 1024 to 65535.
    """
    found = _PORTS.fullmatch(text)
    if found is None:
        raise ValueError('is not a range of ports; write first and last, such as "20000-29999"')
    low, high = int(found[1]), int(found[2])
    if low > high:
        raise ValueError(f'runs backwards; did you mean "{high}-{low}"?')
    if low < 1024 or high > 65535:
        raise ValueError("leaves the ports a user may have, 1024 to 65535")
    return low, high


def likely_duration(value: object) -> str | None:
    """What was probably meant by something that is no duration: "10 min" is "10m"."""
    text = str(value).strip().lower() if isinstance(value, int | float | str) else ""
    if isinstance(value, bool) or len(text) > 40:
        return None
    if text in ("none", "never", "no", "unlimited", "infinite", "inf", "-1"):
        return "off"
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", text)
    if not parts or "".join(a + b for a, b in parts) != re.sub(r"\s", "", text):
        return None
    if any(word not in _TIME_WORDS for _, word in parts):
        return None
    if len(parts) == 1:
        return parts[0][0] + _TIME_WORDS[parts[0][1]]
    total = sum(float(number) * _SECONDS[_TIME_WORDS[word]] for number, word in parts)
    for unit in ("h", "m", "s"):
        if total % _SECONDS[unit] == 0:
            return f"{total / _SECONDS[unit]:.0f}{unit}"
    return f"{total * 1000:.0f}ms"


def likely_memory(value: object) -> str | None:
    """What was probably meant by something that is no amount of memory: "2 GB" is "2g"."""
    text = str(value).strip().lower() if isinstance(value, int | float | str) else ""
    if isinstance(value, bool) or len(text) > 40:
        return None
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)[a-z]*", text)
    if found is None:
        return None
    number, unit = found.groups()
    # A bare number: a few are gigabytes, hundreds are megabytes, more are bytes.
    if not unit:
        size = float(number)
        if size >= 1 << 20:
            return f"{math.ceil(size / (1 << 20))}m"
        unit = "g" if size < 64 else "m"
    return number + unit


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
