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


YARNS = "hadoop-yarn/container_e01_1700000000000_0001_01_000002"
"""A container's control group, as YARN calls it by default."""


def mounted(folder: Path, kind: str, root: str = "/") -> str:
    """A line of ``/proc/self/mountinfo``."""
    place = str(folder).replace(" ", "\\040")
    options = "rw,memory" if kind == "cgroup" else "rw,nsdelegate"
    return f"35 31 0:32 {root} {place} rw,relatime shared:9 - {kind} {kind} {options}\n"


OTHERS = (
    "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n32 31 0:29 / /cpu rw - cgroup cgroup rw,cpu\n"
)


@pytest.mark.parametrize("place", ["sys/fs/cgroup", "cgroups of yarn"])
def test_the_counter_of_version_2_is_where_the_hierarchy_is_mounted(
    place: str, tmp_path: Path
) -> None:
    file = tmp_path / place / YARNS / "memory.events"
    file.parent.mkdir(parents=True)
    file.write_text("low 0\noom 3\noom_kill 2\n")
    mounts = OTHERS + mounted(tmp_path / place, "cgroup2")
    assert oom_counter_file(f"0::/{YARNS}\n", mounts) == file


def test_in_an_image_it_is_where_the_containers_own_part_is_mounted(tmp_path: Path) -> None:
    file = tmp_path / "memory.events"
    file.write_text("oom_kill 2\n")
    assert oom_counter_file("0::/\n", mounted(tmp_path, "cgroup2")) == file
    old = tmp_path / "memory.oom_control"
    old.write_text("oom_kill 0\n")
    mounts = mounted(tmp_path, "cgroup", f"/{YARNS}")
    assert oom_counter_file(f"4:memory:/{YARNS}\n0::/\n", mounts) == old
    assert oom_counter_file("4:memory:/elsewhere\n", mounts) is None
    assert oom_counter_file("0::/../other\n", mounted(tmp_path, "cgroup2")) is None


def test_of_both_versions_the_one_that_counts_memory_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "memory" / YARNS / "memory.oom_control"
    file.parent.mkdir(parents=True)
    file.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    mounts = mounted(tmp_path / "unified", "cgroup2") + mounted(tmp_path / "memory", "cgroup")
    assert oom_counter_file(f"5:cpu:/\n4:memory:/{YARNS}\n0::/{YARNS}\n", mounts) == file


def test_without_a_counter_nothing_is_proven(tmp_path: Path) -> None:
    assert oom_counter_file("0::/\n", mounted(tmp_path, "cgroup2")) is None
    assert oom_counter_file("", OTHERS) is None
    assert OomWatch(tmp_path / "none").kills() == 0


def test_the_nearest_limit_around_the_group_is_told(tmp_path: Path) -> None:
    file = tmp_path / "slice" / "step" / "memory.events"
    file.parent.mkdir(parents=True)
    assert OomWatch(file).limit_mb() is None
    (file.parent / "memory.max").write_text("max\n")
    assert OomWatch(file).limit_mb() is None
    (tmp_path / "slice" / "memory.max").write_text(f"{2 << 30}\n")
    assert OomWatch(file).limit_mb() == 2048
    old = tmp_path / "memory.oom_control"
    (tmp_path / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert OomWatch(old).limit_mb() is None


def test_kills_are_counted_from_the_beginning(tmp_path: Path) -> None:
    file = tmp_path / "memory.events"
    file.write_text("oom 1\noom_kill 4\n")
    watch = OomWatch(file)
    assert watch.kills() == 0
    file.write_text("oom 2\noom_kill 5\n")
    assert watch.kills() == 1
