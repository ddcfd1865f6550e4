"""The Python API for asyncio programs: the same functions, to be awaited.

Callbacks may be plain functions or coroutine functions; they are called on the program's loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from howdah.client import api
from howdah.client.accounting import Usage
from howdah.client.following.items import JobEvent, LogLine
from howdah.client.handle import AsyncJobHandle, Callbacks
from howdah.client.lookup.find import find
from howdah.client.submission.functions import FunctionJob, place, values
from howdah.client.submission.submit import submit as submit_loaded
from howdah.client.sweep import Trial
from howdah.spec.model import Job, Role
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
    """Start a job: see `howdah.submit`."""
    loaded = await asyncio.to_thread(api.as_loaded, job, overrides)
    directory = await asyncio.to_thread(submit_loaded, loaded, backend=backend)
    callbacks = Callbacks(on_event=on_event, on_state=on_state, on_log=on_log)
    handle = AsyncJobHandle(directory, callbacks)
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
    loaded = await asyncio.to_thread(api.as_loaded, call.job)
    directory = await asyncio.to_thread(
        submit_loaded, loaded, backend=where, populate=call.populate
    )
    handle = AsyncJobHandle(
        directory, Callbacks(on_event=on_event, on_state=on_state, on_log=on_log)
    )
    try:
        view = await handle.wait(timeout_s)
    except BaseException as error:
        await asyncio.shield(handle.stop(f"{type(error).__name__} in the program that runs it"))
        raise
    return values(directory, view)


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
