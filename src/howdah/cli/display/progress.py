"""What a submission is doing, while it takes long: one line that changes, on standard error."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType

from howdah.backends.base import Step
from howdah.cli.display.formatting import mebibytes
from howdah.cli.display.terminal import tame

QUICK_S = 0.5
"""What takes less is not shown."""
DRAW_S = 0.1

_ERASE_LINE = "\r\x1b[2K"


class SubmissionProgress:
    """Draws `Step`s on a terminal; elsewhere each kind of step is said once. Use as a context."""

    def __init__(self, *, quiet: bool = False) -> None:
        """``quiet``: show nothing (``--json``)."""
        self.notes: list[str] = []
        """What stays to be said, shown or not."""
        self._quiet = quiet
        self._live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._began = time.monotonic()
        self._drawn_at = 0.0
        self._drawn = False
        self._said: set[str] = set()

    def __enter__(self) -> SubmissionProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._drawn:
            self._put(_ERASE_LINE)

    def __call__(self, step: Step) -> None:
        """Show it, if it is worth it. May be called from any thread, one at a time."""
        if step.note:
            self.notes.append(step.note)
            self._note(step.note)
            return
        now = time.monotonic()
        if self._quiet or now - self._began < QUICK_S:
            return
        if not self._live:
            if step.what not in self._said:
                self._said.add(step.what)
                self._put(f"howdah | {words(step)}\n")
        elif now - self._drawn_at > DRAW_S or step.done == step.total:
            self._drawn_at = now
            self._drawn = True
            self._put(f"{_ERASE_LINE}howdah | {words(step)}")

    def _note(self, text: str) -> None:
        """Say something that stays."""
        if not self._quiet:
            self._put(f"{_ERASE_LINE if self._drawn else ''}howdah | {tame(text)}\n")
            self._drawn = False

    def _put(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            self._quiet = True  # it is read no more; that is no reason to end a submission


def words(step: Step) -> str:
    """``uploading environment: 120M of 1.5G``."""
    what = tame(step.what)
    if not step.total:
        return what
    done, total = mebibytes(step.done / 2**20), mebibytes(step.total / 2**20)
    return f"{what}: {done} of {total}"
