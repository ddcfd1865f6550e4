"""The job's web page: served late, so that no program of the job waits for the imports it needs."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import socket
from collections.abc import Callable

from howdah.backends.base import Backend
from howdah.coordinator.clients.live_job import LiveJob
from howdah.coordinator.event_log import Signal
from howdah.core.state import JobPhase, JobState, TaskState
from howdah.wire.addresses import listening

PATIENCE_S = 1.0
"""The app is started after this at the latest, if the gang takes its time to come together."""
NEEDED_LATER = ("howdah.storage.hdfs.files", "howdah.wire.authority")
"""What a coordinator may need weeks later, for outputs: by then an upgrade may have put another release there."""
_ON_THE_WAY = (
    TaskState.LAUNCHING,
    TaskState.IDLE,
    TaskState.PREPARING,
    TaskState.PREPARED,
    TaskState.STARTING,
)


class JobPage:
    """One job's page."""

    def __init__(
        self,
        job: LiveJob,
        backend: Backend,
        state: Callable[[], JobState],
        advanced: Signal,
        served: Callable[[int], None],
        clock: Callable[[], float],
    ) -> None:
        """``advanced`` is sent when the state has changed; ``served`` is told the port; ``clock``: the
        job's, in seconds since the epoch."""
        self._job = job
        self._backend = backend
        self._state = state
        self._advanced = advanced
        self._served = served
        self._clock = clock

    async def serve(self, port: int) -> None:
        """Serve until cancelled; at ``port`` if it is free (a predecessor's)."""
        await self._programs_run()
        # In a thread: importing takes longer than a peer should wait for an answer.
        create_app, serve = await asyncio.to_thread(_modules)
        app = create_app(
            self._job,
            hosts=(self._backend.host, socket.gethostname()),
            # A cookie of a former coordinator's page is good for a successor whose host is behind.
            clock=self._clock,
            readers=self._backend.page_readers,
        )
        server = await serve(app, listening(self._backend.bind, self._backend.ports, port))
        try:
            self._served(server.port)
            await asyncio.Event().wait()
        finally:
            await server.close()

    async def _programs_run(self) -> None:
        """Until the programs run, or it takes them too long."""
        ready = asyncio.Event()

        def look() -> None:
            if _programs_run(self._state()):
                ready.set()

        with self._advanced.calling(look), contextlib.suppress(TimeoutError):
            look()
            async with asyncio.timeout(PATIENCE_S):
                await ready.wait()


def _programs_run(state: JobState) -> bool:
    """Nothing that is about to start would have to share the processor with the imports."""
    return state.phase not in (JobPhase.SUBMITTED, JobPhase.ALLOCATING) and not any(
        data.state in _ON_THE_WAY for data in state.tasks.values()
    )


def _modules():
    for name in NEEDED_LATER:
        importlib.import_module(name)
    from howdah.coordinator.web.app import create_app
    from howdah.coordinator.web.server import serve

    return create_app, serve
