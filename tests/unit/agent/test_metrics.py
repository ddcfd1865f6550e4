"""Samples of an attempt's processes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from howdah.agent.host.processes import Stat
from howdah.agent.monitoring import metrics
from howdah.agent.monitoring.metrics import Sampler, measure_gpus, parse_gpus

MB = 1024 * 1024


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.cpu = 0.0


def process(cpu_s: float, rss_mb: int) -> Stat:
    return Stat(7, 1, 7, 7, False, 0, cpu_s, rss_mb * MB)


@pytest.fixture(autouse=True)
def io(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "io_bytes", lambda pids: (3 * MB, 5 * MB))


def test_cores_are_counted_between_two_samples() -> None:
    clock = Clock()
    found = {7: process(1.0, 10)}
    sampler = Sampler(lambda: found, lambda: clock.now, lambda: clock.cpu)
    first = sampler.read(None, dict)
    assert first is not None
    assert (first.cpu, first.rss_mb, first.io_read_mb, first.io_write_mb) == (None, 10, 3, 5)
    clock.now += 2
    found[7] = process(4.0, 20)
    second = sampler.read((0.5, 100.0), lambda: {"loss": 1.0})
    assert second is not None
    assert (second.cpu, second.rss_mb) == (1.5, 20)
    assert (second.gpu, second.gpu_memory_mb, second.values) == (0.5, 100.0, {"loss": 1.0})


def test_a_process_that_ended_unseen_does_not_count_backwards() -> None:
    clock = Clock()
    found = {7: process(10.0, 10)}
    sampler = Sampler(lambda: found, lambda: clock.now, lambda: clock.cpu)
    sampler.read(None, dict)
    clock.now += 1
    found[7] = process(8.0, 10)
    sample = sampler.read(None, dict)
    assert sample is not None
    assert sample.cpu == 0.0


def test_nothing_is_measured_when_all_processes_have_ended_and_reports_are_kept() -> None:
    clock = Clock()
    found = {7: process(10.0, 10)}
    sampler = Sampler(lambda: found, lambda: clock.now, lambda: clock.cpu)
    sampler.read(None, dict)
    clock.now += 1
    found.clear()
    assert sampler.read(None, dict) is None
    clock.now += 1
    last = sampler.read(None, lambda: {"loss": 0.1})
    assert last is not None
    assert (last.values, last.cpu, last.rss_mb, last.io_read_mb) == (
        {"loss": 0.1},
        None,
        None,
        None,
    )


def test_where_looking_is_dear_it_is_done_less_often_and_reports_are_kept() -> None:
    clock = Clock()

    def dear() -> dict[int, Stat]:
        clock.cpu += 0.002
        return {7: process(clock.cpu, 10)}

    taken: list[int] = []

    def take() -> dict[str, float]:
        taken.append(1)
        return {}

    sampler = Sampler(dear, lambda: clock.now, lambda: clock.cpu)
    count = 0
    for _ in range(100):
        count += sampler.read(None, take) is not None
        clock.now += 0.1
    assert count == 6  # 2 ms each: at most one in about two seconds
    assert len(taken) == count


def test_a_line_of_the_gpu_helper_is_understood() -> None:
    assert parse_gpus(b"0.250 1024.0\n") == (0.25, 1024.0)
    assert parse_gpus(b"") is None
    assert parse_gpus(b"a b") is None


def test_devices_are_averaged_and_their_memory_added() -> None:
    nvml = SimpleNamespace(
        nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=device),
        nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(used=device * MB),
    )
    assert measure_gpus(nvml, [100, 50]) == (0.75, 150.0)
