"""What howdah stop says while tasks save what they left."""

from __future__ import annotations

from howdah.cli.commands.stop import SHOWN, Saving
from howdah.core.messages import Record, Task

FINISHING = Record(kind="finishing", text="the job was stopped")


def saving(index: int) -> Record:
    task = Task("worker", index)
    return Record(kind="task-saving", text=f"{task} is saving, for up to 30 min", task=task)


def shown(*records: Record) -> list[str]:
    told = Saving()
    return [line for record in records for line in told.lines(record)]


def test_tasks_that_save_are_named_once_the_job_ends() -> None:
    assert shown(FINISHING, saving(0), saving(1)) == [
        "worker:0 is saving, for up to 30 min",
        "worker:1 is saving, for up to 30 min",
    ]


def test_a_task_that_was_saving_already_is_named_too() -> None:
    assert shown(saving(0), FINISHING) == ["worker:0 is saving, for up to 30 min"]


def test_what_was_saved_long_ago_is_not_shown() -> None:
    started = Record(kind="task-started", text="worker:0 started", task=Task("worker", 0))
    assert shown(saving(0), started, FINISHING) == []


def test_of_thousands_the_first_are_named() -> None:
    lines = shown(FINISHING, *(saving(index) for index in range(1000)))
    assert len(lines) == SHOWN + 1
    assert lines[-1] == "more tasks are saving"
