"""Backends by name: ours, and those other packages bring as entry points.

A package adds one with an entry point in the group ``howdah.backends`` that names a function (or
class) which makes a `howdah.backends.base.Backend` of a `howdah.storage.jobdir.JobDirectory`. That
object may have two more attributes, for clients: ``submission``, which makes a
`howdah.backends.base.Submission`, and ``site``, which makes a `howdah.backends.base.Site` of a job
directory; without them the job's coordinator runs on the submitter's machine. A plug-in that
cannot be loaded is reported where it is asked for and by `broken`; it never hides a built-in one,
nor stops the others.

Nothing is imported before it is asked for: a job's launch waits for what `submission` imports.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from howdah.plugins import broken as broken_plugins
from howdah.plugins import entry_points, failure, not_known

if TYPE_CHECKING:
    from howdah.backends.base import Backend, Site, Submission
    from howdah.backends.findings import DoctorFinding
    from howdah.storage.jobdir import JobDirectory

GROUP = "howdah.backends"
LOCAL = "local"


class Parts(NamedTuple):
    """Where to find the parts of a backend, each as ``module:attribute``."""

    backend: str
    submission: str
    site: str
    here: bool = False
    """Its containers are on the submitter's machine: they can write what can be written here."""
    elsewhere: str | None = None
    """Module with ``find``, ``jobs``, ``ids``, ``last`` and ``end``, for jobs that another machine has submitted."""
    doctor: str | None = None
    """What yields findings about its cluster, for ``howdah doctor``."""
    configured_by: str = ""
    """Environment variable that says that there is such a cluster."""
    runs_functions: bool = True
    """A folder of the job directory goes to the job's processes and comes back."""
    memory_mb: str | None = None
    """What a container gets whose role does not say; without it nothing is set aside."""


BUILT_IN = {
    LOCAL: Parts(
        backend="howdah.backends.local.backend:LocalBackend",
        submission="howdah.backends.local.submission_start:begin",
        site="howdah.backends.local.site:LocalSite",
        here=True,
    ),
    "yarn": Parts(
        backend="howdah.backends.yarn.master.backend:YarnBackend",
        submission="howdah.backends.yarn.client.submit:YarnSubmission",
        site="howdah.backends.yarn.client.site:YarnSite",
        elsewhere="howdah.backends.yarn.client.remote_jobs",
        doctor="howdah.backends.yarn.client.doctor:examine",
        configured_by="HADOOP_CONF_DIR",
        runs_functions=False,
        memory_mb="howdah.backends.yarn.amounts:DEFAULT_MEMORY_MB",
    ),
    "spark": Parts(
        backend="howdah.backends.spark.backend:SparkBackend",
        submission="howdah.backends.spark.standalone_driver:begin",
        site="howdah.backends.spark.site:SparkSite",
        doctor="howdah.backends.spark.doctor:examine",
    ),
}


def client_modules() -> tuple[str, ...]:
    """Modules of built-in backends that are imported once a client meets a job of theirs, or looks for one."""
    places = (
        place
        for parts in BUILT_IN.values()
        for place in (parts.site, parts.elsewhere, parts.memory_mb)
    )
    return tuple(place.partition(":")[0] for place in places if place is not None)


def names() -> list[str]:
    """Names that may be asked for: built-in ones first, then plug-ins (broken ones too)."""
    plugins = {point.name for point in entry_points(group=GROUP)} - BUILT_IN.keys()
    return [*BUILT_IN, *sorted(plugins)]


def unknown(name: str) -> Sequence[str]:
    """All `names` if that is none of them; else nothing."""
    known = [] if name in BUILT_IN else names()
    return [] if name in known else known


def create(name: str, directory: JobDirectory) -> Backend:
    """The backend of that name, for the coordinator of that directory's job.

    Raises:
        BackendError: there is none, or its plug-in cannot be used.
    """
    if name in BUILT_IN:
        return _load(BUILT_IN[name].backend)(directory)
    return _plug_in(name, lambda factory: factory(directory))


def submission(name: str) -> Submission:
    """What submits one new job to the backend of that name.

    Raises:
        BackendError: there is none, or its plug-in cannot be used.
    """
    if name in BUILT_IN:
        return _load(BUILT_IN[name].submission)()

    def make(factory: object) -> Submission:
        own = getattr(factory, "submission", None)
        return (
            _load("howdah.backends.local.submission_start:begin")(checks=False)
            if own is None
            else own()
        )

    return _plug_in(name, make)


def runs_here(name: str) -> bool:
    """Whether the backend's containers are on this machine. Not known of a plug-in's."""
    return name in BUILT_IN and BUILT_IN[name].here


def default_memory_mb(name: str) -> int | None:
    """Memory of a container whose role does not say; None where none is set aside for it."""
    place = BUILT_IN[name].memory_mb if name in BUILT_IN else None
    return None if place is None else _load(place)


def site(name: str, directory: JobDirectory) -> Site:
    """That directory's job, as a client of the backend of that name finds it.

    Raises:
        BackendError: there is none, or its plug-in cannot be used.
    """
    if name in BUILT_IN:
        return _load(BUILT_IN[name].site)(directory)

    def make(factory: object) -> Site:
        own = getattr(factory, "site", None) or _load(BUILT_IN[LOCAL].site)
        return own(directory)

    return _plug_in(name, make)


def find(wanted: str, store: str | None) -> JobDirectory | None:
    """A job that another machine has submitted, by its id or name, the beginning of its id, or what a
    cluster calls it; with a directory here from now on. None if no backend knows it.

    Raises:
        NoSuchJob: a backend knows that there is none, or several.
        BackendError: its cluster cannot be asked.
    """
    for parts in BUILT_IN.values():
        if parts.elsewhere is not None:
            found = importlib.import_module(parts.elsewhere).find(wanted, store)
            if found is not None:
                return found
    return None


def end(called: str, reason: str) -> None:
    """Have a cluster end another user's job at once, as one may who has a right to change it.

    ``called`` is the cluster's name of it (`howdah.backends.base.OnlyOwners`).

    Raises:
        BackendError: the cluster does not, or not for this user.
    """
    for parts in BUILT_IN.values():
        if parts.elsewhere is not None:
            importlib.import_module(parts.elsewhere).end(called, reason)


def jobs_elsewhere(
    name: str, store: str | None, limit: int, left_out: Callable[[str], None]
) -> list[JobDirectory]:
    """The user's newest jobs that the backend's cluster knows, whoever has submitted them; none for
    a backend without a cluster. ``left_out`` is told of what cannot be read.

    Raises:
        BackendError: the cluster cannot be asked.
    """
    parts = BUILT_IN.get(name)
    if parts is None or parts.elsewhere is None:
        return []
    return importlib.import_module(parts.elsewhere).jobs(store, limit, left_out)


def own_jobs_at(url: str, left_out: Callable[[str], None]) -> list[JobDirectory]:
    """The user's own jobs below that URL, newest first, each with a directory here. ``left_out`` is told
    of what cannot be read.

    Raises:
        BackendError: no backend keeps jobs there, or its cluster cannot be asked.
    """
    return _cluster_jobs().jobs(url, sys.maxsize, left_out)


def own_job_ids_at(url: str) -> list[str]:
    """Ids of the user's own jobs below that URL, newest first. Nothing is copied.

    Raises:
        BackendError: no backend keeps jobs there, or its cluster cannot be asked.
    """
    return _cluster_jobs().ids(url)


def own_last_job_at(url: str) -> JobDirectory | None:
    """The user's own newest job below that URL, with a directory here; None if there are none.

    Raises:
        BackendError: no backend keeps jobs there, its cluster cannot be asked, or the job cannot be read.
    """
    return _cluster_jobs().last(url)


def cluster_store(url: str) -> Any:
    """The jobs of all users below that URL, as a `howdah.portal.copies.ClusterStore`.

    Raises:
        BackendError: no backend keeps jobs there, or its cluster cannot be asked.
    """
    return _cluster_jobs().RemoteStore(url)


def _cluster_jobs() -> Any:
    """The module of the one backend that keeps jobs on a cluster."""
    (module,) = filter(None, (parts.elsewhere for parts in BUILT_IN.values()))
    return importlib.import_module(module)


def runs_functions(name: str) -> bool:
    """Whether a job there can be a Python function: its call and its values go through a folder of
    the job directory. Of other packages' backends that is assumed."""
    parts = BUILT_IN.get(name)
    return parts is None or parts.runs_functions


def clusters() -> dict[str, bool]:
    """Backends whose cluster `examine` can look at, and whether the environment names one."""
    return {
        name: bool(os.environ.get(parts.configured_by))
        for name, parts in BUILT_IN.items()
        if parts.doctor is not None
    }


def examine(name: str) -> Iterator[DoctorFinding]:
    """Look at the cluster of one of `clusters`; a look that fails is a finding."""
    doctor = BUILT_IN[name].doctor
    assert doctor is not None
    yield from _load(doctor)()


def broken() -> dict[str, str]:
    """Plug-ins that cannot be used, and why: unloadable ones, and those with a built-in's name."""
    return broken_plugins(entry_points(group=GROUP), BUILT_IN, lambda point: point.load())


def _load(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _plug_in(name: str, make: Callable[[Any], Any]) -> Any:
    """What ``make`` makes of the plug-in of that name."""
    from howdah.backends.base import BackendError, NoSuchBackend

    for point in entry_points(group=GROUP):
        if point.name == name:
            try:
                return make(point.load())
            except Exception as error:  # a plug-in may fail in any way
                raise BackendError(
                    f"The backend {name!r} cannot be used: {failure(point, error)}"
                ) from error
    raise NoSuchBackend(f"There is no backend {not_known(name, names())}")
