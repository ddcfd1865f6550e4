"""YARN's aggregated logs, read without a JVM: both of its file formats.

When an application has ended, each NodeManager puts the logs of its containers into one file on
HDFS (for services that run on, now and then a part). `AggregatedLogs` finds these files, lists the
logs in them, and reads them. It has no client of a file system of its own: it is given one that
lists folders and reads ranges of bytes (`Files`)::

    logs = AggregatedLogs(configuration, files)
    for log in logs.of(app, user):
        for piece in logs.read(log): ...

Calls block while they read. Not read: logs in Hadoop archives (``.har``).
"""

from __future__ import annotations

from collections.abc import Iterator

from howdah.hadoop.aggregated import indexedfile, tfile
from howdah.hadoop.aggregated.source import Files, Log, LogFormatError
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.ids import ApplicationId

__all__ = ["AggregatedLogs", "Files", "Log", "LogFormatError"]

_FORMATS = ("TFile", "IFile", "IndexedFile")
"""Names that sites give the two formats; those in the configuration come first."""

_UNFINISHED = ".tmp"
_BUCKETS = 10_000  # LogAggregationUtils


class AggregatedLogs:
    """The aggregated logs of a cluster."""

    def __init__(self, configuration: Configuration, files: Files) -> None:
        """The configuration says where they are."""
        self._configuration = configuration
        self._files = files

    def folders(self, app: ApplicationId, user: str) -> list[str]:
        """Where an application's logs may be, the likeliest first; most won't exist."""
        found: list[str] = []
        for name in dict.fromkeys((*self._configured(), *_FORMATS)):
            root, suffix = self._place(name)
            home = f"{root.rstrip('/')}/{user}"
            found.append(f"{home}/bucket-{suffix}/{app.number % _BUCKETS:04d}/{app}")
            found.append(f"{home}/{suffix}/{app}")
        # Before Hadoop 3.3 there were no buckets, and one suffix for all formats.
        root = self._configuration.get("yarn.nodemanager.remote-app-log-dir")
        suffix = self._configuration.get("yarn.nodemanager.remote-app-log-dir-suffix")
        found.append("/".join(part for part in (root.rstrip("/"), user, suffix, str(app)) if part))
        return list(dict.fromkeys(found))

    def of(self, app: ApplicationId, user: str) -> list[Log]:
        """All logs of an application that ``user`` submitted, by node, those added first at first.

        Empty while none is aggregated yet.

        Raises:
            LogFormatError: a file is damaged; see `logs_in` to read the others nevertheless.
            OSError: the file system does not answer.
        """
        found: list[Log] = []
        for folder in self.folders(app, user):
            sizes = dict(self._files.files(folder))
            for name in sorted(sizes):
                if _has_logs(name):
                    found += self.logs_in(folder, name, app, sizes)
        return found

    def logs_in(
        self, folder: str, name: str, app: ApplicationId, sizes: dict[str, int]
    ) -> list[Log]:
        """The logs in one aggregated file of a folder with files of these sizes; errors as in `of`."""
        path = f"{folder}/{name}"
        if indexedfile.is_indexed(self._files, path, sizes[name], str(app)):
            size = indexedfile.good_size(self._files, folder, name, sizes)
            return list(indexedfile.logs(self._files, path, size, _node(name))) if size else []
        return list(tfile.logs(self._files, path, sizes[name], _node(name)))

    def read(self, log: Log, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """A log, or a part of it, in pieces of at most a megabyte; errors as in `of`.

        A negative ``start`` counts from the log's end. YARN deletes aggregated logs after a time
        (``yarn.log-aggregation.retain-seconds``): the file system's error then comes while reading.
        """
        if start < 0:
            start = max(0, log.size + start)
        start = min(start, log.size)
        length = log.size - start if length is None else min(length, log.size - start)
        read = indexedfile.read if log.place.chunk_left is None else tfile.read
        return read(self._files, log, start, length)

    def _configured(self) -> tuple[str, ...]:
        return self._configuration.list("yarn.log-aggregation.file-formats", _FORMATS)

    def _place(self, name: str) -> tuple[str, str]:
        """Root folder and suffix of a format (``LogAggregationFileController``)."""
        get = self._configuration.get
        prefix = f"yarn.log-aggregation.{name}"
        root = get(f"{prefix}.remote-app-log-dir") or get("yarn.nodemanager.remote-app-log-dir")
        plain = get("yarn.nodemanager.remote-app-log-dir-suffix")
        return root, get(f"{prefix}.remote-app-log-dir-suffix") or f"{plain}-{name.lower()}"


def _has_logs(name: str) -> bool:
    return not name.endswith(_UNFINISHED) and not indexedfile.is_sum(name)


def _node(name: str) -> str:
    """``host:port`` out of a file's name: ``host_port``, and a time stamp for later parts."""
    host, _, port = name.rpartition("_")
    if len(port) > 5:
        host, _, port = host.rpartition("_")
    return f"{host}:{port}" if host else name
