"""Carrying commands out: a message to an agent, or a call of the backend.

Every command may come twice and may find its agent gone. Messages to an agent that is not
connected are dropped: when it comes back, the machine compares what it holds with what it should
hold and commands again. Calls of the backend run in the order of the commands for each container,
and side by side for different ones, so that a thousand launches do not wait for each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from howdah.backends.base import Backend, BackendError
from howdah.coordinator.agents.launch_specs import LaunchSpecs
from howdah.coordinator.agents.server import Agents
from howdah.core.messages import (
    AnyCommand,
    AnyEvent,
    CancelRequests,
    ContainerEnded,
    ContainerEndKind,
    ContainerRequest,
    DumpStacks,
    Exit,
    FinishJob,
    LaunchAgent,
    NotifyCheckpoint,
    PrepareTask,
    Record,
    ReleaseContainer,
    RequestContainers,
    RequestRefused,
    StacksTaken,
    StartTask,
    StopTask,
    Task,
    TaskExited,
)
from howdah.wire.messages import Shutdown

log: logging.Logger = logging.getLogger(__name__)


SLICE_S = 0.02
"""The loop is given to others after so long of carrying out commands."""
SHUTDOWN_S = 30.0
"""An agent told to shut down that is still connected after this loses its container anyway: it may
have logs to copy. One that hangs is not waited for so long, it falls silent."""

_REQUESTS = "requests"


class Executor:
    """Carries out one job's commands."""

    def __init__(
        self,
        backend: Backend,
        agents: Agents,
        specs: LaunchSpecs,
        emit: Callable[[AnyEvent], None],
        *,
        started: Callable[[Task, int], None],
        finish: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._backend = backend
        self._agents = agents
        self._specs = specs
        self._emit = emit
        self._started = started
        self._finish = finish
        self._failed = failed
        self._refusal = ""
        self._calls: dict[str, asyncio.Task[None]] = {}
        """The last call under way for each container (and for the requests)."""

    async def carry_out(self, commands: Sequence[AnyCommand]) -> None:
        """All of them, in order; returns when messages are on their way and calls under way."""
        loop = asyncio.get_running_loop()
        slice_end = loop.time() + SLICE_S
        for command in commands:
            self._one(command)
            if loop.time() > slice_end:
                await asyncio.sleep(0)
                slice_end = loop.time() + SLICE_S

    def backend_failed(self, reason: str) -> None:
        """The backend could not be started: refuse every request with the reason, so that the job
        ends as one whose containers were refused, with record, advice and final document."""
        self._refusal = reason

    async def pending_reason(self) -> str:
        """Why containers do not come, in the backend's words."""
        return "" if self._refusal else await self._backend.waiting()

    async def close(self) -> None:
        """Wait for calls under way."""
        while self._calls:
            await asyncio.wait(self._calls.values())

    def _one(self, command: AnyCommand) -> None:
        match command:
            case PrepareTask():
                self._agents.send(command.container_id, self._specs.prepare(command))
            case StartTask():
                self._start(command)
            case StopTask() | NotifyCheckpoint():
                self._agents.send(command.container_id, command)
            case DumpStacks():
                self._dump_stacks(command)
            case RequestContainers() if self._refusal:
                self._refuse(command.requests, self._refusal)
            case CancelRequests() | LaunchAgent() | ReleaseContainer() if self._refusal:
                pass  # it has granted nothing
            case RequestContainers():
                self._call(_REQUESTS, self._request(command.requests, command.avoid_nodes))
            case CancelRequests():
                self._call(_REQUESTS, self._backend.cancel(command.request_ids))
            case LaunchAgent():
                self._call(command.container_id, self._launch(command))
            case ReleaseContainer():
                self._call(command.container_id, self._release(command.container_id))
            case FinishJob():
                self._finish()
            case Record():
                raise AssertionError("records are the driver's")

    def _start(self, command: StartTask) -> None:
        try:
            spec = self._specs.start(command)
        except Exception as error:  # a framework plug-in may raise anything
            log.exception("%s: its programs could not be worked out", command.task)
            # The agent lets go of what it prepared; the attempt is over as one that did not start.
            self._agents.send(
                command.container_id,
                StopTask(
                    container_id=command.container_id,
                    task=command.task,
                    attempt=command.attempt,
                    grace_s=0.0,
                ),
            )
            reason = f"the {type(error).__name__} of its framework: {error}"
            self._emit(
                TaskExited(
                    task=command.task, attempt=command.attempt, exit=Exit(failed_to_start=reason)
                )
            )
            return
        if self._agents.send(command.container_id, spec):
            self._started(command.task, command.attempt)

    def _dump_stacks(self, command: DumpStacks) -> None:
        if not self._agents.send(command.container_id, command):
            self._emit(
                StacksTaken(
                    task=command.task, attempt=command.attempt, problem="its agent is not connected"
                )
            )

    # -- the backend ----------------------------------------------------------------------------

    def _call(self, key: str, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._after(self._calls.get(key), call), name=key)
        self._calls[key] = task
        task.add_done_callback(self._done)

    async def _after(
        self, former: asyncio.Task[None] | None, call: Coroutine[Any, Any, None]
    ) -> None:
        if former is not None:
            await asyncio.wait([former])
        await call

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._calls.get(task.get_name()) is task:
            del self._calls[task.get_name()]
        if not task.cancelled() and (error := task.exception()) is not None:
            # A backend does not raise: a defect. The next coordinator gets another chance.
            self._failed(error)

    async def _request(
        self, requests: Sequence[ContainerRequest], avoid_nodes: Sequence[str]
    ) -> None:
        try:
            await self._backend.request(requests, avoid_nodes)
        except BackendError as error:
            self._refuse(requests, str(error))

    def _refuse(self, requests: Sequence[ContainerRequest], reason: str) -> None:
        for request in requests:
            self._emit(RequestRefused(request_id=request.request_id, reason=reason))

    async def _launch(self, command: LaunchAgent) -> None:
        try:
            await self._backend.launch(command.container_id, self._specs.launch(command))
        except (BackendError, OSError) as error:
            log.warning("%s could not be launched: %s", command.container_id, error)
            await self._backend.release(command.container_id)
            self._emit(
                ContainerEnded(
                    container_id=command.container_id,
                    kind=ContainerEndKind.LAUNCH_FAILED,
                    detail=str(error),
                )
            )

    async def _release(self, container_id: str) -> None:
        if self._agents.send(container_id, Shutdown()):
            try:
                async with asyncio.timeout(SHUTDOWN_S):
                    await self._agents.gone(container_id)
            except TimeoutError:
                log.warning("the agent of %s does not go; its container is taken", container_id)
        await self._backend.release(container_id)
