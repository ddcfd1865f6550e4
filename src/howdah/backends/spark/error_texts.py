"""Spark's errors as one line for people. Pure."""

from __future__ import annotations

import re

LONGEST = 600

_STOPPED = ("SparkContext was shut down", "SparkContext has been shutdown")
_CANCELLED = (
    "cancelled",
    *_STOPPED,
    "OPERATION_CANCELED",
    "OPERATION_CANCELLED",
)
SESSION_STOPPED = "the Spark session was stopped"
NO_HOWDAH = (
    "Howdah and what it needs must be installed for that Python, or travel with the application: "
    "--py-files, --archives, or a Python named by spark.pyspark.python"
)
"""What to do for executors without it."""
_MISSING = re.compile(r"No module named '?([\w.]+)'?")


def was_cancelled(error: BaseException) -> bool:
    """Whether the Spark job was cancelled (its group, its tag, its session)."""
    text = str(error)
    return any(part in text for part in _CANCELLED)


def error_text(error: BaseException) -> str:
    """Of a text with two stack traces the line that says what is wrong."""
    text = str(error)
    if any(part in text for part in _STOPPED):
        return SESSION_STOPPED
    if missing := _MISSING.search(text):
        return (
            f"the executors' Python has no module {missing.group(1)!r}: it must be installed for "
            "it, or travel with the application (--archives); which Python that is, "
            "spark.pyspark.python or PYSPARK_PYTHON says"
        )
    if raised := _raised(text):
        return raised
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if line.startswith(("Caused by:", "pyspark.errors", "org.apache.spark.SparkException:")):
            return line[:LONGEST]
    return (lines[0] if lines else type(error).__name__)[:LONGEST]


def _raised(text: str) -> str:
    """What a Python worker raised: the last line of its traceback."""
    _, found, trace = text.partition("Traceback (most recent call last):")
    if not found:
        return ""
    lines: list[str] = []
    for line in trace.splitlines():
        if line.startswith(("\tat ", " SQLSTATE")):
            break
        if line.strip() and not line.startswith(" "):
            lines.append(line.strip())
    return lines[-1][:LONGEST] if lines else ""


def pending_text(wanted: int, capacity: int | None, busy: int | None) -> str:
    """Why Spark does not give the slots that are requested; empty if that is not known."""
    if not wanted:
        return ""
    if capacity is None or busy is None:
        return f"{wanted} slots of the Spark application are waited for"
    if capacity < wanted:
        return (
            f"{wanted} slots are waited for at once, the Spark application has {capacity}: "
            "executors may still be registering"
        )
    if capacity - busy < wanted:
        return (
            f"{wanted} slots are waited for, {busy} of the Spark application's {capacity} are busy "
            "with other jobs"
        )
    return ""
