"""What a dying coordinator leaves for the next one."""

from __future__ import annotations

from pathlib import Path

from howdah.core.messages import Level
from howdah.storage import coordinator_ends
from howdah.storage.coordinator_ends import CoordinatorEnd


def end(who: str, time: float = 1000.0, lived_s: float | None = None) -> CoordinatorEnd:
    return CoordinatorEnd(who=who, reason="EncodeError: no token", time=time, lived_s=lived_s)


def test_an_end_becomes_a_record_once(tmp_path: Path) -> None:
    coordinator_ends.write(tmp_path, end("container_1_0001_01_000001", lived_s=2.7))
    (record,) = coordinator_ends.records(tmp_path, ())
    assert record.kind == "coordinator-died"
    assert record.level is Level.WARNING
    assert record.text == (
        "the coordinator container_1_0001_01_000001 died after 3 s: EncodeError: no token"
    )
    coordinator_ends.write(tmp_path, end("process 4711"))
    (other,) = coordinator_ends.records(tmp_path, [record])
    assert other.text.startswith("the coordinator process 4711 died: ")
    assert coordinator_ends.records(tmp_path, [record, other]) == []


def test_a_second_end_of_a_process_with_the_same_id_is_told_too(tmp_path: Path) -> None:
    """Process ids begin anew with each container."""
    coordinator_ends.write(tmp_path, end("process 7"))
    told = coordinator_ends.records(tmp_path, ())
    coordinator_ends.write(tmp_path, end("process 7", time=9000.25))
    assert [each.time for each in coordinator_ends.read(tmp_path)] == [1000.0, 9000.25]
    (second,) = coordinator_ends.records(tmp_path, told)
    assert second.data["time"] == 9000.25
    assert coordinator_ends.records(tmp_path, [*told, second]) == []


def test_a_damaged_note_hides_no_other(tmp_path: Path) -> None:
    name = coordinator_ends.write(tmp_path, end("a"))
    (tmp_path / name.replace("-a", "-b")).write_text("{")
    assert [each.who for each in coordinator_ends.read(tmp_path)] == ["a"]


def test_coordinators_that_fail_in_a_row_leave_more_and_more_time_between_them() -> None:
    ends = [end(str(number), time=1000.0) for number in range(5)]
    pauses = [coordinator_ends.pause_s(ends[:count], 0.0, now=1001.0) for count in range(1, 6)]
    assert pauses == [10.0, 20.0, 40.0, 60.0, 60.0]


def test_one_that_lived_long_or_alone_waits_for_nothing() -> None:
    assert coordinator_ends.pause_s([end("a")], lived_s=60.0, now=1001.0) == 0.0
    old = [end(str(number), time=0.0) for number in range(4)]
    assert coordinator_ends.pause_s([*old, end("a")], lived_s=1.0, now=1001.0) == 9.0
