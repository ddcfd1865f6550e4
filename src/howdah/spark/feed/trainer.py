"""The feed's side in a training process: server, control connection, feeds."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from howdah.spark.feed.feed import Feed

if TYPE_CHECKING:
    from howdah.spark.context import Context


class Trainer:
    """A context manager: leaving it tells the master `Returned`, or `Broken` with the trace."""

    context: Context

    def feed(self, name: str) -> Feed:
        raise NotImplementedError

    def close(self) -> None:
        """End server and connections. May be called twice."""
        raise NotImplementedError

    def __enter__(self) -> Trainer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        raise NotImplementedError


def connect(env: Mapping[str, str] | None = None) -> Trainer:
    """Start the server of this rank's feeds, in threads of its own.

    Reads ``HOWDAH_SPARK_WIRING`` (path of ``wiring.json``), ``HOWDAH_SPARK_SECRETS``,
    ``HOWDAH_SPARK_FOLDER`` from ``env`` (default `os.environ`), and `howdah.task.context`. Without
    wiring (foreground mode), or in a role without ranks, there is a context but no feed.
    """
    raise NotImplementedError
