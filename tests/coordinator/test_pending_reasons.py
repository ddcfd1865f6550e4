"""Why containers do not come is asked of the backend, and only while they are awaited."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from howdah.coordinator import status
from howdah.coordinator.status import PendingReasons
from howdah.core.messages import Task
from howdah.core.state import JobPhase, JobState


class _Task:
    task = Task("worker", 0)
    request_id = 1


class _State:
    phase = JobPhase.ALLOCATING
    tasks = {"worker:0": _Task()}
    units: dict[str, object] = {}


class _Backend:
    answers: list[Any] = ["the queue is full", RuntimeError("no"), "the queue is full"]

    def __init__(self) -> None:
        self.asked = 0

    async def waiting(self) -> str:
        self.asked += 1
        answer = self.answers[min(self.asked, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_words_come_while_containers_are_awaited_and_go_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(status, "FIRST_ASKED_S", 0.0)
    monkeypatch.setattr(status, "ASKED_AGAIN_S", 0.0)
    backend, state = _Backend(), _State()

    async def test() -> list[str]:
        said: list[str] = []
        enough = asyncio.Event()

        def touch() -> None:
            said.append(asking.why)
            if len(said) == 3:
                state.phase = JobPhase.RUNNING
            if len(said) == 4:
                enough.set()

        asking = PendingReasons(backend.waiting, lambda: cast(JobState, state), touch)
        running = asyncio.create_task(asking.run())
        async with asyncio.timeout(10):
            await enough.wait()
        asked = backend.asked
        await asyncio.sleep(0)
        running.cancel()
        assert backend.asked == asked
        return said

    full = "the queue is full"
    assert asyncio.run(test()) == [full, "", full, ""]
