"""The Python API for asyncio programs: the same functions, to be awaited.

Callbacks may be plain functions or coroutine functions; they are called on the program's loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from howdah.backends.base import Submission
from howdah.client import api
from howdah.client.accounting import Usage
from howdah.client.following.items import JobEvent, LogLine
from howdah.client.handle import AsyncJobHandle, Callbacks, stop_or_say, submitted
from howdah.client.lookup.find import find
from howdah.client.submission.functions import FunctionJob, place, values
from howdah.client.submission.submit import submit as submit_loaded
from howdah.client.submission.submit import warn
from howdah.client.sweep import Trial
from howdah.spec.load import LoadedJob
from howdah.spec.model import Job, Role
from howdah.storage.jobdir import JobDirectory
from howdah.wire.status import JobView

__all__ = ["connect", "history", "jobs", "run", "submit", "sweep"]


async def submit(
    job: Job | str | os.PathLike[str],
    *,
    backend: str | None = None,
    overrides: Sequence[str] = (),
    on_event: Callable[[JobEvent], Any] | None = None,
    on_state: Callable[[JobView], Any] | None = None,
    on_log: Callable[[LogLine], Any] | None = None,
) -> AsyncJobHandle:
    """Start a job: see `howdah.submit`. Cancelling starts none, or stops it."""
    callbacks = Callbacks(on_event=on_event, on_state=on_state, on_log=on_log)
    loaded = await asyncio.to_thread(api.as_loaded, job, overrides)
    handle = await _submitted(loaded, backend, callbacks)
    handle.start_calling()
    return handle


async def run(
    function: Callable[..., Any],
    *,
    roles: Mapping[str, int | str | Role] | None = None,
    framework: str = "command",
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    backend: str | None = None,
    timeout_s: float | None = None,
    on_event: Callable[[JobEvent], Any] | None = None,
    on_state: Callable[[JobView], Any] | None = None,
    on_log: Callable[[LogLine], Any] | None = None,
    **fields: Any,
) -> dict[int, Any]:
    """Call a function in every rank of a new job: see `howdah.run`. Cancelling stops the job."""
    where = place(backend)
    call = FunctionJob(function, args, kwargs, roles=roles, framework=framework, **fields)
    callbacks = Callbacks(on_event=on_event, on_state=on_state, on_log=on_log)
    loaded = await asyncio.to_thread(api.as_loaded, call.job)
    handle = await _submitted(loaded, where, callbacks, populate=call.populate)
    try:
        view = await handle.wait(timeout_s)
    except BaseException as error:
        await asyncio.shield(stop_or_say(handle, api.left_by(error)))
        raise
    return values(handle.job_directory, view)


async def _submitted(
    loaded: LoadedJob, backend: str | None, callbacks: Callbacks, **options: Any
) -> AsyncJobHandle:
    def start(submission: Submission) -> JobDirectory:
        return submit_loaded(
            loaded, backend=backend, submission=submission, progress=warn, **options
        )

    def take_back(handle: AsyncJobHandle) -> Awaitable[None]:
        return stop_or_say(handle, api.left_by(asyncio.CancelledError()))

    handle = await submitted(start, backend, take_back)
    return AsyncJobHandle(handle.job_directory, callbacks)


async def sweep(
    job: Job | str | os.PathLike[str],
    parameters: Mapping[str, Sequence[Any]],
    *,
    at_once: int = 1,
    draws: int | None = None,
    seed: int = 0,
    backend: str | None = None,
    overrides: Sequence[str] = (),
    on_trial: Callable[[Trial], Any] | None = None,
) -> list[Trial]:
    """Run a job once for each of many settings: see `howdah.sweep`. Cancelling stops its trials."""
    made = await asyncio.to_thread(
        api.prepared_sweep,
        *(job, parameters, at_once, draws, seed, backend, overrides, on_trial),
    )
    return await made.run()


async def connect(job_id: str, *, store: str | None = None) -> AsyncJobHandle:
    """A handle of a job submitted earlier: see `howdah.connect`."""
    return AsyncJobHandle(await asyncio.to_thread(find, job_id, store))


async def jobs(*, limit: int | None = None, store: str | None = None) -> list[JobView]:
    """Status documents of this user's jobs, newest first: see `howdah.jobs`."""
    return await api.newest(limit, store)


async def history(
    by: str | None = None, *, since: float | None = None, store: str | None = None
) -> list[Usage]:
    """What this user's jobs held, and how much of it was useful: see `howdah.history`."""
    return await api.grouped(by, since, store)
