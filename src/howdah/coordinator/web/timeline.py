"""What the job's time went to, told from its records. Pure.

The kinds are those `howdah.core` writes when the job's phase changes. Kinds not listed change
nothing, so a newer coordinator's story still gives a right, if coarser, picture.
"""

from __future__ import annotations

import enum

from howdah.coordinator.web.documents import Span
from howdah.wire.messages import RecordUpdate


class Stage(enum.Enum):
    """What a stretch of time went to."""

    WAIT = "wait"
    """For containers, and for their agents to register."""
    PREPARE = "prepare"
    """Checkpoint restored, ports reserved, programs started."""
    JOIN = "join"
    """Programs run and look for their peers."""
    RUN = "run"
    """Everyone has joined: the work itself."""
    RESTART = "restart"
    """From the first sign of a failure until the next generation is formed."""
    FINISH = "finish"
    """The outcome is decided; programs are stopped, containers given back."""


_SIGNS = frozenset({"task-failed", "container-lost", "hang"})
"""The first of them in a generation that ends is when its useful time was over."""


class Timeline:
    """Spans so far; feed it every record once, in order."""

    def __init__(self, submitted: float | None) -> None:
        self._spans: list[Span] = []
        self._sign: float | None = None
        self._closed = False
        if submitted is not None:
            self._enter(Stage.WAIT, submitted, 0)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Oldest first; only the last has no end."""
        return tuple(self._spans)

    def add(self, update: RecordUpdate) -> bool:
        """Take a record in; whether it changed the picture."""
        record, time = update.record, update.time
        generation = record.generation or 0
        now = Stage(self._spans[-1].stage) if self._spans else None
        if self._closed:
            return False
        match record.kind:
            case "submitted" if now is None:
                self._enter(Stage.WAIT, time, 0)
            case "generation-formed":
                self._enter(Stage.PREPARE, time, generation)
            case "task-started" if now is Stage.PREPARE:
                self._enter(Stage.JOIN, time, generation)
            case "running":
                self._enter(Stage.RUN, time, generation)
            case kind if kind in _SIGNS and now is not Stage.FINISH:
                if self._sign is None:
                    self._sign = time
                return False
            case "task-restarting" | "sidecar-retired":
                self._sign = None
                return False
            case "generation-ended" | "growing":
                began = self._spans[-1].start if self._spans else time
                self._enter(Stage.RESTART, max(self._sign or time, began), generation)
            case "stage-done":
                self._enter(Stage.WAIT, time, generation)
            case "finishing":
                self._enter(Stage.FINISH, time, generation)
            case "finished":
                self._end(time)
                self._closed = True
            case _:
                return False
        return True

    def _enter(self, stage: Stage, time: float, generation: int) -> None:
        self._sign = None
        if self._spans and self._spans[-1].stage == stage.value:
            return
        self._end(time)
        self._spans.append(Span(stage=stage.value, start=time, generation=generation))

    def _end(self, time: float) -> None:
        if self._spans and self._spans[-1].end is None:
            last = self._spans[-1]
            self._spans[-1] = Span(
                stage=last.stage,
                start=last.start,
                end=max(time, last.start),
                generation=last.generation,
            )
