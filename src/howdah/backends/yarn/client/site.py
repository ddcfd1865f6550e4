"""A job on YARN as a client finds it: see `howdah.backends.base.Site`.

The ResourceManager says where the master is and whether the application lives; HDFS has what is
durable. Either may be away for a while: then the other one's word counts, and nothing is concluded.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from howdah.backends import submitter_liveness
from howdah.backends.base import BackendError, Lost, Running, Site
from howdah.backends.yarn import pending_reason
from howdah.backends.yarn.access import Access, folder_of_site, shared
from howdah.backends.yarn.amounts import of_master
from howdah.backends.yarn.client import application_end, cluster_report
from howdah.backends.yarn.client.cluster import Queue, YarnCluster
from howdah.backends.yarn.local_resources import KEYTAB
from howdah.core.messages import Task
from howdah.hadoop.errors import AccessControl, ApplicationNotFound, HadoopError
from howdah.hadoop.ids import ApplicationId
from howdah.hadoop.protos import yarn
from howdah.spec.units import seconds
from howdah.storage import layout
from howdah.storage.copies import replica
from howdah.storage.copies.mirror import Mirror
from howdah.storage.hdfs.errors import AlreadyThere
from howdah.storage.hdfs.files import Hdfs, HdfsStat
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress
from howdah.wire.status import JobView

if TYPE_CHECKING:
    from howdah.backends.yarn.client.aggregated import Aggregated

FRESH_S = 0.04
"""Questions asked together are answered from one report; one that took longer to come is as long good."""
KILL_S = 30.0
CLOCKS_APART_S = 900.0
"""The clock of whoever submitted the job may differ so much from this machine's."""

OVER = frozenset({"FINISHED", "FAILED", "KILLED"})
_NOT_BEGUN = frozenset({"NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED"})


class YarnSite(Site):
    """One job directory's application."""

    at_hand = False

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._fresh_until = 0.0
        self._report: yarn.ApplicationReportProto | None = None
        self._figures: tuple[YarnCluster | None, Queue | None] = (None, None)
        self._figures_until = 0.0
        self._unknown = False
        """The ResourceManager does not know the application."""
        self._silent = ""
        """Why the ResourceManager did not answer."""
        self._unread = ""
        """Why HDFS did not tell whether the job has ended."""
        self._waits_since: float | None = None
        """When the job was first found to wait for its master, on the monotonic clock."""

    # -- the contract --------------------------------------------------------------------------

    def coordinator(self) -> CoordinatorAddress | None:
        """The ResourceManager's word; HDFS's where that is silent, or knows no port."""
        report = self._look()
        if report is not None and _state(report) == "RUNNING" and report.rpc_port > 0:
            return CoordinatorAddress(
                incarnation=report.currentApplicationAttemptId.attemptId,
                host=report.host,
                port=report.rpc_port,
                http_port=_port(report.originalTrackingUrl),
                pid=0,
            )
        if self._unknown or (report is not None and _state(report) != "RUNNING"):
            return None
        with contextlib.suppress(OSError):
            if self._mirror.bring_coordinator():
                return self._directory.coordinator()
        return None

    def final(self) -> JobView | None:
        """The job's last word; else, if the application is over, what YARN says of its end."""
        final = self._directory.final()
        if final is not None:
            return final
        report = self._look()
        if report is not None and _not_begun(report):
            return None  # HDFS need not be asked by all who wait
        over = report if report is not None and _state(report) in OVER else None
        try:
            final = self._brought()
            self._unread = ""
            return self._write_end(over) if final is None and over is not None else final
        except OSError as error:
            if over is None:
                self._unread = f", and {self._url} cannot be read: {error}"
                return None
            # What cannot be read may be there, and say otherwise than YARN does.
            raise self._not_brought(error) from error

    def running(self) -> Running:
        report = self._look()
        if report is None:
            if self._unknown:
                waits = submitter_liveness.may_go_on(self._directory.meta())
                return Running.NOT_YET if waits else Running.NO
            # What HDFS tells; else what was told before, as long as nothing answers at all.
            there = self.coordinator() or self._directory.coordinator()
            return Running.YES if there else Running.NOT_YET
        state = _state(report)
        if state in OVER:
            return Running.NO
        return Running.NOT_YET if _not_begun(report) else Running.YES

    def waiting(self) -> str:
        """See `howdah.backends.base.Site.waiting`. A job that has waited for its master longer than
        ``master.startup`` is ended: before there is a master, whoever looks is all it has."""
        report = self._look()
        if report is None and self._unknown:
            return submitter_liveness.under_way(self._directory.meta())
        if report is None:
            doubt = "it may have ended: " if self._unread else ""
            return f"{doubt}{self._silent}{self._unread}"
        if late := self._late(report):
            self.end(late)
            return late
        label = report.amNodeLabelExpression
        application = pending_reason.Application(
            state=_state(report),
            queue=report.queue,
            user=report.user,
            diagnostics=report.diagnostics,
            label="" if label.startswith("<") else label,
            master=of_master(self._directory.job().master),
        )
        if pending_reason.is_moment(application):
            return pending_reason.for_master(application)
        cluster, queue = self._nodes_and_queue(application.queue)
        return pending_reason.for_master(application, queue, cluster)

    def _nodes_and_queue(self, name: str) -> tuple[YarnCluster | None, Queue | None]:
        with self._lock:
            if time.monotonic() >= self._figures_until:
                self._figures = None, None
                with contextlib.suppress(HadoopError, BackendError):
                    access = self._access
                    self._figures = access.call(
                        cluster_report.nodes_and_queue(access.manager, access.user, name)
                    )
                self._figures_until = time.monotonic() + pending_reason.FIGURES_S
            return self._figures

    def _late(self, report: yarn.ApplicationReportProto) -> str:
        """Why the application is to be ended before its master has begun, if it is."""
        limit = self._directory.job().master.startup
        limit_s = seconds(limit)
        if limit_s is None or not _not_begun(report):
            return ""
        now = time.monotonic()
        if self._waits_since is None:
            self._waits_since = now
        by_clocks_s = time.time() - self._directory.meta().submitted - CLOCKS_APART_S
        waited_s = max(now - self._waits_since, by_clocks_s)
        return application_end.too_late(limit) if waited_s > limit_s else ""

    def bring_story(self) -> None:
        self._bring(self._bring_journal, lambda: self._mirror.bring_stacks())

    def bring_metrics(self) -> None:
        self._bring(lambda: self._mirror.bring_metrics())

    def bring_logs(self, tasks: Sequence[Task] = ()) -> None:
        self._bring(lambda: self._mirror.bring_logs(tasks))
        self._bring_aggregated(tasks)

    def has_remote_summaries(self) -> bool:
        return any(each.size for each in self._summaries())

    def bring_summaries(self, folder: Path, most: int) -> int:
        found = self._summaries()
        size = sum(each.size for each in found)
        if size <= most:
            Mirror(f"{self._url}/{layout.TENSORBOARD}", folder, self._hdfs).bring_files(found)
        return size

    def _summaries(self) -> list[HdfsStat]:
        if self._directory.meta().url is None:
            return []
        try:
            return self._mirror.summaries()
        except OSError as error:
            raise BackendError(f"{self._url} cannot be looked at: {error}") from error

    def size_elsewhere(self) -> int:
        if self._directory.meta().url is None:
            return 0
        try:
            found = self._hdfs.list(self._url, recursive=True)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise BackendError(f"{self._url} cannot be looked at: {error}") from error
        return sum(each.size for each in found if not each.is_dir)

    def remove_elsewhere(self) -> int:
        freed = self.size_elsewhere()
        if self._directory.meta().url is None:
            return 0
        if self._url.rpartition("/")[2] != self._directory.job_id:
            raise BackendError(
                f"{self._url} is no job directory of {self._directory.job_id}: it is left alone"
            )
        try:
            self._hdfs.remove(self._url, recursive=True)
        except OSError as error:
            raise BackendError(f"{self._url} cannot be removed: {error}") from error
        return freed

    def lost(self) -> Lost:
        meta = self._directory.meta()
        if meta.submitter is not None and next(self._path.glob("events-*"), None) is None:
            lost = submitter_liveness.never_handed_over(meta, "YARN")
            left = f". What it left is in {meta.url}" if meta.url is not None else ""
            return Lost(lost.what, f"{lost.remedy}{left}")
        return Lost(
            f"nobody runs {meta.job_id} any more: the ResourceManager does not know its application "
            f"{meta.application_id}, and it did not write how it ended (was the cluster set up anew?)",
            f"To begin anew: howdah rerun {meta.job_id}{self._resume()}. What it left is in {meta.url}",
        )

    def revive(self) -> None:
        raise BackendError(
            f"{self._directory.job_id} cannot be revived: an application on YARN that is over stays "
            f"so. It goes on as a new job with: howdah rerun {self._directory.job_id}"
            f"{self._resume()}"
        )

    def end(self, reason: str) -> None:
        said = reason or "stopped by the submitter"
        if end(self._access, self._application, self._directory.job_id, said):
            self._fresh_until = 0.0
            self.final()

    # -- the ResourceManager -------------------------------------------------------------------

    @cached_property
    def _access(self) -> Access:
        folder = self._directory.meta().hadoop_conf
        return shared(folder if folder is not None and os.path.isdir(folder) else folder_of_site())

    @cached_property
    def _application(self) -> ApplicationId:
        meta = self._directory.meta()
        try:
            return ApplicationId.parse(meta.application_id or "")
        except ValueError:
            raise BackendError(
                f"{self._directory.path} does not say which application {meta.job_id} is: its "
                "submission did not come so far"
            ) from None

    def _look(self) -> yarn.ApplicationReportProto | None:
        """The application's report; None if there is none, or nobody answers."""
        with self._lock:
            begun = time.monotonic()
            if begun < self._fresh_until:
                return self._report
            self._report, self._unknown, self._silent = None, False, ""
            if self._directory.meta().application_id is None:
                self._unknown = True  # its submission has not come so far
                return None
            try:
                access = self._access
                report = access.call(access.manager.application_report(self._application))
                owner = self._directory.meta().owner
                # A job directory of another user's may name any application.
                if owner is None or report.user == owner:
                    self._report = report
                else:
                    self._unknown = True
            except ApplicationNotFound:
                self._unknown = True
            except (HadoopError, BackendError) as error:
                self._silent = f"the ResourceManager does not answer: {error}"
            answered = time.monotonic()
            self._fresh_until = answered + max(FRESH_S, answered - begun)
            return self._report

    def _write_end(self, report: yarn.ApplicationReportProto) -> JobView | None:
        """Write the end down for everybody, here and on HDFS, unless somebody else was sooner.

        Raises:
            OSError: somebody was, and that cannot be brought.
        """
        self.bring_story()
        job, meta = self._directory.job(), self._directory.meta()
        ended = application_end.ApplicationEnd(
            application_id=str(self._application),
            state=_state(report),
            diagnostics=report.diagnostics,
            finished=report.finishTime / 1000 or None,
        )
        tail = self._aggregated().tail_of_master(application_end.TAIL_LINES)
        final = application_end.view(meta, job.name, job.framework, self._url, ended, tail)
        final = msgspec.structs.replace(final, queue=report.queue)
        key = f"{self._url}/{KEYTAB}"
        try:
            if meta.owner is None and self._hdfs.exists(key):
                self._hdfs.remove(key)  # its master did not come to that
        except OSError as error:
            left = f"Its keytab is still on HDFS. {error}. Then remove it: hdfs dfs -rm {key}"
            final = msgspec.structs.replace(final, reason=f"{final.reason}. {left}")
        self._directory.write_final(final)
        if meta.owner is not None:
            return final  # its owner's to write
        place = f"{self._url}/{layout.FINAL}"
        try:
            self._hdfs.put(self._path / layout.FINAL, place, overwrite=False, parents=False)
        except AlreadyThere:
            (self._path / layout.FINAL).unlink()
            return self._brought()
        except OSError:
            pass  # it is here
        return final

    # -- HDFS ----------------------------------------------------------------------------------

    @property
    def _path(self) -> Path:
        return self._directory.path

    @cached_property
    def _url(self) -> str:
        url = self._directory.meta().url
        if url is None:
            raise BackendError(
                f"{self._path} does not say where on HDFS the job is: its submission did not come "
                "so far"
            )
        return url

    @cached_property
    def _hdfs(self) -> Hdfs:
        return self._access.hdfs(self._url).patient(0.0)

    @property
    def _mirror(self) -> Mirror:
        return Mirror(self._url, self._path, self._hdfs)

    def _brought(self) -> JobView | None:
        """``final.json`` from HDFS, and before it is here all that belongs to it; None if there is none.

        Raises:
            OSError: that cannot be found out, or it cannot be brought.
        """
        if self._directory.meta().url is None:
            return None  # its submission has not come so far
        if not self._hdfs.exists(f"{self._url}/{layout.FINAL}"):
            return None
        self.bring_story()
        self._mirror.bring_final()
        return self._directory.final()

    def _bring_journal(self) -> None:
        # Nobody writes it any more: what a dead master left open is closed and seen. Others than its owner
        # look while it is written, and close nothing.
        nobody_writes = self._directory.meta().owner is None
        replica.bring_journal(self._url, self._path, nobody_writes=nobody_writes, hdfs=self._hdfs)

    def _bring(self, *ways: Callable[[], None]) -> None:
        if self._directory.meta().url is None:
            return  # its submission has not come so far
        for way in ways:
            try:
                way()
            except FileNotFoundError:
                continue  # removed meanwhile, or never made
            except OSError as error:
                raise self._not_brought(error) from error

    def _not_brought(self, error: OSError) -> BackendError:
        return BackendError(
            f"What is kept of {self._directory.job_id} at {self._url} cannot be brought: {error}"
        )

    def _bring_aggregated(self, tasks: Sequence[Task]) -> None:
        """Logs of a job that is over and that its agents did not come to copy: YARN has them."""
        final = self._directory.final()
        if final is None:
            return
        wanted = {str(task) for task in tasks}
        missing = any(
            not self._directory.log_path(Task(each.role, each.index), attempt).exists()
            for each in final.tasks
            if not wanted or each.task in wanted
            for attempt in range(1, each.attempt + 1)
        )
        if missing or not final.tasks:

            def is_wanted(task: Task, attempt: int) -> bool:
                return not wanted or str(task) in wanted

            self._aggregated().bring(self._directory, is_wanted)

    def _aggregated(self) -> Aggregated:
        from howdah.backends.yarn.client.aggregated import Aggregated

        return Aggregated(self._access, self._application, self._directory.meta().user)

    def _resume(self) -> str:
        return " --resume" if self._directory.job().checkpoint is not None else ""


def end(access: Access, application: ApplicationId, called: str, reason: str) -> bool:
    """Have YARN end it at once, if it is not over; false if YARN does not know it (any more).

    ``called`` is its name in messages.

    Raises:
        BackendError: YARN does not, or not for this user.
    """
    try:
        kill = access.manager.kill_application(application, reason, timeout_s=KILL_S)
        done = access.call(kill)
    except ApplicationNotFound:
        return False
    except HadoopError as error:
        raise BackendError(f"{called} could not be ended: {error}") from error
    except BackendError as error:
        if isinstance(error.__cause__, AccessControl):
            raise BackendError(f"{access.user} may not end {called}: {error.__cause__}") from error
        raise
    if not done:
        raise BackendError(
            f"YARN has not ended {application} within {KILL_S:g}s; look again with "
            f"'howdah status {called}'"
        )
    return True


def _state(report: yarn.ApplicationReportProto) -> str:
    return yarn.YarnApplicationStateProto.Name(report.yarn_application_state)


def _not_begun(report: yarn.ApplicationReportProto) -> bool:
    """Its first master has not begun."""
    first = report.currentApplicationAttemptId.attemptId <= 1
    return first and _state(report) in _NOT_BEGUN


def _port(url: str) -> int:
    """The port of a page's URL; 0 if there is none yet."""
    try:
        return urlsplit(url if "://" in url else f"http://{url}").port or 0
    except ValueError:
        return 0
