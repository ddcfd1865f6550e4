"""What becomes of the Spark tasks that a job's containers were started from."""

from __future__ import annotations

import enum


class Mode(enum.Enum):
    """How a job uses the slots it gets."""

    FEED = "feed"
    """The tasks end once their containers are there: the slots are free for tasks that feed them.
    All slots are given at once (a barrier stage)."""
    FOREGROUND = "foreground"
    """Each task lasts as long as its container, and holds its place in Spark's books. A task that
    Spark ends ends its container."""
