"""Container processes that register with another state than their coordinator has. No Spark here."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import psutil
import pytest

from howdah.backends.local.runtime_paths import FOLDER_VARIABLE
from howdah.backends.spark import backend as spark_backend
from howdah.backends.spark import container_folder, registry, slot_task
from howdah.backends.spark.messages import (
    Exited,
    FilePart,
    Register,
    Registered,
    SlotsCompleted,
    StopProcess,
    ToContainer,
)
from howdah.backends.spark.registry import LaunchedContainer, RegistryState
from howdah.backends.spark.site import read_settings, write_settings
from howdah.core.messages import ContainerEnded, ContainerEndKind
from howdah.spec.model import Slots
from howdah.storage import layout
from howdah.storage.files import write_atomically
from howdah.wire import tls
from howdah.wire.channel import Channel, connect
from tests.conformance.harness import Coordinator, eventually
from tests.conformance.spark import SparkHarness


def run(folder: Path, test: Callable[[SparkHarness], Awaitable[None]]) -> None:
    async def within() -> None:
        harness = SparkHarness(folder)
        try:
            async with asyncio.timeout(150):
                await test(harness)
        finally:
            await harness.close()

    asyncio.run(within())


def test_a_launch_that_was_never_sent_ends_its_container_and_the_process_serves_the_next_request(
    tmp_path: Path,
) -> None:
    async def test(harness: SparkHarness) -> None:
        first = await harness.coordinator()
        [container_id] = await first.grant(1)
        await harness.crash(first)
        # It died with the launch on disk, and none of it sent.
        [base] = harness.drivers[0].bases
        name = base.name.removeprefix(container_folder.PREFIX)
        await RegistryState(harness.directory.path).launched(
            container_id, LaunchedContainer(name=name, role="small", host="here", spark_job=1)
        )
        second = await harness.coordinator()
        assert list(second.held) == [container_id]
        ended = await second.ended(container_id)
        assert ended.kind is ContainerEndKind.LAUNCH_FAILED
        [again] = await second.grant(2)
        await harness.launch(second, again, "wait")
        assert await harness.pids(again)
        assert harness.drivers[1].bases == []

    run(tmp_path, test)


def test_a_container_begins_though_another_jobs_last_process_removes_the_empty_folder_for_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "run"))

    def just_then(folder: Path) -> None:
        with contextlib.suppress(OSError):
            folder.rmdir()

    monkeypatch.setattr(container_folder, "remove_abandoned", just_then)

    async def test(harness: SparkHarness) -> None:
        coordinator = await harness.coordinator()
        [container_id] = await coordinator.grant(1)
        await harness.launch(coordinator, container_id, "wait")
        assert await harness.pids(container_id)

    run(tmp_path, test)


def test_a_container_that_comes_back_after_it_was_lost_is_ended_before_its_process_serves_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(harness: SparkHarness) -> None:
        first = await harness.coordinator()
        [container_id] = await first.grant(1)
        await harness.launch(first, container_id, "wait")
        pids = await harness.pids(container_id)
        process = psutil.Process(pids[-1]).parent()
        assert process is not None
        process.suspend()  # as a paused machine does
        try:
            await harness.crash(first)
            monkeypatch.setattr(spark_backend, "LEASE_S", 0.1)
            second = await harness.coordinator()
            harness.drivers[1].full = True
            ended = await second.ended(container_id)
            assert ended.kind is ContainerEndKind.NODE_LOST
        finally:
            process.resume()
        [again] = await second.grant(2)
        assert await harness.alive(pids) == []
        await harness.launch(second, again, "wait")
        assert psutil.Process((await harness.pids(again))[-1]).parent() == process
        assert [event.container_id for event in second.all(ContainerEnded)] == [container_id]

    run(tmp_path, test)


def test_what_a_container_left_while_no_coordinator_was_there_is_uploaded_before_its_end_is_reported(
    tmp_path: Path,
) -> None:
    async def test(harness: SparkHarness) -> None:
        first = await harness.coordinator()
        harness.drivers[0].far = True
        [container_id] = await first.grant(1)
        await harness.launch(first, container_id, "wait")
        await harness.pids(container_id)
        await harness.crash(first)
        [base] = harness.drivers[0].bases
        model = os.urandom(8 << 20)  # more than is sent at a time
        (base / container_id / container_folder.JOB / layout.OUTPUTS / "model").write_bytes(model)
        await harness.kill_agent(container_id)
        log = base / container_folder.LOG
        await eventually(
            lambda: f"container {container_id}:" in log.read_text(), "the process knows its end"
        )
        second = await harness.coordinator()
        assert (await second.ended(container_id)).kind is ContainerEndKind.EXITED
        assert (harness.directory.path / layout.OUTPUTS / "model").read_bytes() == model
        [again] = await second.grant(2)
        await harness.launch(second, again, "wait")
        assert await harness.pids(again)
        assert (base / again).is_dir()  # in the same process

    run(tmp_path, test)


async def far_folder(
    harness: SparkHarness, coordinator: Coordinator, request_id: int = 1
) -> tuple[str, Path]:
    """A container on a host that does not see the job directory, and what it has instead of that."""
    harness.drivers[-1].far = True
    [container_id] = await coordinator.grant(request_id)
    await harness.launch(coordinator, container_id, "wait")
    await harness.pids(container_id)
    bases = [base for driver in harness.drivers for base in driver.bases]
    [folder] = [base / container_id for base in bases if (base / container_id).is_dir()]
    return container_id, folder / container_folder.JOB


@pytest.mark.parametrize(
    ("agent", "unsaved"),
    [
        ("tests.spark.little_upload:main", "outputs: not all was uploaded"),
        ("tests.spark.late_upload:main", "its files and what follows: not uploaded"),
    ],
)
def test_the_end_of_a_container_says_which_of_its_files_were_not_uploaded(
    tmp_path: Path, agent: str, unsaved: str
) -> None:
    async def test(harness: SparkHarness) -> None:
        harness.agent = agent
        coordinator = await harness.coordinator()
        container_id, folder = await far_folder(harness, coordinator)
        (folder / layout.OUTPUTS / "model").write_bytes(b"x" * 2000)
        await harness.kill_agent(container_id)
        ended = await coordinator.ended(container_id)
        assert len(ended.unsaved) == 1 and ended.unsaved[0].startswith(unsaved)

    run(tmp_path, test)


async def far_shared_folder(
    harness: SparkHarness, coordinator: Coordinator, request_id: int
) -> tuple[str, Path]:
    """As `far_folder`, but its shared folder."""
    container_id, folder = await far_folder(harness, coordinator, request_id)
    return container_id, folder / layout.SHARED


async def whole(path: Path, text: str) -> None:
    await eventually(lambda: path.exists() and path.read_text() == text, f"all of {path} is there")


def test_two_containers_that_leave_files_of_one_name_in_the_shared_folder_mix_nothing(
    tmp_path: Path,
) -> None:
    async def test(harness: SparkHarness) -> None:
        coordinator = await harness.coordinator()
        first, one = await far_shared_folder(harness, coordinator, 1)
        second, other = await far_shared_folder(harness, coordinator, 2)
        model = harness.directory.path / layout.SHARED / "model"
        (one / "model").write_text("A" * 700_000)
        await whole(model, "A" * 700_000)
        (other / "model").write_text("B" * 600_000)
        (other / "own").write_text("B")
        await harness.kill_agent(second)
        [unsaved] = (await coordinator.ended(second)).unsaved
        assert unsaved.startswith("shared/model: ") and "another task" in unsaved
        assert model.read_text() == "A" * 700_000
        assert model.with_name("own").read_text() == "B"
        with (one / "model").open("a") as file:
            file.write("C")
        await harness.kill_agent(first)
        assert (await coordinator.ended(first)).unsaved == ()
        assert model.read_text() == "A" * 700_000 + "C"
        again, there = await far_shared_folder(harness, coordinator, 3)
        (there / "model").write_text("D")
        await harness.kill_agent(again)
        assert (await coordinator.ended(again)).unsaved == ()
        assert model.read_text() == "D"

    run(tmp_path, test)


def test_a_file_that_a_task_has_left_in_the_job_directory_itself_is_not_replaced_by_a_containers(
    tmp_path: Path,
) -> None:
    async def test(harness: SparkHarness) -> None:
        coordinator = await harness.coordinator()
        container_id, there = await far_shared_folder(harness, coordinator, 1)
        model = harness.directory.path / layout.SHARED / "model"
        model.write_text("of a task that sees the job directory")
        (there / "model").write_text("of a container")
        await harness.kill_agent(container_id)
        [unsaved] = (await coordinator.ended(container_id)).unsaved
        assert unsaved.startswith("shared/model: ") and "another task" in unsaved
        assert model.read_text() == "of a task that sees the job directory"

    run(tmp_path, test)


def test_the_next_coordinator_knows_whose_the_files_of_the_shared_folder_are(
    tmp_path: Path,
) -> None:
    async def test(harness: SparkHarness) -> None:
        first = await harness.coordinator()
        ended, gone = await far_shared_folder(harness, first, 1)
        (gone / "model").write_text("of a task that is started again")
        await harness.kill_agent(ended)
        await first.ended(ended)
        running, there = await far_shared_folder(harness, first, 2)
        (there / "data").write_text("A")
        data = harness.directory.path / layout.SHARED / "data"
        await whole(data, "A")
        await harness.crash(first)
        second = await harness.coordinator()
        again, new = await far_shared_folder(harness, second, 3)
        (new / "model").write_text("new")
        (new / "data").write_text("B")
        await harness.kill_agent(again)
        [unsaved] = (await second.ended(again)).unsaved
        assert unsaved.startswith("shared/data: ")
        assert data.with_name("model").read_text() == "new"
        with (there / "data").open("a") as file:
            file.write("C")
        await harness.kill_agent(running)
        assert (await second.ended(running)).unsaved == ()
        assert data.read_text() == "AC"

    run(tmp_path, test)


def on_the_driver(harness: SparkHarness, address: str) -> None:
    """The role's containers are on the driver's machine, where the job listens at that address only."""
    port = harness.listen(address)
    path = harness.directory.path
    settings = msgspec.structs.replace(
        read_settings(path), bind=address, port=port, on_driver=("small",)
    )
    write_settings(path, settings)


def test_a_container_on_the_drivers_machine_connects_where_the_jobs_interface_is(
    tmp_path: Path,
) -> None:
    async def test(harness: SparkHarness) -> None:
        on_the_driver(harness, "127.0.0.2")
        coordinator = await harness.coordinator()
        assert await coordinator.grant(1)
        assert harness.drivers[0].bases == []

    run(tmp_path, test)


def test_a_container_process_on_the_drivers_machine_that_dies_at_once_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken" / "howdah"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('half of an installation')")
    monkeypatch.setattr(slot_task, "python_path", lambda: str(broken.parent))

    async def test(harness: SparkHarness) -> None:
        on_the_driver(harness, "127.0.0.1")
        coordinator = await harness.coordinator()
        await coordinator.ask(1)
        assert "half of an installation" in (await coordinator.refused(1)).reason

    run(tmp_path, test)


async def dial(harness: SparkHarness, here: Register) -> Channel[ToContainer]:
    """A container process that registers so, and then sends nothing by itself."""
    directory = harness.directory
    channel: Channel[ToContainer] = await connect(
        "127.0.0.1",
        read_settings(directory.path).port,
        tls.client_context(directory.secrets, tls.PeerRole.AGENT),
        job_id=directory.job_id,
        receives=ToContainer,
    )
    channel.send(here)
    return channel


async def orders(channel: Channel[ToContainer], count: int) -> list[tuple[str, str]]:
    """The next orders: what, and to which container."""
    found: list[tuple[str, str]] = []
    while len(found) < count:
        message = await channel.receive()
        assert message is not None
        if not isinstance(message, Registered | StopProcess):
            found.append((type(message).__name__, message.container_id))
    return found


def test_a_process_that_missed_an_acknowledgement_gets_it_before_its_next_launch_and_both_again(
    tmp_path: Path,
) -> None:
    async def test(harness: SparkHarness) -> None:
        coordinator = await harness.coordinator()
        harness.drivers[0].full = True
        here = Register(name="one", spark_job=1, host="here", base="/tmp/one", sees_job_dir=True)
        channel = await dial(harness, here)
        [first] = await coordinator.grant(1)
        await harness.launch(coordinator, first, "wait")
        assert await orders(channel, 1) == [("Launch", first)]
        exited = Exited(container_id=first, kind=ContainerEndKind.EXITED)
        channel.send(exited)
        await coordinator.ended(first)
        [second] = await coordinator.grant(2)
        await harness.launch(coordinator, second, "wait")
        for sent in (exited, exited, None):  # without it, it has files to upload first
            channel.abort()
            again = msgspec.structs.replace(here, container_id=first, exited=sent)
            channel = await dial(harness, again)
            assert await orders(channel, 2) == [("AcknowledgeExit", first), ("Launch", second)]
        channel.send(Exited(container_id=second, kind=ContainerEndKind.EXITED))
        assert (await coordinator.ended(second)).kind is ContainerEndKind.EXITED
        assert len(coordinator.all(ContainerEnded)) == 2
        channel.abort()

    run(tmp_path, test)


def test_a_file_that_cannot_be_written_on_the_drivers_machine_is_said_with_its_containers_end(
    tmp_path: Path,
) -> None:
    async def test(harness: SparkHarness) -> None:
        coordinator = await harness.coordinator()
        harness.drivers[0].full = True
        channel = await dial(
            harness, Register(name="one", spark_job=1, host="here", base="/tmp/one")
        )
        [container_id] = await coordinator.grant(1)
        await harness.launch(coordinator, container_id, "wait")
        outputs = harness.directory.path / layout.OUTPUTS
        (outputs / "model").mkdir(parents=True)
        for path, offset in (("model", 0), ("fine", 0), ("model", 3)):
            channel.send(FilePart(path=f"{layout.OUTPUTS}/{path}", offset=offset, data=b"one"))
            if path == "fine":  # there is room again: what comes now would leave a hole
                await eventually((outputs / "fine").exists, "the first part was refused")
                (outputs / "model").rmdir()
        channel.send(Exited(container_id=container_id, kind=ContainerEndKind.EXITED))
        [line] = (await coordinator.ended(container_id)).unsaved
        assert line.startswith(f"{layout.OUTPUTS}/model: could not be written")
        assert not (outputs / "model").exists()
        channel.abort()

    run(tmp_path, test)


def test_last_files_of_a_process_that_is_lost_before_it_has_sent_them_are_said_to_be_unsaved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_backend, "LEASE_S", 0.1)

    async def test(harness: SparkHarness) -> None:
        coordinator = await harness.coordinator()
        harness.drivers[0].full = True
        for number, (seen, released) in enumerate([(False, True), (True, True), (False, False)], 1):
            here = Register(
                name=f"n{number}", spark_job=1, host="here", base="/tmp/x", sees_job_dir=seen
            )
            channel = await dial(harness, here)
            [container_id] = await coordinator.grant(number)
            await harness.launch(coordinator, container_id, "wait")
            if released:
                await coordinator.backend.release(container_id)
            channel.abort()
            unsaved = (await coordinator.ended(container_id)).unsaved
            assert len(unsaved) == (number == 1)
            assert all("its last files may not have been uploaded" in line for line in unsaved)

    run(tmp_path, test)


def test_files_that_come_again_after_their_containers_end_is_recorded_replace_no_newer_ones(
    tmp_path: Path,
) -> None:
    async def test(harness: SparkHarness) -> None:
        coordinator = await harness.coordinator()
        harness.drivers[0].full = True
        model = harness.directory.path / layout.SHARED / "model"
        registrations: list[Register] = []
        channels: list[Channel[ToContainer]] = []
        for number, name in enumerate(("one", "two"), 1):
            here = Register(name=name, spark_job=1, host="here", base=f"/tmp/{name}")
            channels.append(await dial(harness, here))
            [container_id] = await coordinator.grant(number)
            await harness.launch(coordinator, container_id, "wait")
            registrations.append(msgspec.structs.replace(here, container_id=container_id))

        def send_all(number: int) -> None:
            here = registrations[number]
            part = FilePart(path=f"{layout.SHARED}/model", offset=0, data=here.name.encode())
            channels[number].send(part)
            exited = Exited(container_id=here.container_id, kind=ContainerEndKind.EXITED)
            channels[number].send(exited)

        for number in (0, 1):
            send_all(number)
            assert (await coordinator.ended(registrations[number].container_id)).unsaved == ()
        channels[0].abort()
        channels[0] = await dial(harness, registrations[0])
        send_all(0)
        first = registrations[0].container_id
        assert await orders(channels[0], 2) == [("AcknowledgeExit", first)] * 2
        assert model.read_text() == "two"
        for channel in channels:
            channel.abort()

    run(tmp_path, test)


def test_a_container_process_keeps_its_name_under_the_next_coordinator_too(tmp_path: Path) -> None:
    """A program beside an agent shows the certificate that they all have, and another process's name."""

    async def test(harness: SparkHarness) -> None:
        first = await harness.coordinator()
        harness.drivers[0].full = True
        here = Register(
            name="one", secret="own", spark_job=1, host="here", base="/tmp/one", sees_job_dir=True
        )
        await dial(harness, here)
        [container_id] = await first.grant(1)
        await harness.launch(first, container_id, "wait")
        here = msgspec.structs.replace(here, container_id=container_id)

        async def strangers_are_refused() -> None:
            for secret in ("", "other"):
                stranger = await dial(harness, msgspec.structs.replace(here, secret=secret))
                assert await stranger.receive() is None

        await strangers_are_refused()
        assert not first.all(ContainerEnded)
        await harness.crash(first)
        second = await harness.coordinator()
        harness.drivers[1].full = True
        await strangers_are_refused()
        channel = await dial(harness, here)
        channel.send(Exited(container_id=container_id, kind=ContainerEndKind.EXITED))
        assert (await second.ended(container_id)).kind is ContainerEndKind.EXITED
        channel.abort()

    run(tmp_path, test)


def test_processes_of_a_spark_job_that_failed_end_their_containers_at_once_and_get_no_other(
    tmp_path: Path,
) -> None:
    """With spark.task.maxFailures = 1 one lost executor ends the tasks that hold the other slots."""

    async def test(harness: SparkHarness) -> None:
        path = harness.directory.path
        write_settings(path, msgspec.structs.replace(read_settings(path), slots=Slots.HELD))
        coordinator = await harness.coordinator()
        driver = harness.drivers[0]
        driver.full = True
        channels: list[Channel[ToContainer]] = []
        containers: list[str] = []
        for number, name in enumerate(("launched", "granted", "spare"), 1):
            here = Register(name=name, spark_job=7, host="here", base="/tmp/x", sees_job_dir=True)
            channels.append(await dial(harness, here))
            if name != "spare":
                containers += await coordinator.grant(number)
        launched, granted, spare = channels
        await harness.launch(coordinator, containers[0], "wait")
        assert await orders(launched, 1) == [("Launch", containers[0])]
        driver.say(SlotsCompleted(spark_job=7, problem="Job aborted due to stage failure"))
        assert await orders(launched, 1) == [("Release", containers[0])]
        assert (await coordinator.ended(containers[1])).kind is ContainerEndKind.PREEMPTED
        launched.send(Exited(container_id=containers[0], kind=ContainerEndKind.EXITED))
        assert (await coordinator.ended(containers[0])).kind is ContainerEndKind.PREEMPTED
        for channel in (launched, granted, spare):
            while not isinstance(await channel.receive(), StopProcess):
                pass
        driver.full = False
        [again] = await coordinator.grant(3)
        await harness.launch(coordinator, again, "wait")
        assert await harness.pids(again)
        for channel in channels:
            channel.abort()

    run(tmp_path, test)


def test_a_task_that_ended_without_a_container_process_is_requested_again_while_others_hold_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer comes with those of the others: at the end of them all."""
    monkeypatch.setattr(spark_backend, "MISSING_S", 0.0)

    async def test(harness: SparkHarness) -> None:
        path = harness.directory.path
        write_settings(path, msgspec.structs.replace(read_settings(path), slots=Slots.HELD))
        coordinator = await harness.coordinator()
        harness.drivers[0].lost = 1
        assert len(set(await coordinator.grant(1, 2))) == 2

    run(tmp_path, test)


def test_a_launch_is_on_disk_when_it_is_sent_and_all_of_one_turn_are_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Path] = []

    def write(path: Path, data: bytes) -> None:
        written.append(path)
        write_atomically(path, data)

    monkeypatch.setattr(registry, "write_atomically", write)
    entry = LaunchedContainer(name="one", role="small", host="here")

    async def launch(state: RegistryState, container_id: str) -> None:
        await state.launched(container_id, entry)
        assert registry.read_state(tmp_path).containers[container_id] == entry

    async def test() -> None:
        state = RegistryState(tmp_path)
        await asyncio.gather(*(launch(state, f"c{number:04d}") for number in range(100)))
        assert len(written) == 1
        await launch(state, "c0100")
        assert len(written) == 2

    asyncio.run(test())
