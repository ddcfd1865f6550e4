"""The Python API's functions: what the command line does, for programs."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from howdah.client.accounting import GROUPS, Usage, totals
from howdah.client.errors import BadInput
from howdah.client.following.items import JobEvent, LogLine
from howdah.client.handle import AsyncJobHandle, Callbacks, stop_or_say
from howdah.client.lookup.find import base, find, ids_at
from howdah.client.lookup.listing import views
from howdah.client.submission.functions import FunctionJob, place, values
from howdah.client.submission.loading import load_file, load_object
from howdah.client.submission.submit import submit as submit_loaded
from howdah.client.submission.submit import warn
from howdah.client.sweep import Sweep, Trial, new_variables, run_sweep, settings, written
from howdah.client.sync import Background, JobHandle
from howdah.client.usage import usages
from howdah.spec.load import LoadedJob
from howdah.spec.model import Job, Role
from howdah.storage.jobdir import JobDirectory
from howdah.wire.status import JobView


def submit(
    job: Job | str | os.PathLike[str],
    *,
    backend: str | None = None,
    overrides: Sequence[str] = (),
    on_event: Callable[[JobEvent], Any] | None = None,
    on_state: Callable[[JobView], Any] | None = None,
    on_log: Callable[[LogLine], Any] | None = None,
) -> JobHandle:
    """Start a job; it goes on by itself, whatever becomes of this program.

    What a user should know of it all the same, such as a key that has no effect, is a `RuntimeWarning`.
    With ``python -W error`` one that comes while the job is handed over to its backend is printed.

    Args:
        job: a `howdah.Job`, or the path of a job file.
        backend: where to run it: ``local`` is this machine, ``yarn`` a Hadoop cluster; by default
            ``HOWDAH_BACKEND``, else what the site file says, else this machine.
        overrides: as ``--set`` on the command line: ``roles.worker.instances=4``.
        on_event: called with each record of the job's event log, from its beginning.
        on_state: called with the status document whenever a state in it has changed.
        on_log: called with each line a task prints.

    Raises:
        JobFileError: the job cannot be run; all problems at once.
        BadInput: there is no such backend.
        BackendError: the backend does not take it.
    """
    callbacks = Callbacks(on_event=on_event, on_state=on_state, on_log=on_log)
    directory = submit_loaded(as_loaded(job, overrides), backend=backend, progress=warn)
    try:
        return JobHandle(directory, callbacks)
    except BaseException as error:  # nobody would know which job goes on
        _stop(directory, error)
        raise


def run(
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
    """Call ``function(*args, **kwargs)`` in every rank of a new job; the values by rank.

    Blocks until the job has ended; leaving early (Ctrl-C, a time-out) stops the job.
    `howdah.task.context` tells the function its rank and role. Functions of ``__main__`` and
    notebooks are sent whole; those of a module by name, so it must be importable in the job too.
    A rank that was started again gives its last value.

    Args:
        function: what to call; it and its arguments are pickled by cloudpickle.
        roles: name to number of tasks, or to a whole `howdah.Role`; one worker by default.
        framework: as in a job file; decides which variables the processes find.
        args: positional arguments, the same for every rank.
        kwargs: named arguments, the same for every rank.
        backend: where to run it: ``local`` is this machine, ``yarn`` a Hadoop cluster; by default
            ``HOWDAH_BACKEND``, else what the site file says, else this machine.
        timeout_s: stop the job and raise `TimeoutError` after this long.
        on_event: called with each record of the job's event log.
        on_state: called with the status document whenever a state in it has changed.
        on_log: called with each line printed; ``on_log=print`` shows them.
        fields: further fields of `howdah.Job`, such as ``checkpoint`` or ``env``.

    Raises:
        JobFailed: a rank raised (its traceback is in the text), or the job failed otherwise.
        BadInput: the function or its arguments cannot be pickled.
        JobFileError: the job cannot be run as described.
        BackendError: the backend does not take it.
    """
    where = place(backend)
    call = FunctionJob(function, args, kwargs, roles=roles, framework=framework, **fields)
    callbacks = Callbacks(on_event=on_event, on_state=on_state, on_log=on_log)
    directory = submit_loaded(
        as_loaded(call.job), backend=where, populate=call.populate, progress=warn
    )
    try:
        view = JobHandle(directory, callbacks).wait(timeout_s)
    except BaseException as error:
        _stop(directory, error)
        raise
    return values(directory, view)


def _stop(directory: JobDirectory, error: BaseException) -> None:
    Background.call(stop_or_say(AsyncJobHandle(directory), left_by(error)))


def left_by(error: BaseException) -> str:
    """Why a job is stopped whose program is left by that."""
    return f"{type(error).__name__} in the program that runs it"


def sweep(
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
    """Run a job once for each combination of the parameters' values; what came out of each.

    Blocks until all trials have ended; leaving early (Ctrl-C) stops those that run. A trial that fails
    keeps none of the others from running: see its ``view``. A `RuntimeWarning` names each variable that
    the job's ``env`` does not have.

    Args:
        job: a `howdah.Job`, or the path of a job file.
        parameters: key to values, such as ``{"env.LR": [0.1, 0.01]}``. A single word that is no key of
            a job file is a variable of the programs' environment. A value may be a range where ``draws``
            is given: ``["log:1e-5..1e-1"]``.
        at_once: trials that run at the same time.
        draws: try so many combinations, drawn by chance.
        seed: of that choice.
        backend: as of `submit`.
        overrides: what all trials share, as ``--set`` on the command line.
        on_trial: called when a trial has been submitted, and when it has ended.

    Raises:
        JobFileError: a trial's job cannot be run. Nothing has been started.
        BadInput: the parameters make no sense. Nothing has been started.
    """
    return run_sweep(
        prepared_sweep(job, parameters, at_once, draws, seed, backend, overrides, on_trial)
    )


def prepared_sweep(
    job: Job | str | os.PathLike[str],
    parameters: Mapping[str, Sequence[Any]],
    at_once: int,
    draws: int | None,
    seed: int,
    backend: str | None,
    overrides: Sequence[str],
    on_trial: Callable[[Trial], Any] | None,
) -> Sweep:
    """What `sweep` runs; it raises what that does."""
    common, chosen = settings(written(parameters), draws=draws, seed=seed)

    def load(given: Sequence[str]) -> LoadedJob:
        return as_loaded(job, (*overrides, *given))

    for text in new_variables(load, common, chosen[0]):
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    return Sweep(
        chosen,
        lambda each: load((*common, *each)),
        backend=backend,
        at_once=at_once,
        on_trial=on_trial or (lambda trial: None),
        note=lambda text: warnings.warn(text, RuntimeWarning, stacklevel=2),
    )


def connect(job_id: str, *, store: str | None = None) -> JobHandle:
    """A handle of a job submitted earlier, by any program of this user.

    Args:
        job_id: its id or name, enough of the beginning, or ``@last``; on YARN also the application's.
        store: base folder (or hdfs:// URL) of job directories, where it is not the usual one.

    Raises:
        NoSuchJob: none or several have this id.
        BackendError: ``store`` is a URL, and the cluster there cannot be asked.
    """
    return JobHandle(find(job_id, store))


def jobs(*, limit: int | None = None, store: str | None = None) -> list[JobView]:
    """Status documents of this user's jobs, newest first, at most ``limit``.

    Args:
        limit: of all, by default.
        store: as of `connect`.

    Raises:
        BackendError: ``store`` is a URL, and the cluster there cannot be asked.
    """
    return Background.call(newest(limit, store))


async def newest(limit: int | None, store: str | None) -> list[JobView]:
    only = await asyncio.to_thread(ids_at, store, _left_out)
    if only is None:
        return await views(base(store), limit=limit)
    return [view for view in await views(base(store)) if view.job_id in only][:limit]


def history(
    by: str | None = None, *, since: float | None = None, store: str | None = None
) -> list[Usage]:
    """What this user's jobs held, and how much of it was useful: a row a group, or one for all.

    Jobs that cannot be read are left out, with a `RuntimeWarning` each.

    Args:
        by: ``user``, ``queue``, ``name``, ``framework``, ``week``, ``node`` or ``tag``.
        since: only jobs submitted then or later, in seconds since the epoch.
        store: as of `connect`.

    Raises:
        BadInput: jobs cannot be grouped by that.
    """
    return Background.call(grouped(by, since, store))


async def grouped(by: str | None, since: float | None, store: str | None) -> list[Usage]:
    if by is not None and by not in GROUPS:
        raise BadInput(f"jobs cannot be grouped by {by!r}; by {', '.join(GROUPS)} they can")
    found = await usages(
        base(store),
        since=since,
        only=await asyncio.to_thread(ids_at, store, _left_out),
        left_out=_left_out,
    )
    return totals(found, by)


def _left_out(words: str) -> None:
    warnings.warn(f"left out: {words}", RuntimeWarning, stacklevel=2)


def load(path: str | os.PathLike[str], *, overrides: Sequence[str] = ()) -> LoadedJob:
    """Read and check a job file without running it: the job, and where it came from.

    Raises:
        JobFileError: all problems at once.
    """
    return load_file(path, overrides)


def as_loaded(job: Job | str | os.PathLike[str], overrides: Sequence[str] = ()) -> LoadedJob:
    """The job, checked as a job file is, with its source folder found.

    Raises:
        BadInput: it is no job, and names none.
        JobFileError: all problems at once.
    """
    if isinstance(job, Job):
        return load_object(job, overrides)
    if not isinstance(job, str | os.PathLike):
        raise BadInput(
            f"a job is a howdah.Job or the path of a job file, not {type(job).__name__}; howdah.Job(**fields) makes one"
        )
    return load_file(job, overrides)
