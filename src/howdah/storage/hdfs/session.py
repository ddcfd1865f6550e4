"""One connection to HDFS: who one is there, where it is, and what is done again."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Self, TypeVar

from howdah.storage.hdfs import split
from howdah.storage.hdfs.errors import (
    AlreadyThere,
    BeingWritten,
    HdfsError,
    HdfsQuotaExceeded,
    translate,
)

_CONFIG = {
    # The client's own retries (15 with up to 15 s between) know no deadline; ours do.
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "20",
    "dfs.client.failover.sleep.max.millis": "100",
}
_T = TypeVar("_T")


class HdfsSession:
    """What `howdah.storage.hdfs.files.Hdfs` makes its calls with."""

    def __init__(
        self,
        url_or_fs: str | None = None,
        *,
        conf_dir: str | None = None,
        user: str | None = None,
        patience_s: float = 0.0,
    ) -> None:
        """
        Args:
            url_or_fs: any URL of the file system; None, or one without a host, is the default.
            conf_dir: folder of the cluster's XML; see the module's text for what is used without.
            user: who to be on a cluster without Kerberos, for the whole process.
            patience_s: how long each call waits for a NameNode that is down, restarts or is in
                safe mode before it raises.

        Raises:
            ValueError: no URL of HDFS, or the process is somebody else on HDFS already.
        """
        self.fs: str = split(url_or_fs)[0] if url_or_fs else ""
        self.patience_s = patience_s
        self._conf_dir = conf_dir
        self._made: list[Any] = []
        self._lock = threading.Lock()
        if user is not None:
            _be(user)

    def __repr__(self) -> str:
        return f"Hdfs({self.fs!r})"

    def patient(self, patience_s: float) -> Self:
        """The same connection with another patience."""
        other = type(self)(None, conf_dir=self._conf_dir, patience_s=patience_s)
        other.fs, other._made, other._lock = self.fs, self._made, self._lock
        return other

    def path(self, place: str) -> str:
        """The path of a path or URL.

        Raises:
            ValueError: it is on another file system.
        """
        fs, path = split(place)
        if fs and self.fs and fs != self.fs:
            raise ValueError(f"{place} is not on {self.fs}")
        return path

    def url(self, place: str) -> str:
        return f"{self.fs or 'hdfs://'}{self.path(place)}"

    # -- for the calls ---------------------------------------------------------------------------

    def _client(self) -> Any:
        with self._lock:
            if not self._made:
                import hdfs_native

                try:
                    self._made.append(
                        hdfs_native.Client(
                            self.fs or None, config=_CONFIG, config_dir=self._conf_dir
                        )
                    )
                except Exception as error:
                    raise HdfsError(
                        f"HDFS can't be used: {error}. Set HADOOP_CONF_DIR to the folder with the"
                        " cluster's core-site.xml and hdfs-site.xml, or give a URL with host and"
                        " port"
                    ) from error
            return self._made[0]

    def create_new(self, path: str, work: Callable[[Any], _T]) -> _T:
        """`call` for what makes a new file.

        Raises:
            AlreadyThere: there is one, open or not.
        """
        try:
            return self.call("create", path, work, wait_for_writer=False)
        except BeingWritten as error:
            raise AlreadyThere(f"Can't create {self.fs}{path}: it exists already") from error

    def call(
        self,
        what: str,
        path: str,
        work: Callable[[Any], _T],
        *,
        wait_for_writer: bool = True,
    ) -> _T:
        """Do it, again while it fails for a transient reason and there is patience left."""
        deadline = time.monotonic() + self.patience_s
        pause_s = 0.05
        while True:
            try:
                return work(self._client())
            except HdfsError as error:
                problem = error
            except Exception as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # a local file's: hdfs_native gives texts alone
                problem = translate(error, what, path, self.fs)
                problem.__cause__ = error
            # Room under a quota comes later than anybody waits inside a call.
            again = problem.transient and not isinstance(problem, HdfsQuotaExceeded)
            again = again and (wait_for_writer or not isinstance(problem, BeingWritten))
            if not again or time.monotonic() + pause_s > deadline:
                raise problem
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 1.0)


def _be(user: str) -> None:
    former = os.environ.get("HADOOP_USER_NAME")
    if former not in (None, user):
        raise ValueError(
            f"This process is {former!r} on HDFS (HADOOP_USER_NAME) and can't be {user!r} too"
        )
    os.environ["HADOOP_USER_NAME"] = user
