"""What time went to, from records."""

from __future__ import annotations

from howdah.coordinator.web.documents import Timeline
from howdah.core.messages import Record
from howdah.wire.messages import RecordUpdate


def told(*story: tuple[float, str]) -> list[tuple[str, float, float | None, int]]:
    generation = 0
    timeline = Timeline(None)
    for seq, (time, kind) in enumerate(story):
        generation += kind == "generation-formed"
        record = Record(kind=kind, text=kind, generation=generation or None)
        timeline.add(RecordUpdate(seq=seq, time=time, record=record))
    return [(span.stage, span.start, span.end, span.generation) for span in timeline.spans]


def test_a_clean_job() -> None:
    assert told(
        (0, "submitted"),
        (2, "generation-formed"),
        (3, "task-started"),
        (4, "task-started"),
        (6, "running"),
        (60, "task-succeeded"),
        (61, "finishing"),
        (62, "finished"),
    ) == [
        ("wait", 0, 2, 0),
        ("prepare", 2, 3, 1),
        ("join", 3, 6, 1),
        ("run", 6, 61, 1),
        ("finish", 61, 62, 1),
    ]


def test_a_restart_counts_from_the_first_sign_of_the_failure() -> None:
    assert told(
        (0, "submitted"),
        (1, "generation-formed"),
        (2, "task-started"),
        (3, "running"),
        (10, "task-failed"),
        (10.2, "container-lost"),
        (11, "generation-ended"),
        (11, "restarting"),
        (14, "generation-formed"),
        (15, "task-started"),
        (16, "running"),
    )[3:] == [
        ("run", 3, 10, 1),
        ("restart", 10, 14, 1),
        ("prepare", 14, 15, 2),
        ("join", 15, 16, 2),
        ("run", 16, None, 2),
    ]


def test_a_task_that_is_restarted_alone_does_not_interrupt_the_run() -> None:
    assert told(
        (0, "generation-formed"),
        (1, "running"),
        (5, "task-failed"),
        (5, "task-restarting"),
        (9, "task-failed"),
        (9, "generation-ended"),
    ) == [("prepare", 0, 1, 1), ("run", 1, 9, 1), ("restart", 9, None, 1)]


def test_kinds_nobody_knows_change_nothing() -> None:
    assert told((0, "submitted"), (1, "moon-phase"), (2, "checkpoint-saved")) == [
        ("wait", 0, None, 0)
    ]


def test_nothing_happens_after_the_end() -> None:
    story = ((0, "submitted"), (1, "finishing"), (2, "finished"))
    assert told(*story, (3, "running"), (4, "generation-formed")) == told(*story)


def test_clocks_that_step_back_give_no_negative_span() -> None:
    assert told((10, "submitted"), (5, "generation-formed")) == [
        ("wait", 10, 10, 0),
        ("prepare", 5, None, 1),
    ]
