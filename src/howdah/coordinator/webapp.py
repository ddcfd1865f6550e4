"""Starting the job's web app: late, so that nobody's program waits for its imports."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING, Any

from howdah.coordinator.live_source import LiveSource
from howdah.core.state import JobPhase, JobState, TaskState

if TYPE_CHECKING:
    from howdah.coordinator.service import Coordinator
    from howdah.coordinator.web.server import Server

log = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""The app is started after this at the latest, if the gang takes its time to come together."""
_ON_THE_WAY = (
    TaskState.LAUNCHING,
    TaskState.IDLE,
    TaskState.PREPARING,
    TaskState.PREPARED,
    TaskState.STARTING,
)


async def serving(coordinator: Coordinator, port: int) -> None:
    """Serve the job's page until cancelled; at ``port`` if it is free (a predecessor's).

    A job without a page is better than no job: problems are told, not raised.
    """
    await _first_things_first(coordinator)
    server = await _start(coordinator, port)
    if server is None:
        return
    coordinator.page_is_up(server.port)
    try:
        await asyncio.Event().wait()
    finally:
        await server.close()


async def _first_things_first(coordinator: Coordinator) -> None:
    """Until the programs run, or it takes them too long."""
    ready = asyncio.Event()

    def look() -> None:
        if _programs_run(coordinator.machine.state):
            ready.set()

    with coordinator.driver.advanced.calling(look), contextlib.suppress(TimeoutError):
        look()
        async with asyncio.timeout(PATIENCE_S):
            await ready.wait()


def _programs_run(state: JobState) -> bool:
    """Nothing that is about to start would have to share the processor with the imports."""
    return state.phase not in (JobPhase.SUBMITTED, JobPhase.ALLOCATING) and not any(
        data.state in _ON_THE_WAY for data in state.tasks.values()
    )


async def _start(coordinator: Coordinator, port: int) -> Server | None:
    try:
        # In a thread: importing takes longer than a peer should wait for an answer.
        app, server = await asyncio.to_thread(_modules)
        made = app.create_app(
            LiveSource(coordinator),
            hosts=(coordinator.backend.host, socket.gethostname()),
            readers=coordinator.backend.page_readers,
        )
        try:
            return await server.serve(made, coordinator.backend.bind, port)
        except OSError:
            return await server.serve(made, coordinator.backend.bind, 0)
    except Exception:
        log.exception("the job's page cannot be served; the job goes on without it")
        return None


def _modules() -> tuple[Any, Any]:
    from howdah.coordinator.web import app, server

    return app, server
