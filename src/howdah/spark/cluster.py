"""A cluster of training processes in Spark's executors, in the hands of the driver program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from howdah.backends.base import Step
from howdah.backends.spark import SparkSubmission
from howdah.client.errors import BadInput, JobFailed
from howdah.client.following.items import LogLine
from howdah.client.submission.loading import load_object
from howdah.client.submission.submit import submit
from howdah.spark.feed.control.feed_controller import FeedController
from howdah.spark.feed.messages import Align, Options
from howdah.spark.feed.tasks.feeder_client import FeederAccess
from howdah.spark.framework_inference import infer
from howdah.spark.inference import answered, scorer
from howdah.spark.job import ClusterJob, Wiring
from howdah.spark.live import Live
from howdah.spark.reports import TrainReport
from howdah.spark.rows import source_of
from howdah.spark.session import Session
from howdah.spark.training import Training, ValidationRun
from howdah.spec.model import Checkpoint, Role, Slots, Spark, TensorBoard
from howdah.spec.units import octets, port_range
from howdah.storage.jobdir import JobDirectory
from howdah.wire.status import JobView


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
        framework: str | None = None,
        mode: str = "feed",
        slots: str | None = None,
        driver_ps: bool = False,
        tensorboard: bool | TensorBoard = False,
        checkpoint: Checkpoint | Mapping[str, Any] | bool | None = None,
        env: Mapping[str, str] | None = None,
        restarts: int = 2,
        name: str | None = None,
        on_log: Callable[[LogLine], Any] | bool | None = True,
        start_timeout_s: float = 600.0,
        gpus: int = 0,
        spread: bool = False,
        resources: Any = None,
        slots_timeout_s: float = 30.0,
        resume: str | None = None,
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
            framework: as in a job file: ``tensorflow``, ``pytorch``, ``command``, … By default the
                one that the function imports or refers to; what is assumed is printed (not with
                ``on_log=None``).
            mode: ``feed`` (`train` and `inference` feed the processes) or ``foreground`` (the program
                reads its own data).
            slots: ``held``: each Spark task lasts as long as the process it has started, which lives
                and dies as its child. ``shared``: the task ends, its slot is free for others, and the
                process outlives it. By default held, except where a cluster that is fed would
                leave no slot to feed it; that is printed (not with ``on_log=None``).
            driver_ps: parameter servers run on the driver's machine.
            tensorboard: run TensorBoard beside the cluster; a `howdah.TensorBoard` says how.
            checkpoint: the job's checkpoint table; True for the usual one.
            env: environment variables for all processes.
            restarts: failures of its own the cluster survives by forming again. After a `train` call
                it does so only if the processes find a checkpoint, or restore a position: otherwise
                what was learned would be lost, and the job ends.
            name: shown in lists and pages.
            on_log: called with each line printed; True prints them with the task's name, None or
                False does not.
            start_timeout_s: give up (and stop everything) when the gang has not formed by then.
            slots_timeout_s: for executors that are still registering, before it is refused that
                there are too few slots; at once where the settings promise too few.
            gpus: of each worker, from Spark's own resources (``spark.task.resource.gpu.amount``).
            spread: each process gets an executor of its own where there are as many; executors that
                are still registering are waited for (``slots_timeout_s``, and no longer than until none
                has come for 10 s once there are slots enough), and it is printed if they are too few
                (not with ``on_log=None``).
            resources: pyspark's ResourceProfile for the tasks that start the processes
                (stage-level scheduling, Spark 4); feeding and other queries keep the session's own.
            resume: id of an earlier cluster's job, whose newest checkpoint is the first of this one.
            fields: further fields of `howdah.Job`.

        Raises:
            BackendError: it can never run there; names the setting, its value, the value needed.
            BadInput: the function cannot be pickled, or the arguments do not fit each other.
            JobFailed: it failed before it was there.
            TimeoutError: it was not there in time.
        """
        log = _say if on_log is True else on_log or None
        if slots is not None:
            fields["spark"] = Spark(slots=_slots(slots))
        job = ClusterJob(
            train,
            args,
            workers=workers,
            ps=ps,
            chief=chief,
            evaluator=evaluator,
            roles=roles,
            framework=framework or _inferred(train, quiet=log is None),
            tensorboard=tensorboard,
            checkpoint=checkpoint,
            env=env,
            restarts=restarts,
            name=name,
            gpus=gpus,
            resume=resume,
            fields=fields,
        )
        feeds = _feeds(mode)
        session = Session(spark)
        live = _submit(
            session,
            job,
            SparkSubmission(
                session.spark,
                feeds=feeds,
                on_driver=frozenset({"ps"} if driver_ps else ()),
                wait_s=slots_timeout_s,
                profile=resources,
                spread=spread,
            ),
            log,
            restarts,
        )
        cluster = cls(live, feeds)
        if not feeds:
            live.controller.end()  # a program that asks for a feed all the same gets none
        try:
            live.wait_formed(start_timeout_s, cluster._formed)
        except BaseException as error:
            cluster._give_up(f"{type(error).__name__} while the cluster was starting")
            raise
        return cluster

    def __init__(self, live: Live, feeds: bool) -> None:
        """Use `start`."""
        self._live = live
        self._feeds = feeds
        self._results: dict[int, Any] | None = None
        self._ended = False
        """It was stopped, or its failure was told."""

    def _formed(self) -> bool:
        if self._feeds:
            return self._live.controller.complete()
        view = self._live.view
        return view is not None and view.started is not None

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
        exchange: bool = False,
        columns: Sequence[str] | None = None,
        steps: int | None = None,
        spill: int | str | None = None,
        materialise: bool = True,
        timeout_s: float | None = 600.0,
    ) -> TrainReport:
        """Feed the rows of a DataFrame (or RDD, on classic Spark) and wait until all are used.

        Args:
            data: the rows; of an RDD, rows, tuples, lists, dicts or single values.
            feed: name of the feed: ``ctx.feed(name)`` in the function.
            epochs: how often the rows are handed out.
            validation: another DataFrame, fed as ``ctx.feed("validation")`` beside the rows, as
                often as they are; what programs have not read of it when they ask for rows after
                the last epoch is left.
            align: ``drop`` or ``none``, of the validation rows too: see
                `howdah.spark.feed.messages.Align`.
            cache: keep the rows at the trainers, so that Spark runs once for all epochs.
            shuffle: seed (or True) for another order in each cached epoch, which are the second and
                those after it. Only with ``cache``.
            exchange: each epoch gives a rank other partitions than the epoch before, as far as the
                ranks' shares stay even. Spark feeds every epoch; ``data.cache()`` keeps the rows in its
                executors. Not with ``cache``, which keeps them at the ranks.
            columns: only these, of the validation rows too.
            steps: batches of an epoch in each rank, where you know: programs have it by
                `howdah.spark.feed.feed.Feed.steps`. Nothing is left out for it.
            spill: what the files of a rank may take on its disk, for rows that do not fit into
                memory: bytes, or a string such as ``"20g"``. By default a tenth of what was free is
                left free. It fails where that is not enough.
            materialise: where Spark promises no order of the rows, as after a shuffle, it computes all of
                them before the first is fed, and its executors keep them, in memory and on disk,
                until this call returns: then a task that fails goes on behind its last row. False
                feeds them as they are computed, and a task that fails amid its rows ends the call.
            timeout_s: without any progress for so long it fails; None waits for ever.

        Returns:
            Exact counts. Also when the program has stopped the feed early.

        Raises:
            BadInput: this cannot be fed, or has no column of that name.
            FeedError: a function raised (with its traceback), Spark's query failed, or nothing moved.
        """
        self._check_fed()
        session = self._live.session
        validated = None if validation is None else source_of(session, validation, columns)
        source = source_of(session, data, columns)
        if steps is not None and steps < 1:
            raise BadInput(f"steps is {steps}; an epoch has at least one batch")
        options = _options(feed, epochs, align, cache, shuffle, spill, exchange=exchange)
        options = msgspec.structs.replace(options, steps=steps, rows=source.known_rows())
        training = Training(
            self._live, source, options, timeout_s=timeout_s, materialise=materialise
        )
        if validated is None:
            return training.run()
        options = _options("validation", epochs, align, cache, None, spill)
        options = msgspec.structs.replace(options, rows=validated.known_rows())
        with ValidationRun(self._live, validated, options, main=training, materialise=materialise):
            return training.run()

    def train_stream(self, data: Any, *, feed: str = "train", **options: Any) -> Any:
        """Feed a streaming DataFrame, batch by batch: see `howdah.spark.streaming.start`."""
        from howdah.spark.streaming import start

        return start(self.train, self._live, data, feed=feed, **options)

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

        The functions take batches of ``ctx.feed(name)`` and answer each with ``feed.results(…)``.

        Args:
            feed: name of the feed.
            schema: of the answers: a StructType or its string, such as ``"prediction float"``.
            keep: the columns of ``data`` come too, first.
            columns: only these are sent to the functions.
        """
        self._check_fed()
        return answered(self._live, data, feed=feed, schema=schema, keep=keep, columns=columns)

    def scorer(self, feed: str = "inference") -> Callable[[Iterator[Any]], Iterator[Any]]:
        """The function that answers record batches in a Spark task, for RDDs: rows in, answers out.

        ``rdd.mapPartitions(to_record_batches).mapPartitions(cluster.scorer())``; lazy and exact as
        `inference` is.
        """
        self._check_fed()
        return scorer(self._live, feed)

    def stopped(self, feed: str = "train", align: str = "drop") -> bool:
        """Whether the programs want no more rows of a feed (``feed.stop()``), now or later: any of
        them, or all with ``align="none"``."""
        return self._live.enough(feed, Align(align))

    # -- ending ----------------------------------------------------------------------------------

    def results(self, timeout_s: float | None = None) -> dict[int, Any]:
        """End the feeds, wait for the functions to return; what they returned, by rank.

        Raises:
            JobFailed: one raised; with its traceback.
            TimeoutError: they have not returned in time; they go on.
        """
        if self._results is None:
            self._live.controller.end()
            try:
                self._results = self._live.results(timeout_s)
            except JobFailed:
                self._ended = True
                raise
            self._live.close()
        return self._results

    def stop(self, reason: str = "") -> None:
        """Stop the functions where they are; nothing of the cluster is left when this returns."""
        self._give_up(reason or "stopped by the program that started it")

    def end_feed(self, feed: str = "train") -> None:
        """No more rows of this feed will come: its iteration ends in the functions."""
        self._live.controller.end(feed)

    # -- looking ---------------------------------------------------------------------------------

    @property
    def job_id(self) -> str:
        """Id of the cluster's job: `howdah status`, `howdah logs` and the portal know it."""
        return self._live.directory.job_id

    @property
    def url(self) -> str | None:
        """Address of the job page, for one login; None while it is not served."""
        return self._live.handle.page()

    @property
    def tensorboard_url(self) -> str | None:
        """Address of TensorBoard through the job page; None without one."""
        for link in self.status().links:
            if "tensorboard" in link.name.lower():
                return self._live.handle.page(link.href)
        return None

    def status(self) -> JobView:
        """The job's status document now."""
        return self._live.handle.status()

    def logs(self, *tasks: str, follow: bool = False) -> Iterator[LogLine]:
        """What the processes printed."""
        return self._live.handle.logs(*tasks, follow=follow)

    @property
    def places(self) -> Sequence[Any]:
        """Where the trainers are (`howdah.spark.feed.messages.Endpoint`), by rank."""
        return self._live.controller.endpoints

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._give_up(f"{type(error).__name__} in the program that started it")
            return
        if self._ended:
            self._live.close()
            return
        try:
            self.results()
        except BaseException:
            self._give_up("its functions have not ended well")
            raise

    def _check_fed(self) -> None:
        if not self._feeds:
            raise BadInput(
                "this cluster reads its own data (mode='foreground'); start it with mode='feed' to "
                "feed it"
            )

    def _give_up(self, reason: str) -> None:
        self._ended = True
        self._live.stop(reason)
        self._live.close()


def _submit(
    session: Session,
    job: ClusterJob,
    submission: SparkSubmission,
    on_log: Callable[[LogLine], Any] | None,
    restarts: int,
) -> Live:
    """Start the job and the controller of its feeds."""
    loaded = load_object(job.job)
    ports = port_range(loaded.job.network.ports)
    controller = FeedController(job.trainers, job.fed_roles)
    port = 0

    def populate(directory: JobDirectory) -> None:
        nonlocal port
        # Now, as the job may have a say in where this machine is reached.
        try:
            port = controller.bind(submission.listen_address, ports)
        except OSError as error:
            raise BadInput(f"network.ports: {error.strerror}") from error
        wiring = Wiring(
            job_id="",
            host=submission.host,
            port=port,
            default_fs=session.default_fs() or "file://",
            user=session.user(),
            workers=job.trainers,
            ports=ports,
        )
        job.populate(directory, wiring)

    def tell(step: Step) -> None:
        if step.note and on_log is not None:
            _say(step.note)

    try:
        directory = submit(
            loaded, backend="spark", populate=populate, submission=submission, progress=tell
        )
        tell(Step(note=submission.notice))
        controller.start(directory.secrets)
    except BaseException:
        controller.close()
        submission.close()
        raise
    files = {"ca": "ca.pem", "certificate": "feeder.pem", "key": "feeder.key"}
    access = FeederAccess(
        job_id=directory.job_id,
        host=submission.host,
        port=port,
        **{field: (directory.secrets / name).read_text("utf-8") for field, name in files.items()},
    )
    return Live(session, submission, directory, controller, access, on_log, restarts=restarts)


def _feeds(mode: str) -> bool:
    if mode not in ("feed", "foreground"):
        raise BadInput(f"mode is {mode!r}; there are 'feed' and 'foreground'")
    return mode == "feed"


def _slots(name: str) -> Slots:
    try:
        return Slots(name)
    except ValueError:
        raise BadInput(f"slots is {name!r}; there are 'held' and 'shared'") from None


def _options(
    feed: str,
    epochs: int,
    align: str,
    cache: bool,
    shuffle: int | bool | None,
    spill: int | str | None,
    *,
    exchange: bool = False,
) -> Options:
    if epochs < 1:
        raise BadInput(f"epochs is {epochs}; at least one is fed")
    if cache and exchange:
        raise BadInput(
            "cache=True keeps the rows of a rank at that rank, and exchange=True gives them to others: "
            "leave cache out; data.cache() keeps the rows in Spark's executors, which feed each epoch"
        )
    check_shuffle(shuffle, cache=cache)
    try:
        aligned = Align(align)
    except ValueError:
        raise BadInput(f"align is {align!r}; there are 'drop' and 'none'") from None
    seed = None if shuffle is None or shuffle is False else int(shuffle)
    return Options(
        feed=feed,
        epochs=epochs,
        align=aligned,
        cache=cache and epochs > 1,
        shuffle=seed,
        exchange=exchange,
        spill=_spill(spill),
    )


def check_shuffle(shuffle: int | bool | None, *, cache: bool) -> None:
    """Refuse to reorder rows that are not kept.

    Raises:
        BadInput: ``shuffle`` is given without ``cache``.
    """
    if shuffle is None or shuffle is False or cache:
        return
    raise BadInput(
        f"shuffle={shuffle} reorders cached epochs: add cache=True. Rows of other epochs come as Spark "
        "feeds them; shuffle those in Spark (df.orderBy(rand(1)).write.parquet(path)), or as they are "
        "read, by torch_loader(…, shuffle_buffer=10_000) or tf_dataset(…).shuffle(10_000)"
    )


def _spill(given: int | str | None) -> int | None:
    """Bytes that the files of a rank may have."""
    if isinstance(given, str):
        try:
            return octets(given)
        except ValueError as error:
            raise BadInput(f"spill: {given!r} {error}; an example is '20g'") from None
    if given is not None and given < 0:
        raise BadInput(f"spill is {given}: give bytes, 0 for no files, or a string such as '20g'")
    return given


def _inferred(train: Callable[..., Any], *, quiet: bool) -> str:
    """The framework of a function that came without one; what is assumed is printed."""
    inference = infer(train)
    if inference.text and not quiet:
        _say(inference.text)
    return inference.framework


def _say(text: LogLine | str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
