"""Stacks on request: a client's or the page's question, answered by the task's agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from howdah.coordinator.source import UnknownTask
from howdah.core.messages import DumpStacks, StacksTaken, Task
from howdah.core.state import UP, JobState
from howdah.wire.messages import ToAgent

ANSWER_S = 30.0


class Inspection:
    """Questions that are no part of the job's story."""

    def __init__(self, state: Callable[[], JobState], send: Callable[[str, ToAgent], bool]) -> None:
        self._state = state
        self._send = send
        self._waiting: dict[tuple[Task, int], list[asyncio.Future[StacksTaken]]] = {}

    async def stacks(self, task: Task) -> str:
        """Stacks of the task's programs as they are now.

        Raises:
            UnknownTask: the job has no such task.
            RuntimeError: they could not be taken; the text says why.
        """
        tasks = self._state().tasks
        data = tasks.get(str(task))
        if data is None:
            raise unknown_task(task, tasks)
        if data.state not in UP or data.container_id is None:
            raise RuntimeError(f"{task} has no program running (it is {data.state.value})")
        answer: asyncio.Future[StacksTaken] = asyncio.get_running_loop().create_future()
        key = (task, data.attempt)
        waiting = self._waiting.setdefault(key, [])
        waiting.append(answer)
        try:
            if not self._send(
                data.container_id,
                DumpStacks(container_id=data.container_id, task=task, attempt=data.attempt),
            ):
                raise RuntimeError(f"the agent of {task} is not connected at present; try again")
            async with asyncio.timeout(ANSWER_S):
                stacks = await answer
        except TimeoutError:
            raise RuntimeError(f"the agent of {task} did not answer in {ANSWER_S:g}s") from None
        finally:
            waiting.remove(answer)
            if not waiting:
                self._waiting.pop(key, None)
        if stacks.problem:
            raise RuntimeError(stacks.problem)
        return stacks.text

    def answered(self, stacks: StacksTaken) -> None:
        """An agent has sent stacks, whoever asked."""
        for answer in self._waiting.get((stacks.task, stacks.attempt), ()):
            if not answer.done():
                answer.set_result(stacks)


def unknown_task(task: Task, known: Iterable[str]) -> UnknownTask:
    """The error for a task the job does not have."""
    names = list(known)
    some = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return UnknownTask(f"the job has no task {task}; it has {some}")
