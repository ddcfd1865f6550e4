"""Samples of an attempt's processes."""

from __future__ import annotations

import sys
from collections.abc import Callable
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
    first = sampler.read((None, None), dict)
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
    sampler.read((None, None), dict)
    clock.now += 1
    found[7] = process(8.0, 10)
    sample = sampler.read((None, None), dict)
    assert sample is not None
    assert sample.cpu == 0.0


def test_nothing_is_measured_when_all_processes_have_ended_and_reports_are_kept() -> None:
    clock = Clock()
    found = {7: process(10.0, 10)}
    sampler = Sampler(lambda: found, lambda: clock.now, lambda: clock.cpu)
    sampler.read((None, None), dict)
    clock.now += 1
    found.clear()
    assert sampler.read((None, None), dict) is None
    clock.now += 1
    last = sampler.read((None, None), lambda: {"loss": 0.1})
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
        count += sampler.read((None, None), take) is not None
        clock.now += 0.1
    assert count == 6  # 2 ms each: at most one in about two seconds
    assert len(taken) == count


def test_a_line_of_the_gpu_helper_is_understood() -> None:
    assert parse_gpus(b"0.250 1024.0\n") == (0.25, 1024.0)
    assert parse_gpus(b"- 1024.0\n") == (None, 1024.0)
    assert parse_gpus(b"") == (None, None)
    assert parse_gpus(b"a b") == (None, None)


class Driver(SimpleNamespace):
    """What of nvidia-ml-py is used. A device is its index; partitioned ones have no utilisation."""

    class NVMLError(Exception): ...

    def __init__(self) -> None:
        super().__init__(uuids={"GPU-a": 0, "MIG-b": 1}, use={0: 100, 2: 50}, memory=[100, 50, 50])

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        try:
            return self.uuids[uuid]
        except KeyError:
            raise self.NVMLError("Not Found") from None

    def nvmlDeviceGetUtilizationRates(self, device: int) -> SimpleNamespace:
        try:
            return SimpleNamespace(gpu=self.use[device])
        except KeyError:
            raise self.NVMLError("Not Supported") from None

    def nvmlDeviceGetMemoryInfo(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(used=self.memory[device] * MB)


def test_devices_are_averaged_and_their_memory_added() -> None:
    assert measure_gpus(Driver(), [0, 2]) == (0.75, 150.0)


def test_of_a_partitioned_device_the_memory_is_known() -> None:
    assert measure_gpus(Driver(), [0, 1]) == (None, 150.0)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    return driver


def measured(
    monkeypatch: pytest.MonkeyPatch, devices: list[str], between: list[Callable[[], None]]
) -> int:
    """The helper's exit status; what happens between its looks, after the last of which its agent ends."""
    looks = iter(between)

    def select(*args: object) -> tuple[list[int], ...]:
        for do in looks:
            do()
            return [], [], []
        return [0], [], []

    monkeypatch.setattr(metrics.select, "select", select)
    return metrics.main(["1", *devices])


def test_devices_are_measured_by_uuid_and_by_sparks_numbers(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measured(monkeypatch, ["GPU-a", "2"], []) == 0
    assert capsys.readouterr().out == "0.750 150.000\n"


def test_measuring_goes_on_after_an_error_of_the_driver(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use = driver.use.pop(0)
    assert measured(monkeypatch, ["0"], [lambda: driver.use.update({0: use})]) == 0
    assert capsys.readouterr().out == "- 100.000\n1.000 100.000\n"


def test_a_device_that_is_not_there_is_told(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measured(monkeypatch, ["GPU-x"], []) == 4
    assert capsys.readouterr().err == "GPUs GPU-x can't be measured: Not Found\n"
