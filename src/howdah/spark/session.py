"""A Spark session as the feed uses it: queries that can be cancelled, with settings of their own."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from howdah.backends.spark import sessions
from howdah.backends.spark.error_texts import error_text, was_cancelled
from howdah.backends.spark.sessions import is_connect, session_of
from howdah.spark.feed.control.plan import MOST_ROWS
from howdah.storage.jobdir import user_name

MOST_RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
MOST_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
UNLIMITED = 2**31 - 1
"""Spark does not look at a row's size then."""


class Query:
    """A Spark action in a thread of its own, under a tag by which it can be cancelled."""

    def __init__(
        self, session: Session, action: Callable[[], Any], ended: Callable[[], None]
    ) -> None:
        self.error: BaseException | None = None
        self.over: bool = False
        self._session = session
        self._tag = f"howdah-{uuid.uuid4().hex[:12]}"
        self._action = action
        self._ended = ended
        self._thread = session.thread(self._run)
        self._thread.start()

    @property
    def cancelled(self) -> bool:
        """Whether somebody has cancelled it: we, or the user by its job group."""
        return self.error is not None and was_cancelled(self.error)

    @property
    def problem(self) -> str:
        """Spark's own error, the line that says what is wrong first."""
        if self.error is None:
            return ""
        return f"{error_text(self.error)}\n{self.error}"

    def wait(self, seconds: float) -> None:
        """Let it end by itself, for so long."""
        self._thread.join(seconds)

    def cancel(self, wait_s: float = 10.0) -> None:
        """End it; it has ended when this returns, if Spark does that in time."""
        if not self.over:
            with contextlib.suppress(Exception):  # it may end by itself just now
                self._session.cancel(self._tag)
        self.wait(wait_s)

    def _run(self) -> None:
        try:
            with self._session.tagged(self._tag):
                self._action()
        except BaseException as error:
            self.error = error
        finally:
            self.over = True
            self._ended()


class Session:
    """Classic or Connect."""

    def __init__(self, spark: Any) -> None:
        if type(spark).__name__ == "SparkContext":
            from pyspark.sql import SparkSession

            spark = SparkSession(spark)
        self.spark = spark
        self.inner: sessions.SparkAccess = session_of(spark)
        self.connect: bool = self.inner.connect

    def default_fs(self) -> str:
        return default_fs(self.spark)

    def user(self) -> str:
        """The user's name on Hadoop's file systems."""
        if not self.connect:
            with contextlib.suppress(Exception):
                return self.spark.sparkContext.sparkUser()
        return user_name()

    def thread(self, target: Callable[[], None]) -> threading.Thread:
        """A daemon thread whose queries belong to the caller's job group, pool and tags."""
        from pyspark import InheritableThread

        more = {"session": self.spark} if self.connect else {}
        made = InheritableThread(target=target, name="howdah-query", **more)
        made.daemon = True
        return made

    @contextlib.contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        """Queries of this thread can be cancelled by that tag."""
        where = self.spark if self.connect else self.spark.sparkContext
        add, remove = ("addTag", "removeTag") if self.connect else ("addJobTag", "removeJobTag")
        getattr(where, add)(tag)
        try:
            yield
        finally:
            with contextlib.suppress(Exception):  # the session may have ended meanwhile
                getattr(where, remove)(tag)

    def cancel(self, tag: str) -> None:
        """Cancel what runs under that tag."""
        self.inner.cancel(tag)

    def in_batches(self, frame: Any, rows: int, size: int, *, exact: bool) -> Any:
        """The frame, such that queries on it make record batches of so many rows. Where that is a guess
        of what makes ``size`` bytes (not ``exact``), Spark 4 counts the bytes instead, row by row.

        It is a copy of the frame in a copy of its session: no other query sees these settings. A
        session on Connect cannot be copied with all that is in it; there it is the frame as it is, and
        the user's own settings count.
        """
        if self.connect:
            return frame
        return _in_own_session(frame, self._batch_settings(rows, size, exact=exact)) or frame

    def as_rdd(self, frame: Any) -> Any | None:
        """The same rows, in the same partitions in every query from now on: those of an RDD are made
        once. Spark divides local tables and small files by the cores that it has just then, and decides
        anew which side of a join it broadcasts.

        Runs what it takes to plan that: broadcasts. None on Connect, and where this Spark does not let
        us.
        """
        if self.connect:
            return None
        jvm_frame = frame._jdf
        rdd = jvm_frame.queryExecution().toRdd()
        rdd.getNumPartitions()
        try:
            made = jvm_frame.sparkSession().internalCreateDataFrame(rdd, jvm_frame.schema(), False)
        except Exception:  # py4j's: no such method in this Spark
            return None
        return type(frame)(made, frame.sparkSession)

    def materialised(self, frame: Any) -> Any | None:
        """The same rows, computed now, in an order that stays: executors keep them, in memory and on disk.
        What a lost executor had of them is an error when it is read, and never computed anew.

        None where this Spark cannot (3.5 on Connect).
        """
        try:
            return frame.localCheckpoint()
        except NotImplementedError:
            return None

    def release(self, frame: Any) -> None:
        """What was `materialised` is not needed any more. On Connect the server drops it with the frame."""
        if not self.connect:
            with contextlib.suppress(Exception):  # py4j's: Spark drops it by itself, later
                frame._jdf.queryExecution().analyzed().rdd().unpersist(False)

    def known_rows(self, frame: Any) -> int | None:
        """How many rows it has, where that can be told without a Spark job; else None."""
        if self.connect:
            return None
        try:
            plan = frame._jdf.queryExecution().optimizedPlan()
            limited, leaf = False, plan
            while (name := leaf.nodeName()) in _KEEPS_ROWS:
                limited = limited or name != "Project"
                leaf = leaf.children().head()
            if name in _COUNTED:
                found = plan.maxRows()  # of these it is not the most, but all
            elif name == "InMemoryRelation" and not limited and self._counts_cached(leaf):
                found = leaf.stats().rowCount()
            else:
                return None
            return int(str(found.get())) if found.isDefined() else None
        except Exception:  # py4j's: another Spark has other plans
            return None

    def _counts_cached(self, relation: Any) -> bool:
        """Whether Spark has counted all rows of a cached DataFrame. Spark 3 counts those again that it
        computes again, as it does where they did not fit."""
        cache = relation.cacheBuilder()
        version = int(self.spark.version.split(".")[0])
        return version >= 4 and bool(cache.isCachedColumnBuffersLoaded())

    def ordered(self, frame: Any) -> bool:
        """Whether Spark gives the rows of each partition in the same order again.

        Where the plan can't be read it is taken not to: the feeding query will say why.
        """
        try:
            if self.connect:
                return not shuffles(frame._explain_string())
            execution = frame._jdf.queryExecution()
            plan = execution.executedPlan().toString()
            if shuffles(plan):
                return False
            # Spark would run their stages to make an RDD of these: what they read is looked at.
            if any(name in plan for name in ("Exchange", "Subquery", "AdaptiveSparkPlan")):
                return all(map(determinate, _rdds(execution.sparkPlan())))
            return determinate(execution.toRdd())
        except Exception:  # py4j's, or a server that does not answer
            return False

    def tasks_ended(self) -> int:
        """Tasks that the application's active stages have ended; 0 where that cannot be told."""
        if self.connect:
            return 0
        try:
            tracker = self.spark.sparkContext.statusTracker()
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            # A later stage is worth more than any number of an earlier one's tasks.
            return sum(each.numCompletedTasks + each.stageId * 10**6 for each in stages if each)
        except Exception:
            return 0

    def _batch_settings(self, rows: int, size: int, *, exact: bool) -> dict[str, str]:
        if not sessions.query_setting(self.spark, MOST_BYTES):  # this Spark has no such one
            if not exact:
                # Nobody knows how wide they are but, perhaps, the user.
                rows = min(rows, self._own_limit())
            return {MOST_RECORDS: str(rows)}
        if exact:
            return {MOST_RECORDS: str(rows), MOST_BYTES: str(UNLIMITED)}
        return {MOST_RECORDS: str(MOST_ROWS), MOST_BYTES: str(size)}

    def _own_limit(self) -> int:
        """The session's own setting for rows in a record batch; 0 or less is none."""
        own = sessions.query_setting(self.spark, MOST_RECORDS).strip()
        return int(own) if own.isdigit() and int(own) else MOST_ROWS


_KEEPS_ROWS = frozenset({"Project", "GlobalLimit", "LocalLimit"})
_COUNTED = frozenset({"LocalRelation", "Range"})
"""Leaves of logical plans that have their rows, or how many."""


def shuffles(plan: str) -> bool:
    """Whether a physical plan shuffles. A cache of shuffled rows counts too: what of it is lost with
    an executor is computed anew."""
    exchanges = re.findall(r"\b\w*Exchange\b", plan)
    return any(name not in ("BroadcastExchange", "ReusedExchange") for name in exchanges)


def _rdds(plan: Any) -> Iterator[Any]:
    """The RDDs that a physical plan reads, those below a cache too. What made them is no part of it."""
    leaves = plan.collectLeaves()
    for leaf in (leaves.apply(number) for number in range(leaves.size())):
        kind = leaf.getClass().getSimpleName()
        if kind == "InMemoryTableScanExec":
            yield from _rdds(leaf.relation().cachedPlan())
        elif kind == "AdaptiveSparkPlanExec":
            yield from _rdds(leaf.inputPlan())
        elif kind in ("RDDScanExec", "ExternalRDDScanExec", "RowDataSourceScanExec"):
            yield leaf.rdd()


def determinate(jvm_rdd: Any) -> bool:
    """Whether an RDD of the JVM has the same rows in the same order whenever it is computed."""
    return jvm_rdd.outputDeterministicLevel().toString() == "DETERMINATE"


def default_fs(spark: Any) -> str:
    """Hadoop's ``fs.defaultFS`` as that session's application has it; empty where it cannot be told.

    A Connect server tells only what it was set in Spark itself: without that this program's own
    Hadoop configuration counts.

    Raises:
        ConfigurationError: that cannot be read.
    """
    try:
        if not is_connect(spark):
            return spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS") or ""
        told = spark.conf.get("spark.hadoop.fs.defaultFS", None)
    except Exception:  # the session has ended, or a setting that the server does not tell
        told = None
    if told or not os.environ.get("HADOOP_CONF_DIR"):
        return told or ""
    from howdah.hadoop.configuration import Configuration, find_folder

    return Configuration.load(find_folder(os.environ)).default_fs


def _in_own_session(frame: Any, settings: Mapping[str, str]) -> Any:
    """The same query in a clone of its session; None where this Spark does not let us."""
    try:
        jvm_frame = frame._jdf
        clone = jvm_frame.sparkSession().cloneSession()
        for name, value in settings.items():
            clone.conf().set(name, value)
        jvm = frame.sparkSession.sparkContext._jvm
        for place in ("org.apache.spark.sql.classic.Dataset", "org.apache.spark.sql.Dataset"):
            datasets: Any = jvm
            for part in place.split("."):
                datasets = getattr(datasets, part)
            # What no class has that name is a package, of which anything can be asked.
            if type(datasets).__name__ == "JavaClass":
                plan = jvm_frame.queryExecution().analyzed()
                return type(frame)(datasets.ofRows(clone, plan), frame.sparkSession)
    except Exception:  # py4j's: no such method in this Spark
        return None
    return None
