"""Signs of life."""

from __future__ import annotations

from pathlib import Path

from howdah.agent.monitoring.metrics import ProgressMonitor


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_passes_since_the_last_sign() -> None:
    clock = Clock()
    progress = ProgressMonitor(clock)
    clock.now += 5
    assert progress.idle_s() == 5
    progress.shown()
    assert progress.idle_s() == 0


def test_a_file_that_grows_in_the_checkpoint_folder_is_a_sign(tmp_path: Path) -> None:
    clock = Clock()
    progress = ProgressMonitor(clock, str(tmp_path))
    clock.now += 10
    assert progress.idle_s() == 10
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/model.bin").write_bytes(b"x")
    clock.now += 10
    assert progress.idle_s() == 0
    clock.now += 3
    assert progress.idle_s() == 3
    with (tmp_path / "deep/model.bin").open("ab") as file:
        file.write(b"y")
    clock.now += 3
    assert progress.idle_s() == 0


def test_a_folder_that_does_not_exist_yet_is_no_problem(tmp_path: Path) -> None:
    clock = Clock()
    progress = ProgressMonitor(clock, str(tmp_path / "later"))
    clock.now += 4
    assert progress.idle_s() == 4
