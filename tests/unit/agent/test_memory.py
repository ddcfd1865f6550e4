"""Memory against a limit, and the kernel's word."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from howdah.agent.monitoring import metrics
from howdah.agent.monitoring.metrics import OomWatch, oom_counter_file, over_limit

MB = 1024 * 1024


def test_under_the_limit_nothing_is_said() -> None:
    assert over_limit(100 * MB, 100, [os.getpid()]) == ""


def test_over_the_limit_the_figures_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "shared_out_bytes", lambda pids: 120 * MB)
    assert over_limit(150 * MB, 100, [1]) == "used 120 MB of 100 MB"


def test_pages_that_are_shared_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "shared_out_bytes", lambda pids: 80 * MB)
    assert over_limit(150 * MB, 100, [1]) == ""


def test_where_sharing_cannot_be_read_resident_memory_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "shared_out_bytes", lambda pids: None)
    assert over_limit(150 * MB, 100, [1]) == "used 150 MB of 100 MB"


def test_the_counter_of_version_2_is_found(tmp_path: Path) -> None:
    file = tmp_path / "user.slice/job/memory.events"
    file.parent.mkdir(parents=True)
    file.write_text("low 0\noom 3\noom_kill 2\n")
    assert oom_counter_file("0::/user.slice/job\n", (str(tmp_path),)) == file


def test_the_counter_of_version_1_is_found(tmp_path: Path) -> None:
    file = tmp_path / "memory/job/memory.oom_control"
    file.parent.mkdir(parents=True)
    file.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    assert oom_counter_file("5:cpu:/\n4:memory:/job\n0::/\n", (str(tmp_path),)) == file


def test_without_a_counter_nothing_is_proven(tmp_path: Path) -> None:
    assert oom_counter_file("0::/\n", (str(tmp_path),)) is None
    assert OomWatch(tmp_path / "none").kills() == 0


def test_kills_are_counted_from_the_beginning(tmp_path: Path) -> None:
    file = tmp_path / "memory.events"
    file.write_text("oom 1\noom_kill 4\n")
    watch = OomWatch(file)
    assert watch.kills() == 0
    file.write_text("oom 2\noom_kill 5\n")
    assert watch.kills() == 1
