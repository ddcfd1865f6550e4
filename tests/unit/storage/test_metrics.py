from __future__ import annotations

import stat
from pathlib import Path

from howdah.core.messages import Task
from howdah.storage.metrics import TaskSample, append, read
from howdah.wire.messages import Sample


def sample(task: str, time: float, **values: float) -> TaskSample:
    role, _, index = task.partition(":")
    return TaskSample(
        task=Task(role, int(index)), attempt=1, sample=Sample(time=time, cpu=0.5, values=values)
    )


def test_samples_come_back_as_they_were(tmp_path: Path) -> None:
    assert list(read(tmp_path)) == []
    samples = [sample("worker:0", 1.0, loss=0.5), sample("worker:1", 1.5), sample("ps:0", 2.0)]
    append(tmp_path, samples[:2])
    append(tmp_path, [])
    append(tmp_path, samples[2:])
    assert list(read(tmp_path)) == samples


def test_they_can_be_asked_for_by_task_and_time(tmp_path: Path) -> None:
    append(tmp_path, [sample(f"worker:{n % 2}", float(n)) for n in range(10)])
    found = read(tmp_path, Task("worker", 1), since=5.0)
    assert [item.sample.time for item in found] == [7.0, 9.0]


def test_files_rotate_by_size_and_read_as_one(tmp_path: Path) -> None:
    for number in range(50):
        append(tmp_path, [sample("worker:0", float(number))], segment_bytes=500)
    files = list(tmp_path.glob("metrics-*.jsonl"))
    assert len(files) > 5
    assert all(path.stat().st_size <= 500 for path in files)
    assert [item.sample.time for item in read(tmp_path)] == [float(n) for n in range(50)]


def test_coordinators_without_their_forerunners_files_replace_none_of_them(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in (1, 2)]
    for number, folder in enumerate(folders, 1):
        folder.mkdir()
        for half in (0.0, 0.5):
            append(
                folder, [sample("worker:0", number + half)], incarnation=number, segment_bytes=50
            )
    for folder in folders:
        for path in folder.iterdir():
            path.replace(tmp_path / path.name)
    assert [item.sample.time for item in read(tmp_path)] == [1.0, 1.5, 2.0, 2.5]


def test_a_line_torn_by_a_crash_costs_itself_only(tmp_path: Path) -> None:
    append(tmp_path, [sample("worker:0", 1.0)])
    path = tmp_path / "metrics-0001.jsonl"
    path.write_bytes(path.read_bytes() + b'{"task":["wor')
    append(tmp_path, [sample("worker:0", 2.0)])
    assert [item.sample.time for item in read(tmp_path)] == [1.0, 2.0]


def test_only_the_owner_can_read_them(tmp_path: Path) -> None:
    append(tmp_path, [sample("worker:0", 1.0)])
    assert stat.S_IMODE((tmp_path / "metrics-0001.jsonl").stat().st_mode) == 0o600
