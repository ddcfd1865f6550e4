"""A Spark session, classic or Connect, as this backend uses it."""

from __future__ import annotations

import abc
import contextlib
import functools
import inspect
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

SCHEMA = "problem string"
"""Of a task's one row: why there is no container process, empty if there is one."""
_GROUP = "spark.jobGroup.id"
_DESCRIPTION = "spark.job.description"
_POOL = "spark.scheduler.pool"


class SparkAccess(abc.ABC):
    """What both kinds can do."""

    connect: bool

    def __init__(self, spark: Any, profile: Any = None) -> None:
        """To be made in the user's own thread, for its job group and pool, or its tags."""
        self.spark = spark
        self.profile = profile
        """pyspark's ResourceProfile of the job's own tasks; None: they get what all tasks get."""

    @abc.abstractmethod
    def setting(self, name: str, default: str = "") -> str:
        """A setting of the application; ``default`` where it has none, or it cannot be asked."""

    def run(
        self, count: int, task: Callable[[Iterator[Any]], Iterator[Any]], *, barrier: bool, tag: str
    ) -> list[str]:
        """Run a job of so many tasks, as the user's own jobs run (group, pool); returns what
        each has to tell (`SCHEMA`).

        Raises:
            Exception: the job failed or was cancelled.
        """
        # Spark 3.5 has no such argument: who gives no profile needs none.
        more = {} if self.profile is None else {"profile": self.profile}
        with self._tagged(tag):
            frame = self.spark.range(0, count, 1, count).mapInArrow(
                task, SCHEMA, barrier=barrier, **more
            )
            return [row["problem"] for row in frame.collect()]

    @abc.abstractmethod
    def _tagged(self, tag: str) -> contextlib.AbstractContextManager[None]:
        """This thread's jobs run as the user's own, under that tag."""

    @abc.abstractmethod
    def cancel(self, tag: str) -> None:
        """Cancel the job that runs under that tag."""

    @abc.abstractmethod
    def host(self) -> str:
        """This machine's address as executors reach it."""

    @abc.abstractmethod
    def alive(self) -> bool:
        """The session has not been stopped."""

    def capacity(self, profile: Any) -> int | None:
        """How many tasks of that profile (None: of the session's own queries) can run at the same
        time; None if that cannot be told."""
        return None

    def executors(self) -> int | None:
        """How many executors are registered; None if that cannot be told."""
        return None

    def age_s(self) -> float:
        """How long there has been this application; 0 if that cannot be told."""
        return 0.0

    def busy(self) -> int | None:
        """How many tasks run now; None if that cannot be told."""
        return None

    def task_amount(self, resource: str) -> float | None:
        """How much of it each task gets by the job's own profile; None if that does not say."""
        request = self.profile.taskResources.get(resource) if self.profile is not None else None
        return None if request is None else float(request.amount)

    def profile_problem(self) -> str:
        """Why jobs here cannot have the profile; empty if they can, or there is none."""
        if self.profile is None or has_profiles(self.spark):
            return ""
        return (
            f"Spark {self.spark.version} has no profiles for DataFrames, Spark 4 has. Start the "
            "application with spark.task.resource.gpu.amount and spark.executor.resource.gpu.amount, "
            "and leave it out"
        )


class ClassicSession(SparkAccess):
    """A session whose driver is this process."""

    connect = False

    def __init__(self, spark: Any, profile: Any = None) -> None:
        super().__init__(spark, profile)
        self._context = spark.sparkContext
        self._local = {
            name: value
            for name in (_GROUP, _DESCRIPTION, _POOL)
            if (value := self._context.getLocalProperty(name)) is not None
        }

    @functools.cached_property
    def _conf(self) -> Any:
        # Spark copies it, setting by setting, at each call; it does not change any more.
        return self._context.getConf()

    def setting(self, name: str, default: str = "") -> str:
        return self._conf.get(name, default) or default

    @contextlib.contextmanager
    def _tagged(self, tag: str) -> Iterator[None]:
        context = self._context
        for name, value in self._local.items():
            context.setLocalProperty(name, value)
        context.setLocalProperty(_DESCRIPTION, tag)
        context.addJobTag(tag)
        try:
            yield
        finally:
            context.removeJobTag(tag)

    def cancel(self, tag: str) -> None:
        self._context.cancelJobsWithTag(tag)

    def capacity(self, profile: Any) -> int | None:
        scala = self._context._jsc.sc()
        try:
            manager = scala.resourceProfileManager()
            java = manager.defaultResourceProfile()
            if profile is not None:
                java = profile._java_resource_profile
                manager.addResourceProfile(java)
            return int(scala.maxNumConcurrentTasks(java))
        except Exception:  # py4j's, where a Spark has no such method
            return None

    def executors(self) -> int | None:
        try:
            infos = self._context._jsc.sc().statusTracker().getExecutorInfos()
            return len(infos) - 1  # the driver is one of them
        except Exception:
            return None

    def age_s(self) -> float:
        return time.time() - self._context.startTime / 1000

    def busy(self) -> int | None:
        try:
            executors = self._context._jsc.sc().statusTracker().getExecutorInfos()
            return sum(each.numRunningTasks() for each in executors)
        except Exception:
            return None

    def host(self) -> str:
        if self.setting("spark.master").startswith("local"):
            return "127.0.0.1"
        return self.setting("spark.driver.host") or socket.gethostname()

    def alive(self) -> bool:
        return self._context._jsc is not None

    def profile_problem(self) -> str:
        problem = super().profile_problem()
        if self.profile is None or problem:
            return problem
        try:
            manager = self._context._jsc.sc().resourceProfileManager()
            manager.addResourceProfile(self.profile._java_resource_profile)
        except Exception as error:  # py4j's; Spark's own message is inside
            inner = getattr(error, "java_exception", None)
            return f"Spark refuses it here: {inner.getMessage() if inner else error}"
        return ""


class ConnectSession(SparkAccess):
    """A session on a Connect server: Spark's driver is another process."""

    connect = True

    def __init__(self, spark: Any, profile: Any = None) -> None:
        super().__init__(spark, profile)
        self._tags: set[str] = set(spark.getTags())

    def setting(self, name: str, default: str = "") -> str:
        try:
            return self.spark.conf.get(name, default) or default
        except Exception:  # a setting that this server does not tell
            return default

    @contextlib.contextmanager
    def _tagged(self, tag: str) -> Iterator[None]:
        for each in {*self._tags, tag}:
            self.spark.addTag(each)
        yield

    def cancel(self, tag: str) -> None:
        self.spark.interruptTag(tag)

    def host(self) -> str:
        server = self.spark.client.host
        if self.setting("spark.master").startswith("local") and _is_here(server):
            return "127.0.0.1"
        return _towards(server)

    def alive(self) -> bool:
        return not getattr(self.spark, "is_stopped", False)


def is_connect(spark: Any) -> bool:
    """Whether Spark's driver is another process. pyspark's Connect need not be installed."""
    return ".connect." in f"{type(spark).__module__}."


def session_of(spark: Any, profile: Any = None) -> SparkAccess:
    """The session, by its kind. ``profile`` is pyspark's ResourceProfile for Howdah's Spark jobs."""
    return (ConnectSession if is_connect(spark) else ClassicSession)(spark, profile)


def in_thread(name: str, call: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread in the user's program: it does not keep the program from ending."""
    thread = threading.Thread(target=call, name=name, daemon=True)
    thread.start()
    return thread


def query_setting(spark: Any, name: str) -> str:
    """A setting of a session's queries, or Spark's default; empty where this Spark has no such one."""
    try:
        return spark.conf.get(name) or ""
    except Exception:  # py4j's, or Connect's
        return ""


def has_profiles(spark: Any) -> bool:
    """Whether a DataFrame's tasks may have a resource profile."""
    return "profile" in inspect.signature(spark.range(0).mapInArrow).parameters


def _is_here(host: str) -> bool:
    try:
        return socket.gethostbyname(host).startswith("127.")
    except OSError:
        return False


def _towards(host: str) -> str:
    """This machine's address on the way to another one. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
            address = probe.getsockname()[0]
        except OSError:
            address = ""
    if address and not address.startswith("127."):
        return address
    return socket.gethostname()
