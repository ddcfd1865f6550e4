"""The contract of `howdah.backends.base.Backend`, kept by every backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from howdah.backends.base import BackendError
from howdah.core.messages import ContainerEnded, ContainerEndKind, ContainerGranted
from tests.conformance.harness import Coordinator, Harness

Make = Callable[[], Harness]


@asynccontextmanager
async def job(make: Make) -> AsyncIterator[tuple[Harness, Coordinator]]:
    harness = make()
    try:
        yield harness, await harness.coordinator()
    finally:
        await harness.close()


async def none_left(harness: Harness, pids: Sequence[int]) -> None:
    """Nothing of a container is left when its end is told, or very soon."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + harness.settling_s
    while left := await harness.alive(pids):
        assert loop.time() < deadline, f"{left} are left"
        await asyncio.sleep(0.01)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(240):
            await test()

    asyncio.run(within())


def test_a_new_job_holds_nothing(make_harness: Make) -> None:
    async def test() -> None:
        async with job(make_harness) as (_, coordinator):
            assert list(coordinator.held) == []

    run(test)


def test_each_request_is_granted_once_even_when_asked_for_again(make_harness: Make) -> None:
    async def test() -> None:
        async with job(make_harness) as (_, coordinator):
            first = await coordinator.grant(1, 2)
            await coordinator.ask(1, 2)
            third = await coordinator.grant(3)  # whatever came of the second asking is here by now
            assert len({*first, *third}) == 3
            assert [e.request_id for e in coordinator.all(ContainerGranted)] == [1, 2, 3]
            assert all(e.node for e in coordinator.all(ContainerGranted))

    run(test)


def test_what_can_never_be_granted_is_refused_in_words(make_harness: Make) -> None:
    async def test() -> None:
        async with job(make_harness) as (harness, coordinator):
            other = Coordinator(coordinator.backend)
            try:
                await other.start(harness.roles)
            except BackendError as error:
                assert "big" in str(error)
                return
            await other.ask(1, role="big")
            assert (await other.refused(1)).reason

    run(test)


def test_an_unknown_role_is_refused(make_harness: Make) -> None:
    async def test() -> None:
        async with job(make_harness) as (_, coordinator):
            await coordinator.ask(1, role="nobody")
            assert "nobody" in (await coordinator.refused(1)).reason

    run(test)


def test_taking_back_a_request_that_is_granted_or_unknown_is_harmless(make_harness: Make) -> None:
    async def test() -> None:
        async with job(make_harness) as (_, coordinator):
            (container,) = await coordinator.grant(1)
            await coordinator.backend.cancel([1, 77])
            await coordinator.backend.release(container)
            assert (await coordinator.ended(container)).kind is ContainerEndKind.RELEASED

    run(test)


def test_a_container_released_before_its_launch_ends_as_released(make_harness: Make) -> None:
    async def test() -> None:
        async with job(make_harness) as (harness, coordinator):
            (container,) = await coordinator.grant(1)
            await coordinator.backend.release(container)
            ended = await coordinator.ended(container)
            assert ended.kind is ContainerEndKind.RELEASED
            await harness.launch(coordinator, container, "wait")  # too late, and harmless
            await coordinator.grant(2)
            assert coordinator.all(ContainerEnded) == [ended]

    run(test)


def test_a_container_released_during_its_launch_ends_and_leaves_nothing(make_harness: Make) -> None:
    async def test() -> None:
        async with job(make_harness) as (harness, coordinator):
            containers = await coordinator.grant(1, 2, 3, 4)
            for container in containers:
                await harness.launch(coordinator, container, "wait")
                await coordinator.backend.release(container)
            for container in containers:
                await coordinator.ended(container)
            assert len(coordinator.all(ContainerEnded)) == 4

    run(test)


def test_an_agent_runs_once_however_often_it_is_launched(make_harness: Make) -> None:
    async def test() -> None:
        async with job(make_harness) as (harness, coordinator):
            (container,) = await coordinator.grant(1)
            await harness.launch(coordinator, container, "wait")
            await harness.launch(coordinator, container, "wait")
            pids = await harness.pids(container)
            await harness.launch(coordinator, container, "wait")
            await coordinator.backend.release(container)
            await coordinator.ended(container)
            assert len(pids) == 1
            assert await harness.pids(container) == pids

    run(test)


@pytest.mark.parametrize("code", [0, 3])
def test_an_agent_that_ends_by_itself_ends_its_container(make_harness: Make, code: int) -> None:
    async def test() -> None:
        async with job(make_harness) as (harness, coordinator):
            (container,) = await coordinator.grant(1)
            await harness.launch(coordinator, container, f"exit:{code}")
            ended = await coordinator.ended(container)
            assert ended.kind is ContainerEndKind.EXITED
            assert code == 0 or str(code) in ended.detail

    run(test)


def test_a_launch_that_fails_is_reported(make_harness: Make) -> None:
    async def test() -> None:
        async with job(make_harness) as (harness, coordinator):
            await harness.break_launches()
            (container,) = await coordinator.grant(1)
            await harness.launch(coordinator, container, "wait")
            ended = await coordinator.ended(container)
            assert ended.kind is ContainerEndKind.LAUNCH_FAILED
            assert ended.detail

    run(test)


@pytest.mark.parametrize("word", ["wait", "stubborn", "children", "hidden"])
def test_release_ends_every_process_before_it_says_so(make_harness: Make, word: str) -> None:
    async def test() -> None:
        async with job(make_harness) as (harness, coordinator):
            if word == "hidden" and not harness.sees_hidden:
                pytest.skip("this backend does not find such a process")
            (container,) = await coordinator.grant(1)
            await harness.launch(coordinator, container, word)
            pids = await harness.pids(container)
            assert await harness.alive(pids) == pids
            await coordinator.backend.release(container)
            ended = await coordinator.ended(container)
            await none_left(harness, pids)
            assert ended.kind is ContainerEndKind.RELEASED

    run(test)


@pytest.mark.parametrize("word", ["wait", "children", "hidden"])
def test_a_killed_agent_leaves_nothing_when_its_end_is_told(make_harness: Make, word: str) -> None:
    async def test() -> None:
        async with job(make_harness) as (harness, coordinator):
            if word == "hidden" and not harness.sees_hidden:
                pytest.skip("this backend does not find such a process")
            (container,) = await coordinator.grant(1)
            await harness.launch(coordinator, container, word)
            pids = await harness.pids(container)
            await harness.kill_agent(container)
            ended = await coordinator.ended(container)
            await none_left(harness, pids)
            assert ended.kind is ContainerEndKind.EXITED

    run(test)


def test_releasing_a_container_twice_or_after_its_end_tells_its_end_once(
    make_harness: Make,
) -> None:
    async def test() -> None:
        async with job(make_harness) as (harness, coordinator):
            (container,) = await coordinator.grant(1)
            await harness.launch(coordinator, container, "wait")
            await coordinator.backend.release(container)
            await coordinator.backend.release(container)
            await coordinator.ended(container)
            await coordinator.backend.release(container)
            await coordinator.backend.release("never-heard-of")
            await coordinator.grant(2)
            assert len(coordinator.all(ContainerEnded)) == 1

    run(test)


def test_the_end_of_one_container_leaves_its_neighbours_alone(make_harness: Make) -> None:
    async def test() -> None:
        async with job(make_harness) as (harness, coordinator):
            containers = await coordinator.grant(1, 2, 3)
            for container in containers:
                await harness.launch(coordinator, container, "children")
            pids = [await harness.pids(container) for container in containers]
            await harness.kill_agent(containers[1])
            await coordinator.ended(containers[1])
            await none_left(harness, pids[1])
            assert await harness.alive(pids[0] + pids[2]) == pids[0] + pids[2]

    run(test)


def test_a_new_coordinator_finds_the_containers_of_a_dead_one(make_harness: Make) -> None:
    async def test() -> None:
        async with job(make_harness) as (harness, first):
            containers = await first.grant(1, 2)
            for container in containers:
                await harness.launch(first, container, "wait")
            pids = [await harness.pids(container) for container in containers]
            await harness.crash(first)
            second = await harness.coordinator()
            assert sorted(second.held) == sorted(containers)
            if harness.asks_again:
                await second.ask(1, 2)  # as it would if it could not know that they were granted
            await second.backend.release(containers[0])
            await second.ended(containers[0])
            await none_left(harness, pids[0])
            assert await harness.alive(pids[1]) == pids[1]
            assert second.all(ContainerGranted) == []

    run(test)


def test_an_end_nobody_heard_of_is_told_to_the_next_coordinator(make_harness: Make) -> None:
    async def test() -> None:
        async with job(make_harness) as (harness, first):
            (container,) = await first.grant(1)
            await harness.launch(first, container, "children")
            pids = await harness.pids(container)
            await harness.crash(first)
            await harness.kill_agent(container)
            second = await harness.coordinator()
            told = list(second.held)
            assert told in ([container], [])
            for held in told:  # one that is not held any more is known to have ended
                await second.ended(held)
            await none_left(harness, pids)
            assert len(second.all(ContainerEnded)) == len(told)

    run(test)


def test_a_new_coordinator_can_launch_more(make_harness: Make) -> None:
    async def test() -> None:
        async with job(make_harness) as (harness, first):
            (old,) = await first.grant(1)
            await harness.launch(first, old, "wait")
            await harness.pids(old)
            await harness.crash(first)
            second = await harness.coordinator()
            (new,) = await second.grant(2)
            assert new != old
            await harness.launch(second, new, "wait")
            assert await harness.alive(await harness.pids(new))

    run(test)


def test_closing_ends_what_was_not_released(make_harness: Make) -> None:
    async def test() -> None:
        async with job(make_harness) as (harness, coordinator):
            (container,) = await coordinator.grant(1)
            await harness.launch(coordinator, container, "children")
            pids = await harness.pids(container)
        await none_left(harness, pids)

    run(test)
