"""``howdah doctor --backend spark``: what a Spark session offers to clusters.

It reads settings, and runs one Spark job of small tasks that look at the executors. Nothing is changed and
nothing is left. A session that is made for it is stopped again.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from howdah.backends.base import BackendError
from howdah.backends.findings import DoctorFinding, fine, problem, warning
from howdah.backends.spark import facts as spark_facts
from howdah.backends.spark.error_texts import NO_HOWDAH, error_text, was_cancelled
from howdah.backends.spark.facts import Facts
from howdah.backends.spark.sessions import SparkAccess, has_profiles, session_of
from howdah.spec.model import Network
from howdah.spec.units import port_range
from howdah.version import __version__
from howdah.wire.addresses import bind_within

REGISTER_S = 30.0
"""For executors that are still registering."""
PROBE_S = 60.0
"""For the tasks that look at the executors to get slots and to end."""
MOST_PROBES = 64
REACH_S = 5.0
_TAG = "howdah-doctor"
_OLDEST = (3, 5)
_TESTED = ("local", "spark:", "yarn")


class ExecutorReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a task found where it ran."""

    host: str
    python: str
    """``major.minor.micro`` of its Python."""
    howdah: str = ""
    """The version there; empty: it cannot be imported."""
    missing: str = ""
    """Why not."""
    unreachable: str = ""
    """Why the driver program is not reached; empty if it is."""


def examine(spark: Any = None) -> Iterator[DoctorFinding]:
    """Look at a session, classic or Connect: by default at the active one, or one made for it."""
    from howdah.backends.spark import application

    with contextlib.ExitStack() as stack:
        try:
            spark = spark or stack.enter_context(application.lent(name="howdah doctor"))
        except BackendError as error:
            yield problem("Spark", str(error))
            return
        session = session_of(spark)
        found = spark_facts.read_when_there(session, 1, REGISTER_S)
        yield from _application(spark.version, session, found)
        yield from settings(found, profiles=has_profiles(spark))
        yield from _executors(session, found)


def _application(version: str, session: SparkAccess, found: Facts) -> Iterator[DoctorFinding]:
    where = "a Connect server" if session.connect else found.master
    numbers = tuple(int(part) for part in version.split(".")[:2])
    if numbers < _OLDEST:
        yield problem("Spark", f"{version} at {where}", "Howdah needs Spark 3.5 or newer")
    elif session.connect or found.master.startswith(_TESTED):
        yield fine("Spark", f"{version} at {where}")
    else:
        yield warning("Spark", f"{version} at {where}: Howdah is not tested there")


def settings(found: Facts, *, profiles: bool) -> Iterator[DoctorFinding]:
    """What the application's sizes and settings mean. Pure."""
    yield _slots(found)
    if found.dynamic_allocation:
        yield fine(
            "dynamic allocation",
            "is on: training processes hold their slots, and Spark leaves their executors alone; "
            'slots="shared" is refused',
        )
    else:
        yield fine("dynamic allocation", "is off")
    if found.speculation:
        yield problem(
            "speculation",
            "spark.speculation = true: every job is refused, for Spark would start processes twice",
            "start the application with spark.speculation = false",
        )
    else:
        yield fine("speculation", "is off")
    if found.idle_kill_s:
        yield problem(
            "idle workers",
            f"{spark_facts.IDLE}.killOnIdleTimeout = true: every job is refused, for Spark would kill tasks "
            f"that answer nothing for {found.idle_kill_s} s",
            f"set {spark_facts.IDLE}.killOnIdleTimeout to false",
        )
    yield _gpus(found, profiles)


def _slots(found: Facts) -> DoctorFinding:
    sizes = spark_facts.sizes(found)
    if found.dynamic_allocation:
        most = "as many as the cluster gives" if found.promised is None else str(found.promised)
        return fine(
            "slots", f"{most} at the most, one of which a cluster leaves to feed it ({sizes})"
        )
    slots = found.query_capacity
    if slots is None:
        return warning(
            "slots",
            "they cannot be counted here: a cluster that needs too many waits for them, and one that "
            "is fed shares its slots, so that Spark does not count its processes",
            'slots="held" where a slot is left to feed',
        )
    if not slots:
        return problem("slots", f"none ({sizes})", "does the application get executors?")
    if slots == 1:
        return warning(
            "slots",
            f"1 ({sizes}): a cluster of one process, which shares it with the tasks that feed it",
            "give executors another core, or the application another executor",
        )
    return fine(
        "slots",
        f"{slots} at the same time ({sizes}): clusters that are fed hold up to {slots - 1}; one of "
        f"{slots} processes shares its slots, and Spark does not count its processes then",
    )


def _gpus(found: Facts, profiles: bool) -> DoctorFinding:
    if found.task_gpus:
        return warning(
            "GPUs",
            f"spark.task.resource.gpu.amount = {found.task_gpus:g}: the tasks that feed a cluster take "
            "GPUs as well, and a cluster that leaves them none is refused",
            "leave that setting out, and give the GPUs to the training tasks alone: resources= of "
            "Cluster.start"
            if profiles
            else "Spark 4 can give GPUs to the training tasks alone: resources= of Cluster.start",
        )
    if not found.executor_gpus:
        return fine("GPUs", "none (spark.executor.resource.gpu.amount)")
    if profiles and not found.local:
        return fine(
            "GPUs",
            f"{found.executor_gpus:g} an executor: resources= of Cluster.start gives them to the "
            "training tasks",
        )
    return warning(
        "GPUs",
        f"{found.executor_gpus:g} an executor, and no task gets any",
        "set spark.task.resource.gpu.amount",
    )


# -- the executors ---------------------------------------------------------------------------------


def _executors(session: SparkAccess, found: Facts) -> Iterator[DoctorFinding]:
    if found.query_capacity == 0:
        return
    host = session.host()
    bind = "127.0.0.1" if host in ("127.0.0.1", "localhost") else "0.0.0.0"  # noqa: S104 - for a moment; nothing is said there
    ports = Network().ports
    with socket.socket() as listener:
        try:
            bind_within(listener, bind, port_range(ports))
        except OSError as error:
            yield problem("ports", str(error), "choose others: network.ports")
            return
        listener.listen(MOST_PROBES)
        address = (host, listener.getsockname()[1])
        count = min(found.query_capacity or 1, MOST_PROBES)
        try:
            answers = _run(session, count, probe(address), barrier=False)
            seen = [msgspec.json.decode(each, type=ExecutorReport) for each in answers]
        except Exception as error:  # py4j's, Connect's, or whatever a task raised
            yield problem("executors", _error_text(error))
            return
    yield from conditions(seen, address, ports)
    yield from _barrier(session, found)


def conditions(
    seen: Sequence[ExecutorReport], address: tuple[str, int], ports: str
) -> Iterator[DoctorFinding]:
    """What tasks have found in the executors. Pure."""
    hosts = sorted({each.host for each in seen})
    where = f"{len(hosts)} hosts" if len(hosts) > 1 else hosts[0]
    pythons = sorted({each.python for each in seen})
    own = ".".join(map(str, sys.version_info[:3]))
    yield fine("executors", f"Python {', '.join(pythons)} on {where}; the driver's is {own}")
    if missing := {each.host: each.missing for each in seen if not each.howdah}:
        host, why = next(iter(missing.items()))
        yield problem("Howdah", f"cannot be imported on {host}: {why}", NO_HOWDAH)
    elif others := {each.howdah for each in seen} - {__version__}:
        yield warning(
            "Howdah",
            f"executors have {', '.join(sorted(others))}, the driver has {__version__}",
            "install the same version",
        )
    else:
        yield fine("Howdah", f"{__version__}, in executors too")
    if cut_off := {each.host: each.unreachable for each in seen if each.unreachable}:
        host, why = next(iter(cut_off.items()))
        yield problem(
            "ports",
            f"{host} does not reach the driver at {address[0]}:{address[1]}: {why}",
            "set spark.driver.host, or [network] interface, to where executors reach it, and let "
            f"{ports} ([network] ports) through between all of them",
        )
    else:
        yield fine("ports", f"executors reach the driver at {address[0]}, ports {ports}")


def _barrier(session: SparkAccess, found: Facts) -> Iterator[DoctorFinding]:
    if found.dynamic_allocation:
        yield fine("barrier stages", "are not for dynamic allocation, and not needed with it")
        return
    try:
        _run(session, 1, _nothing, barrier=True)
    except Exception as error:  # as above
        yield warning(
            "barrier stages",
            f"do not run: {_error_text(error)}",
            "clusters can only hold their slots; leave one more to feed them",
        )
        return
    yield fine("barrier stages", "run: slots can be shared")


def _run(session: SparkAccess, count: int, task: Callable[..., Any], *, barrier: bool) -> list[str]:
    """Run it, and cancel it after `PROBE_S`."""
    timer = threading.Timer(PROBE_S, session.cancel, [_TAG])
    timer.daemon = True
    timer.start()
    try:
        return session.run(count, task, barrier=barrier, tag=_TAG)
    finally:
        timer.cancel()


def _error_text(error: Exception) -> str:
    if was_cancelled(error):
        return f"tasks had not ended within {PROBE_S:g} s: are all slots busy?"
    return error_text(error)


def probe(address: tuple[str, int]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function that tasks run. It travels by value: there may be no Howdah."""
    reach_s = REACH_S

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib
        import json
        import socket
        import sys

        import pyarrow

        for _ in batches:
            pass
        seen = {
            "host": socket.gethostname(),
            "python": ".".join(map(str, sys.version_info[:3])),
        }
        try:
            importlib.import_module("howdah.backends.spark.slot_task")  # and all it needs
            seen["howdah"] = importlib.import_module("howdah.version").__version__
        except ImportError as error:
            seen["missing"] = f"{error} ({sys.executable})"
        try:
            socket.create_connection(address, timeout=reach_s).close()
        except OSError as error:
            seen["unreachable"] = str(error)
        yield pyarrow.RecordBatch.from_pydict({"problem": [json.dumps(seen)]})

    return look


def _nothing(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow

    for _ in batches:
        pass
    yield pyarrow.RecordBatch.from_pydict({"problem": [""]})
