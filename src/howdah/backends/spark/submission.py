"""The client's side of the Spark backend, for one new job: see `howdah.backends.base.Submission`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from howdah.backends.spark.modes import Mode

if TYPE_CHECKING:
    from howdah.backends.base import Step
    from howdah.spec.load import LoadedJob
    from howdah.spec.model import Job
    from howdah.storage.jobdir import JobDirectory


class SparkSubmission:
    """A job in a session's application. Many may be in one session, at once or one by one."""

    def __init__(
        self,
        spark: Any,
        *,
        mode: Mode = Mode.FEED,
        on_driver: frozenset[str] = frozenset(),
        files: Mapping[str, bytes] | None = None,
        host: str | None = None,
        wait_s: float = 30.0,
    ) -> None:
        """
        Args:
            spark: the session, classic or Connect.
            on_driver: roles whose containers are on the driver's own machine and take no slot.
            files: small files put into every container's ``home/``, by relative path. The job
                directory's ``function/`` folder is always there.
            host: address of this machine that executors reach; by default Spark's own
                (``spark.driver.host``).
            wait_s: for executors that are still registering, before too few slots are refused.
        """
        self.spark = spark
        self.mode = mode
        self.on_driver = on_driver
        self.closed = threading.Event()
        """Set when the job's coordinator has ended for good, or none was ever started."""
        self.address: tuple[str, int] = ("127.0.0.1", 0)
        """Host that executors reach this program at; known once made (the port is the backend's)."""

    def base(self, job: Job) -> Path:
        raise NotImplementedError

    def check(self, job: Job, loaded: LoadedJob) -> None:
        """Refuse what this session can never run, every reason with setting and value.

        Raises:
            BackendError: with all reasons.
        """
        raise NotImplementedError

    def go(self, directory: JobDirectory, progress: Callable[[Step], None]) -> None:
        raise NotImplementedError

    def cancel(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Let go. After `go` the job goes on; it ends with this process, whatever happens."""
        raise NotImplementedError
