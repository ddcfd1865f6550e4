"""What all feeds of a trainer share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from howdah.spark.feed.cache import SpillSpace
from howdah.spark.feed.messages import FeedRefused

STARVED_S = 0.2
"""The program waits for so long before a full buffer goes on in a file."""


class SharedState:
    """One lock for all feeds, and what concerns them all."""

    def __init__(self, tell: Callable[[msgspec.Struct], None], rank: int, folder: Path | None):
        self.tell = tell
        """Sends a message to the controller; never waits."""
        self.greet: Callable[[], None] = lambda: None
        """Says `Hello` again."""
        self.rank = rank
        self.space: SpillSpace = SpillSpace(folder)
        """For rows that do not fit into memory."""
        self.changed: threading.Condition = threading.Condition(threading.RLock())
        self.waiting_since: float | None = None
        """`time.monotonic` of when the program began to wait for a batch, of any feed."""
        self.gone: FeedRefused | None = None
        """No rows are taken any more; with ``reason`` empty the program has simply ended."""
        self.lost: str = ""
        """Why the controller is given up."""

    def starved(self) -> bool:
        """Whether the program waits, and not just for a moment."""
        since = self.waiting_since
        return since is not None and time.monotonic() - since >= STARVED_S
