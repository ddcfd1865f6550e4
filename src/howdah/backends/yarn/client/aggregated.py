"""Logs that only YARN has: of attempts whose agents died before they could copy their own, and of
masters.

Agents spool the programs' output in the container's log folder under flat names
(`howdah.agent.launch.LogNames`), so YARN aggregates it with its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from howdah.backends.base import BackendError
from howdah.backends.yarn.access import Access
from howdah.backends.yarn.client import staging
from howdah.core.messages import Task
from howdah.hadoop.aggregated import AggregatedLogs, Log
from howdah.hadoop.errors import HadoopError
from howdah.hadoop.ids import ApplicationId
from howdah.storage.files import make_private_folder, write_atomically
from howdah.storage.hdfs.files import Hdfs
from howdah.storage.jobdir import JobDirectory
from howdah.storage.logs import segment_path

TAIL_BYTES = 16 * 1024
_NAME = re.compile(r"(?P<role>.+)-(?P<index>\d+)\.(?P<attempt>\d+)\.log(\.(?P<start>\d{18}))?")
"""A log's head, or its segment that begins at that byte (`howdah.storage.logs.segment_path`)."""
_OF_MASTERS = ("stderr", "master.log")


class _Files:
    """HDFS as `howdah.hadoop.aggregated` wants it."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def files(self, folder: str) -> Mapping[str, int]:
        try:
            url = self._url(folder)
        except BackendError:
            return {}  # it leads nowhere
        if not url.startswith(staging.SCHEME):
            return {}  # on a file system that nothing here reads
        try:
            return {each.name: each.size for each in self._hdfs(url).list(url) if not each.is_dir}
        except FileNotFoundError:
            return {}

    def read(self, path: str, offset: int, length: int) -> bytes:
        url = self._url(path)
        return self._hdfs(url).read_range(url, offset, length)

    def _url(self, place: str) -> str:
        return staging.whole(place, self._access.configuration)

    def _hdfs(self, url: str) -> Hdfs:
        return self._access.hdfs(url).patient(0.0)


class Aggregated:
    """YARN's logs of one application."""

    def __init__(self, access: Access, application: ApplicationId, user: str) -> None:
        self._logs = AggregatedLogs(access.configuration, _Files(access))
        self._application = application
        self._user = user

    def bring(self, directory: JobDirectory, wanted: Callable[[Task, int], bool]) -> None:
        """Put the logs of these attempts into the directory where it has none; what YARN does not
        have (any more) is left out.

        Raises:
            BackendError: some cannot be read now; the others are there.
        """
        parts: dict[tuple[Task, int], dict[int, list[Log]]] = {}
        problem: Exception | None = None
        try:
            found = self._logs.of(self._application, self._user)
        except (HadoopError, OSError) as error:
            found, problem = [], error
        for log in found:
            match = _NAME.fullmatch(log.name)
            if match is None:
                continue
            task, attempt = Task(match["role"], int(match["index"])), int(match["attempt"])
            if wanted(task, attempt) and not directory.log_path(task, attempt).exists():
                segments = parts.setdefault((task, attempt), {})
                segments.setdefault(int(match["start"] or 0), []).append(log)
        for (task, attempt), segments in parts.items():
            path = directory.log_path(task, attempt)
            make_private_folder(path.parent)
            try:
                # The head last: with it the log is there.
                for start in sorted(segments, reverse=True):
                    content = b"".join(p for log in segments[start] for p in self._logs.read(log))
                    write_atomically(segment_path(path, start), content)
            except (HadoopError, OSError) as error:
                problem = problem or error
        if problem is not None:
            raise BackendError(
                f"Logs of {directory.job_id} cannot be read where YARN keeps them: {problem}"
            ) from problem

    def tail_of_master(self, lines: int) -> tuple[str, ...]:
        """The last lines that the newest master wrote to its standard error, else to its output."""
        try:
            found = self._logs.of(self._application, self._user)
        except (HadoopError, OSError, BackendError):
            return ()
        mine = [log for log in found if log.container.endswith("_000001") and log.size]
        newest = max((log.container for log in mine), default="")
        for name in _OF_MASTERS:
            for log in mine:
                if (log.container, log.name) == (newest, name):
                    text = self._tail(log).decode(errors="replace")
                    return tuple(text.splitlines()[-lines:])
        return ()

    def _tail(self, log: Log) -> bytes:
        try:
            return b"".join(self._logs.read(log, -TAIL_BYTES))
        except (HadoopError, OSError) as error:
            return f"[this log cannot be read from YARN's: {error}]\n".encode()
