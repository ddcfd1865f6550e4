"""The client's side of the Spark backend, for one job: see `howdah.backends.base.Submission`."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from howdah.backends.base import BackendError, Submission
from howdah.backends.local.processes import start_of
from howdah.backends.spark import facts as spark_facts
from howdah.backends.spark.coordinator_process import CoordinatorProcess
from howdah.backends.spark.driver import Driver
from howdah.backends.spark.launch_bundle import (
    NONCE,
    LaunchBundle,
    agent_secrets,
    container_config,
    job_files,
    pack_source,
)
from howdah.backends.spark.sessions import session_of
from howdah.backends.spark.site import SparkSettings, write_settings
from howdah.frameworks import planning
from howdah.frameworks.sidecars import TENSORBOARD
from howdah.packing.archives import PackingError
from howdah.spec.model import Slots
from howdah.spec.units import port_range
from howdah.storage.files import write_atomically
from howdah.storage.jobdir import JobDirectory
from howdah.wire.addresses import NoInterface, address_of, bind_within

if TYPE_CHECKING:
    from howdah.backends.base import Step
    from howdah.core.plan import Plan
    from howdah.spec.load import LoadedJob
    from howdah.spec.model import Job

_LOOPBACK = ("127.0.0.1", "localhost")
_deciding = threading.Lock()
_submissions: weakref.WeakSet[SparkSubmission] = weakref.WeakSet()
"""Of this program: the slots that one takes are not there for others."""


class SparkSubmission(Submission):
    """A job in a session's application. Many may be in one session, at once or one by one."""

    def __init__(
        self,
        spark: Any,
        *,
        feeds: bool = False,
        on_driver: frozenset[str] = frozenset(),
        wait_s: float = 30.0,
        profile: Any = None,
        spread: bool = False,
    ) -> None:
        """
        Args:
            spark: the session, classic or Connect. To be made in the thread whose job group and
                pool the job is to share.
            feeds: tasks of the same application feed the job's programs, which takes a slot.
            on_driver: roles whose containers are on the driver's own machine and take no slot.
                TensorBoard's is always one.
            wait_s: for executors that are still registering, before too few slots are refused.
            profile: pyspark's ResourceProfile for the slots (stage-level scheduling, Spark 4).
            spread: each container is to have an executor of its own: as many are waited for.

        Raises:
            BackendError: this machine has no address of that name, or no process can be started.
        """
        self.spark = spark
        self.on_driver: frozenset[str] = on_driver | {TENSORBOARD}
        self.closed: threading.Event = threading.Event()
        """Set when the job's coordinator has ended for good, or none was ever started."""
        self.notice: str = ""
        """After `check`: what the user should know of the job's slots."""
        self._feeds = feeds
        self._slots = Slots.HELD
        self._taken = 0
        """Slots of the application that this job takes from others while it runs."""
        self._wait_s = wait_s
        self._spread = spread
        self._session = session_of(spark, profile)
        self._facts: spark_facts.Facts | None = None
        self._plan: Plan | None = None
        self._source: bytes = b""
        self._driver: Driver | None = None
        try:
            self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            # Bound once the job says to which ports; the coordinator's process has it already.
            self._coordinator = CoordinatorProcess(self._listener)
        except OSError as error:
            raise BackendError(f"No coordinator can be started here: {error}") from error
        self.host: str = self._session.host()
        """Where executors reach this program: Spark's own address of it (``spark.driver.host``), or in
        `check` that of the job's ``[network] interface``."""
        self.listen_address = "127.0.0.1" if self.host in _LOOPBACK else "0.0.0.0"  # noqa: S104 - executors are on other machines; mTLS
        """What it listens on: this machine only, where all executors are here; the job's interface
        only, where it names one."""

    @property
    def coordinator_pid(self) -> int:
        """The current coordinator's process."""
        return self._driver.pid if self._driver is not None else self._coordinator.process.pid

    @property
    def begun(self) -> bool:
        """`go` has started the job."""
        return self._driver is not None

    def check(self, job: Job, loaded: LoadedJob) -> None:
        """Refuse what this application can never run, every reason with setting and value.

        Raises:
            BackendError: with all reasons.
        """
        self._plan = planning.plan(job, "check")
        if problem := self._session.profile_problem():
            raise BackendError(
                f"This Spark application can never run the job:\n  resource profile: {problem}"
            )
        problems = self._decide(self._plan, job)
        if loaded.source is not None and self._facts is not None and not self._facts.local:
            try:
                self._source = pack_source(Path(loaded.source), ignore=job.ignore)
            except PackingError as error:
                problems.append(f"source: {error}")
            except OSError as error:
                problems.append(f"source: {loaded.source} cannot be packed: {error}")
        try:
            if job.network.interface is not None:
                self.host = self.listen_address = address_of(job.network.interface)
            bind_within(self._listener, self.listen_address, port_range(job.network.ports))
            self._listener.listen(1024)
        except NoInterface as error:
            problems.append(f"network.interface: {error}")
        except OSError as error:
            problems.append(f"network.ports: {error}")
        if problems:
            lines = "\n".join(f"  {problem}" for problem in problems)
            raise BackendError(f"This Spark application can never run the job:\n{lines}")

    def _decide(self, plan: Plan, job: Job) -> list[str]:
        """Decide how slots are used; returns every reason why that cannot be."""
        asked = job.spark.slots
        needed = spark_facts.slots_needed(plan, self.on_driver)
        most = spark_facts.most_slots(plan, self.on_driver)
        spare = 1 if self._feeds and asked is not Slots.SHARED else 0
        apart = most if self._spread else 0
        self._facts = facts = spark_facts.read_when_there(
            self._session, needed, self._wait_s, spare, apart
        )
        with _deciding:
            others = sum(
                each._taken for each in _submissions if each is not self and each._running()
            )
            self._slots, self.notice = spark_facts.slots_use(
                facts, asked, feeds=self._feeds, tasks=most, others=others
            )
            if apart and (line := spark_facts.sharing(facts, apart)):
                self.notice = "\n".join(filter(None, (self.notice, line)))
            self._taken = facts.taken(most) if self._slots is Slots.HELD else 0
            _submissions.add(self)
        left = facts.left(most, others) if self._feeds else None
        return spark_facts.refusals(facts, self._slots, needed, job, self.on_driver, left)

    def _running(self) -> bool:
        return not self.closed.is_set() and self._session.alive()

    def go(self, directory: JobDirectory, progress: Callable[[Step], None]) -> None:
        try:
            bundle = self._prepare(directory)
        except OSError as error:
            raise BackendError(f"The job could not be prepared: {error}") from error
        self._driver = Driver(
            self._session,
            self._slots,
            directory.path,
            bundle,
            self._listener,
            self._coordinator,
            self.closed.set,
        )
        first = 0
        if self._plan is not None and self._facts is not None:
            first = spark_facts.first_slots(self._plan, self.on_driver, self._facts.capacity)
        self._driver.start(first)

    def _prepare(self, directory: JobDirectory) -> LaunchBundle:
        host, port = address = (self.host, self._listener.getsockname()[1])
        nonce = secrets.token_hex(16)
        write_atomically(directory.path / NONCE, nonce.encode())
        settings = SparkSettings(
            slots=self._slots,
            host=host,
            bind=self.listen_address,
            port=port,
            on_driver=tuple(sorted(self.on_driver)),
            nonce=nonce,
            driver_pid=os.getpid(),
            driver_start=start_of(os.getpid()) or 0,
            path=os.environ.get("PATH") or os.defpath,
        )
        write_settings(directory.path, settings)
        return LaunchBundle(
            config=container_config(directory, settings, address, spark_job=0),
            secrets=agent_secrets(directory),
            files=job_files(directory),
            source=self._source,
        )

    def close(self) -> None:
        """Release it. After `go` the job goes on; it ends with this process, whatever happens."""
        if self._driver is None and not self.closed.is_set():
            self._coordinator.close()
            self._listener.close()
            self.closed.set()
