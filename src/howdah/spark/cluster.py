"""A cluster of training processes in Spark's executors, in the hands of the driver program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from howdah.client.items import LogLine
from howdah.core.view import JobView
from howdah.spark.reports import TrainReport
from howdah.spec.model import Checkpoint, Role


class Cluster:
    """Training processes that live in Spark's executors. Made by `Cluster.start`.

    As a context manager: leaving the block normally ends the feeds, waits for the functions to
    return and raises what they raised; leaving it by an exception (Ctrl-C too) stops everything.
    """

    @classmethod
    def start(
        cls,
        spark: Any,
        train: Callable[[Any, Any], Any],
        args: Any = None,
        *,
        workers: int,
        ps: int = 0,
        chief: int = 0,
        evaluator: bool = False,
        roles: Mapping[str, int | Role] | None = None,
        framework: str = "command",
        mode: str = "feed",
        driver_ps: bool = False,
        tensorboard: bool = False,
        checkpoint: Checkpoint | Mapping[str, Any] | bool | None = None,
        env: Mapping[str, str] | None = None,
        restarts: int = 2,
        name: str | None = None,
        on_log: Callable[[LogLine], Any] | bool | None = True,
        start_timeout_s: float = 600.0,
        gpus: int = 0,
        **fields: Any,
    ) -> Cluster:
        """Start one process a slot and return when all are there (the gang has formed).

        Args:
            spark: a SparkSession, classic or Connect, or a SparkContext.
            train: ``train(args, ctx)``, called in every process; ``ctx`` is a
                `howdah.spark.context.Context`.
            args: handed over as it is (pickled by cloudpickle).
            workers: how many workers; with ``ps``, ``chief`` (0 or 1) and ``evaluator`` all nodes.
            roles: other roles by name, each a number or a `howdah.Role`.
            framework: as in a job file: ``tensorflow``, ``pytorch``, ``command``, …
            mode: ``feed`` (`train` and `inference` feed the processes, slots stay free for Spark) or
                ``foreground`` (the program reads its own data, its slot is taken while it runs).
            driver_ps: parameter servers run on the driver's machine.
            tensorboard: run TensorBoard beside the cluster.
            checkpoint: the job's checkpoint table; True for the usual one.
            env: environment variables for all processes.
            restarts: failures of its own the cluster survives by forming again.
            name: shown in lists and pages.
            on_log: called with each line printed; True prints them with the task's name, None or
                False does not.
            start_timeout_s: give up (and stop everything) when the gang has not formed by then.
            gpus: of each worker, from Spark's own resources (``spark.task.resource.gpu.amount``).
            fields: further fields of `howdah.Job`.

        Raises:
            BackendError: it can never run there; names the setting, its value, the value needed.
            BadInput: the function cannot be pickled, or the arguments do not fit each other.
            JobFailed: it failed before it was there.
            TimeoutError: it was not there in time.
        """
        raise NotImplementedError

    # -- feeding ---------------------------------------------------------------------------------

    def train(
        self,
        data: Any,
        *,
        feed: str = "train",
        epochs: int = 1,
        validation: Any = None,
        align: str = "drop",
        cache: bool = False,
        shuffle: int | bool | None = None,
        columns: Sequence[str] | None = None,
        timeout_s: float | None = 600.0,
    ) -> TrainReport:
        """Feed the rows of a DataFrame (or RDD, on classic Spark) and wait until all are used.

        Args:
            data: the rows; of an RDD, rows, tuples, lists, dicts or single values.
            feed: name of the feed: ``ctx.feed(name)`` in the function.
            epochs: how often the rows are handed out.
            validation: another DataFrame, fed as ``validation`` before (each epoch of) training.
            align: ``drop``, ``pad`` or ``none``: see `howdah.spark.feed.messages.Align`.
            cache: keep the rows at the trainers, so that Spark runs once for all epochs.
            shuffle: seed (or True) for another order in each cached epoch.
            columns: only these.
            timeout_s: without any progress for so long it fails; None waits for ever.

        Returns:
            Exact counts. Also when the program has stopped the feed early.

        Raises:
            FeedError: a function raised (with its traceback), Spark's query failed, or nothing moved.
        """
        raise NotImplementedError

    def train_stream(self, data: Any, *, feed: str = "train", **options: Any) -> Any:
        """Feed a streaming DataFrame, batch by batch: see `howdah.spark.streaming`."""
        from howdah.spark.streaming import train_stream

        return train_stream(self, data, feed=feed, **options)

    def inference(
        self,
        data: Any,
        *,
        feed: str = "inference",
        schema: Any = None,
        keep: bool = True,
        columns: Sequence[str] | None = None,
    ) -> Any:
        """A DataFrame of answers, one for each row, in the order of the rows. Lazy.

        The functions take batches of ``ctx.feed(name)`` and answer each with ``feed.answer(…)``.

        Args:
            feed: name of the feed.
            schema: of the answers: a StructType or its string, such as ``"prediction float"``.
            keep: the columns of ``data`` come too, first.
            columns: only these are sent to the functions.
        """
        raise NotImplementedError

    # -- ending ----------------------------------------------------------------------------------

    def results(self, timeout_s: float | None = None) -> dict[int, Any]:
        """End the feeds, wait for the functions to return; what they returned, by rank.

        Raises:
            JobFailed: one raised; with its traceback.
            TimeoutError: they have not returned in time; they go on.
        """
        raise NotImplementedError

    def stop(self, reason: str = "") -> None:
        """Stop the functions where they are; nothing of the cluster is left when this returns."""
        raise NotImplementedError

    def end_feed(self, feed: str = "train") -> None:
        """No more rows of this feed will come: its iteration ends in the functions."""
        raise NotImplementedError

    # -- looking ---------------------------------------------------------------------------------

    @property
    def job_id(self) -> str:
        """Id of the cluster's job: `howdah status`, `howdah logs` and the portal know it."""
        raise NotImplementedError

    @property
    def url(self) -> str | None:
        """Address of the job page, for one login; None while it is not served."""
        raise NotImplementedError

    @property
    def tensorboard_url(self) -> str | None:
        """Address of TensorBoard through the job page; None without one."""
        raise NotImplementedError

    def status(self) -> JobView:
        """The job's status document now."""
        raise NotImplementedError

    def logs(self, task: str | None = None, *, follow: bool = False) -> Iterator[LogLine]:
        """What the processes printed."""
        raise NotImplementedError

    @property
    def places(self) -> Sequence[Any]:
        """Where the trainers are (`howdah.spark.feed.messages.Place`), by rank."""
        raise NotImplementedError

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        raise NotImplementedError
