"""Devices of one machine among several jobs, with a fake lister and real locks."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import threading
import types
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from howdah.agent.launch import AgentLaunch
from howdah.backends import gpus
from howdah.backends.base import BackendError, RoleResources
from howdah.backends.gpus import Device, DeviceLocks, GpuError, allowed, nvml_devices
from howdah.backends.local import backend as local_backend
from howdah.backends.local.allocation import gpus_short
from howdah.backends.local.backend import LocalBackend
from howdah.backends.local.machine import check
from howdah.core.messages import ContainerGranted, RequestRefused
from howdah.frameworks import planning
from howdah.spec.model import Job, Mode, Role
from howdah.storage import runtime
from tests.conformance.harness import Coordinator, eventually, job, of_a_local_job, run
from tests.conformance.local import LocalHarness, make_job

DEVICES = [Device(uuid=f"GPU-{letter * 8}", index=str(n)) for n, letter in enumerate("abcd")]


class GpuHarness(LocalHarness):
    """A job whose role ``small`` has ``each`` devices a container, on a machine with four."""

    def __init__(
        self,
        folder: Path,
        each: int = 1,
        instances: int | str = 1,
        mode: Mode = Mode.GANG,
        visible: str | None = None,
    ) -> None:
        super().__init__(folder)
        role = Role(instances=instances, gpus=each, command="true")
        self.directory = make_job(folder, Job(command="true", mode=mode, roles={"small": role}))
        self.roles = {"small": RoleResources(gpus=each)}
        self.locks = DeviceLocks(folder / "locks")
        self.env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        self.listed = 0
        self.machine: Sequence[Device] = DEVICES
        self.driver_problem = ""
        self.driver_answers = threading.Event()
        self.driver_answers.set()

    def lister(self) -> Sequence[Device]:
        self.listed += 1
        self.driver_answers.wait(20.0)
        if self.driver_problem:
            raise GpuError(self.driver_problem)
        return self.machine

    async def coordinator(self) -> Coordinator:
        backend = LocalBackend(
            self.directory, node=self.options, lister=self.lister, locks=self.locks, env=self.env
        )
        coordinator = Coordinator(backend)
        await coordinator.start(self.roles)
        self.coordinators.append(coordinator)
        return coordinator

    def launched(self, container_id: str) -> AgentLaunch:
        file = self.directory.container_path(container_id) / "launch.json"
        return msgspec.json.decode(file.read_bytes(), type=AgentLaunch)

    def free(self) -> list[str]:
        """Devices nobody holds at this moment."""
        taken = self.locks.take(DEVICES, lambda count: count)
        assert taken is not None
        for _, descriptor in taken:
            os.close(descriptor)
        return [device.uuid for device, _ in taken]


@of_a_local_job(GpuHarness, each=2, instances=2)
async def test_each_container_gets_devices_of_its_own_and_the_locks_go_with_its_agent(
    harness: GpuHarness, coordinator: Coordinator
) -> None:
    containers = await coordinator.grant(1, 2)
    for container in containers:
        await harness.launch(coordinator, container, "locks")
        await harness.pids(container)
    given = [harness.launched(container).gpus for container in containers]
    assert sorted([*given[0], *given[1]]) == [d.uuid for d in DEVICES]
    assert harness.launched(containers[0]).gpu_locks == (3, 4)
    await eventually(lambda: harness.free() == [], "all devices are taken")

    await harness.crash(coordinator)  # the locks are the agents' now
    assert harness.free() == []
    second = await harness.coordinator()
    await second.backend.release(containers[0])
    await second.ended(containers[0])
    assert sorted(harness.free()) == sorted(given[0])


@of_a_local_job(GpuHarness, each=4)
async def test_devices_of_a_container_never_launched_are_free_when_it_is_released(
    harness: GpuHarness, coordinator: Coordinator
) -> None:
    (container,) = await coordinator.grant(1)
    assert harness.free() == []
    await coordinator.backend.release(container)
    await coordinator.ended(container)
    assert len(harness.free()) == 4


def test_two_jobs_that_want_all_devices_take_turns_and_never_hold_half_each(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        made: list[GpuHarness] = []

        def make() -> GpuHarness:
            made.append(GpuHarness(tmp_path, each=1, instances=4))
            return made[-1]

        async with job(make) as (_, one), job(make) as (_, other):
            await asyncio.gather(one.ask(1, 2, 3, 4), other.ask(1, 2, 3, 4))
            await eventually(
                lambda: len(one.all(ContainerGranted)) + len(other.all(ContainerGranted)) == 4,
                "one of them has all",
            )
            winner, loser = (one, other) if one.all(ContainerGranted) else (other, one)
            assert len(winner.all(ContainerGranted)) == 4
            assert loser.all(ContainerGranted) == []
            assert await loser.backend.waiting() == (
                "GPUs asked for: 4, free: 0 of 4; other jobs on this machine hold the others"
            )
            for event in winner.all(ContainerGranted):
                await winner.backend.release(event.container_id)
            for number in (1, 2, 3, 4):
                await loser.granted(number)
            assert await loser.backend.waiting() == ""

    run(test)


def test_a_request_taken_back_while_it_waits_is_never_granted(tmp_path: Path) -> None:
    async def test() -> None:
        def make() -> GpuHarness:
            return GpuHarness(tmp_path, each=4)

        async with job(make) as (_, one), job(make) as (_, other):
            (container,) = await one.grant(1)
            await other.ask(1)
            await other.backend.cancel([1])
            await one.backend.release(container)
            await one.ended(container)
            await other.ask(1)  # the same request: it was taken back for good
            await other.grant(2)
            assert [e.request_id for e in other.all(ContainerGranted)] == [2]

    run(test)


@of_a_local_job(GpuHarness)
async def test_a_job_that_has_waited_takes_no_device_that_came_into_use_meanwhile(
    harness: GpuHarness, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_backend, "FRESH_S", 0.0)
    held = harness.locks.take(DEVICES, lambda free: free)
    assert held is not None
    await coordinator.ask(1)
    in_use = msgspec.structs.replace(DEVICES[0], busy=True)
    harness.machine = [in_use, *DEVICES[1:]]
    for _, descriptor in held[:2]:
        os.close(descriptor)
    await coordinator.granted(1)
    assert harness.free() == [DEVICES[0].uuid]
    for _, descriptor in held[2:]:
        os.close(descriptor)


@of_a_local_job(GpuHarness, each=3)
async def test_a_device_that_was_lost_meanwhile_is_not_given(
    harness: GpuHarness, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_backend, "FRESH_S", 0.0)
    harness.machine = [Device(uuid="", index="0", problem="GPU is lost"), *DEVICES[1:]]
    await coordinator.grant(1)
    assert harness.free() == [DEVICES[0].uuid]


@of_a_local_job(GpuHarness)
async def test_devices_are_chosen_by_what_was_known_when_the_driver_fails_later(
    harness: GpuHarness, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_backend, "FRESH_S", 0.0)
    harness.driver_problem = "Driver/library version mismatch"
    await coordinator.grant(1)
    harness.driver_problem = ""


@of_a_local_job(GpuHarness)
async def test_containers_go_on_when_their_next_coordinator_cannot_ask_the_driver(
    harness: GpuHarness, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_backend, "LISTED_AGAIN_S", (0.0, 0.0))
    (container,) = await coordinator.grant(1)
    await harness.launch(coordinator, container, "locks")
    await harness.pids(container)
    await harness.crash(coordinator)

    harness.driver_problem = "Driver/library version mismatch"
    listed = harness.listed
    second = await harness.coordinator()
    assert list(second.held) == [container]
    await second.ask(2)
    assert "version mismatch" in (await second.refused(2)).reason
    assert harness.listed >= listed + 3
    harness.driver_problem = ""
    await second.grant(3)


@of_a_local_job(GpuHarness)
async def test_requests_after_a_take_over_wait_for_a_driver_that_fails_for_a_moment(
    harness: GpuHarness, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_backend, "LISTED_AGAIN_S", [0.01] * 1000)
    (container,) = await coordinator.grant(1)
    await harness.launch(coordinator, container, "locks")
    await harness.pids(container)
    await harness.crash(coordinator)

    harness.driver_problem = "GPU access blocked by the operating system"
    listed = harness.listed
    second = await harness.coordinator()
    await second.ask(2)
    await eventually(lambda: harness.listed > listed + 2, "the driver is asked again")
    assert await second.backend.waiting() == (
        "which GPUs this machine has is not known, and the driver is asked again: "
        "GPU access blocked by the operating system"
    )
    harness.driver_problem = ""
    await second.granted(2)


@of_a_local_job(GpuHarness)
async def test_containers_go_on_while_the_driver_does_not_answer_their_next_coordinator(
    harness: GpuHarness, coordinator: Coordinator
) -> None:
    harness.roles = {**harness.roles, "evaluator": RoleResources()}
    (container,) = await coordinator.grant(1)
    await harness.launch(coordinator, container, "locks")
    await harness.pids(container)
    await harness.crash(coordinator)

    harness.driver_answers.clear()
    second = await harness.coordinator()
    assert list(second.held) == [container]
    await second.ask(2)
    assert "the GPU driver" in await second.backend.waiting()
    await second.ask(3, role="evaluator")
    await second.granted(3)
    await harness.crash(second)  # which does not wait for the driver either

    third = await harness.coordinator()
    await third.ask(2)
    harness.driver_answers.set()
    await third.granted(2)


@of_a_local_job(GpuHarness, each=0)
async def test_tasks_without_devices_do_not_start_the_driver(
    harness: GpuHarness, coordinator: Coordinator
) -> None:
    await coordinator.grant(1)
    assert harness.listed == 0


def test_the_submitters_visible_devices_are_the_limit(tmp_path: Path) -> None:
    async def test() -> None:
        harness = GpuHarness(tmp_path, each=2, visible="3,GPU-aa")
        async with job(lambda: harness) as (_, coordinator):
            (container,) = await coordinator.grant(1)
            await harness.launch(coordinator, container, "locks")
            await harness.pids(container)
            assert sorted(harness.launched(container).gpus) == ["GPU-aaaaaaaa", "GPU-dddddddd"]

    run(test)


def test_a_job_that_can_never_run_is_refused_before_anything_starts() -> None:
    job = planning.expand(Job(command="true", roles={"w": Role(gpus=2, memory="900t")}))
    with pytest.raises(BackendError) as refused:
        check(job, {"CUDA_VISIBLE_DEVICES": "0"}, lambda: DEVICES)
    assert "CUDA_VISIBLE_DEVICES leaves 1 of this machine's 4" in str(refused.value)
    assert "roles.w.memory" in str(refused.value)
    check(planning.expand(Job(command="true", roles={"w": Role(gpus=2)})), {}, lambda: DEVICES)


@of_a_local_job(GpuHarness, instances="2..8")
async def test_an_elastic_job_starts_with_what_there_is(
    _: GpuHarness, coordinator: Coordinator
) -> None:
    await coordinator.ask(*range(1, 9))
    for number in (1, 2, 3, 4):
        await coordinator.granted(number)
    assert len(coordinator.all(ContainerGranted)) == 4
    await coordinator.backend.release(coordinator.all(ContainerGranted)[0].container_id)
    await coordinator.granted(5)


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (
            (2, 1, 0, 4),
            "GPUs asked for: 2, free: 1 of 4; other jobs on this machine hold the others",
        ),
        ((2, 0, 4, 4), "GPUs asked for: 2, free: 0 of 4; this job holds 4"),
        (
            (2, 1, 1, 4),
            "GPUs asked for: 2, free: 1 of 4; this job holds 1, other jobs on this machine hold 2",
        ),
        ((2, 2, 0, 4), ""),
    ],
)
def test_a_job_that_waits_for_devices_says_who_has_them(
    figures: tuple[int, int, int, int], words: str
) -> None:
    assert gpus_short(*figures) == words


def test_locks_that_cannot_be_had_refuse_the_request_in_words(tmp_path: Path) -> None:
    own = runtime.private_folder(runtime.base()) / "gpus"

    async def test() -> None:
        async with job(lambda: GpuHarness(tmp_path)) as (_, coordinator):
            (tmp_path / "locks").write_text("in the way")
            own.write_text("in the way")
            await coordinator.ask(1)
            assert "mode 1777" in (await coordinator.refused(1)).reason
            assert coordinator.all(ContainerGranted) == []
            assert len(coordinator.all(RequestRefused)) == 1

    try:
        run(test)
    finally:
        own.unlink()


# -- the pieces ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, "0123"),
        ("", ""),
        ("-1", ""),
        ("NoDevFiles", ""),
        ("2", "2"),
        ("3,0", "30"),
        (" 1 , 2 ", "12"),
        ("1,1", "1"),
        ("0,9,1", "0"),
        ("GPU-bbbbbbbb,3", "13"),
        ("GPU-b", "1"),
        ("GPU-", ""),
        ("gpu-b", ""),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(visible: str | None, indices: str) -> None:
    assert "".join(d.index for d in allowed(DEVICES, visible)) == indices


@pytest.mark.parametrize(("visible", "indices"), [(None, "023"), ("0,1,2", "02"), ("1", "")])
def test_a_device_that_cannot_be_used_is_never_allowed_and_keeps_its_number(
    visible: str | None, indices: str
) -> None:
    lost = Device(uuid="", index="1", problem="GPU is lost")
    devices = [DEVICES[0], lost, *DEVICES[2:]]
    assert "".join(d.index for d in allowed(devices, visible)) == indices


def test_instances_of_a_partitioned_device_are_named_by_their_uuid() -> None:
    parts = [Device(uuid="MIG-1111", index="0:0"), Device(uuid="MIG-2222", index="0:1")]
    assert allowed(parts, "MIG-2222") == [parts[1]]
    assert allowed(parts, "0") == []


def test_devices_somebody_else_uses_are_taken_last(tmp_path: Path) -> None:
    busy = [Device(uuid=f"GPU-{n}", index=str(n), busy=n < 2) for n in range(4)]
    taken = DeviceLocks(tmp_path / "locks").take(busy, lambda free: 3)
    assert taken is not None
    assert [device.index for device, _ in taken] == ["2", "3", "0"]
    for _, descriptor in taken:
        os.close(descriptor)


def test_while_one_job_chooses_another_is_told_to_come_back(tmp_path: Path) -> None:
    locks, others = DeviceLocks(tmp_path / "locks"), DeviceLocks(tmp_path / "locks")
    seen: list[object] = []

    def choosing(free: int) -> int:
        seen.append(others.take(DEVICES, lambda count: count))
        return 0

    locks.take(DEVICES, choosing)
    assert seen == [None]


def test_the_lock_folder_is_open_to_all_users(tmp_path: Path) -> None:
    taken = DeviceLocks(tmp_path / "locks").take(DEVICES, lambda free: 0)
    assert taken == []
    assert (tmp_path / "locks").stat().st_mode & 0o7777 == 0o1777
    assert {p.stat().st_mode & 0o7777 for p in (tmp_path / "locks").iterdir()} == {0o1644}


@pytest.mark.parametrize("earlier", [False, True])
def test_the_files_of_locks_outlast_the_tidying_of_tmp(tmp_path: Path, earlier: bool) -> None:
    folder = tmp_path / "tmp" / "locks"
    folder.mkdir(parents=True)
    if earlier:  # as an earlier release made it
        (folder / "GPU-aaaaaaaa.lock").touch(mode=0o644)
    taken = DeviceLocks(folder).take(DEVICES[:1], lambda free: free) or []
    (tmp_path / "tidy.conf").write_text(f"d {folder.parent} - - - 0\n")  # all is old
    tool = shutil.which("systemd-tmpfiles")
    if tool is not None:
        subprocess.run([tool, "--clean", str(tmp_path / "tidy.conf")], check=False)
    assert {p.name for p in folder.iterdir()} >= {"GPU-aaaaaaaa.lock", "all.lock"}
    assert all(p.stat().st_mode & stat.S_ISVTX for p in folder.glob("*.lock"))
    assert DeviceLocks(folder).take(DEVICES[:1], lambda free: free) == []
    for _, descriptor in taken:
        os.close(descriptor)


def test_a_link_to_a_private_file_in_a_locks_place_stays_private(tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.touch(mode=0o600)
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "GPU-aaaaaaaa.lock").hardlink_to(private)
    DeviceLocks(tmp_path / "locks").take(DEVICES, lambda free: 0)
    assert private.stat().st_mode & 0o777 == 0o600


def test_a_lock_on_a_file_that_was_just_removed_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "locks"
    lock = fcntl.flock

    def removed_first(descriptor: int, how: int) -> None:
        lock(descriptor, how)
        monkeypatch.undo()
        for file in folder.iterdir():
            file.unlink()

    monkeypatch.setattr(fcntl, "flock", removed_first)
    seen: list[object] = []

    def choosing(free: int) -> int:
        seen.append(DeviceLocks(folder).take(DEVICES, lambda count: count))
        return 0

    DeviceLocks(folder).take(DEVICES, choosing)
    assert seen == [None], "two jobs choose at the same time"


class FakeNvml(types.ModuleType):
    """As much of nvidia-ml-py as is used: GPU 0 whole and busy, GPU 1 in two parts.

    ``failing`` are functions that raise an error, by name and handle.
    """

    NVML_DEVICE_MIG_ENABLE = 1
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_DRIVER_NOT_LOADED = 9

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"error {value}")
            self.value = value

    def __init__(self, init: int | None = None, *failing: tuple[str, object]) -> None:
        super().__init__("pynvml")
        self.init = init
        self.failing = failing
        self.open = 0

    def nvmlInit(self) -> None:
        if self.init is not None:
            raise self.NVMLError(self.init)
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def __getattr__(self, name: str) -> object:
        answers = {
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda number: f"gpu{number}",
            "nvmlDeviceGetMigMode": self._mig_mode,
            "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": self._part,
            "nvmlDeviceGetUUID": lambda handle: f"UUID-{handle}",
            "nvmlDeviceGetName": lambda handle: b"A name in bytes",
            "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(total=80 << 30),
            "nvmlDeviceGetComputeRunningProcesses": lambda handle: [1] if handle == "gpu0" else [],
        }
        if name not in answers:
            raise AttributeError(name)

        def answer(*arguments: object) -> object:
            if (name, *arguments) in self.failing:
                raise self.NVMLError(15)  # GPU is lost
            return answers[name](*arguments)  # type: ignore[operator]

        return answer

    def _mig_mode(self, handle: str) -> list[int]:
        if handle == "gpu0":
            raise self.NVMLError(3)  # not supported
        return [1, 1]

    def _part(self, handle: str, instance: int) -> str:
        if instance not in (0, 3):
            raise self.NVMLError(6)  # not found
        return f"{handle}-part{instance}"


def test_devices_are_listed_through_the_drivers_library(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert nvml_devices() == [
        Device(uuid="UUID-gpu0", index="0", name="A name in bytes", memory_mb=80 << 10, busy=True),
        Device(uuid="UUID-gpu1-part0", index="1:0", name="A name in bytes", memory_mb=80 << 10),
        Device(uuid="UUID-gpu1-part3", index="1:3", name="A name in bytes", memory_mb=80 << 10),
    ]
    assert fake.open == 0


@pytest.mark.parametrize("call", [("nvmlDeviceGetHandleByIndex", 0), ("nvmlDeviceGetUUID", "gpu0")])
def test_one_device_that_is_lost_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, call: tuple[str, object]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(None, call))
    lost, *others = nvml_devices()
    assert (lost.index, lost.problem) == ("0", "error 15")
    assert [device.index for device in others] == ["1:0", "1:3"]
    assert allowed([lost, *others], None) == others
    job = planning.expand(Job(command="true", roles={"w": Role(gpus=3)}))
    with pytest.raises(BackendError, match=r"has 2 \(GPU 0 can't be used: error 15\)"):
        check(job, {}, nvml_devices)


def test_a_device_without_a_memory_or_a_name_of_its_own_is_a_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = [(f"nvmlDeviceGet{what}", "gpu0") for what in ("MemoryInfo", "Name")]
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(None, *silent))
    assert nvml_devices()[0] == Device(uuid="UUID-gpu0", index="0", busy=True)


@pytest.mark.parametrize("code", [9, 12])
def test_a_machine_without_a_driver_has_no_devices(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(init=code))
    assert nvml_devices() == []


def test_a_driver_that_fails_is_told_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(init=999))
    with pytest.raises(GpuError, match="error 999"):
        nvml_devices()


def test_a_driver_without_the_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(gpus, "DRIVER", tmp_path)
    with pytest.raises(GpuError, match=r"howdah\[gpu\]"):
        nvml_devices()
    monkeypatch.setattr(gpus, "DRIVER", tmp_path / "missing")
    assert nvml_devices() == []
