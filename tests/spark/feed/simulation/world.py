"""A cluster that is fed, in one process and out of one seed: the real controller, trainers, feeders and
the real `howdah.spark.training`, over connections and in threads that are none.

Spark, the coordinator and the programs are models: tasks fail, are run twice at once or go on when
Spark has given them up; processes are killed and come again; programs stop and return early.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
from greenlet import GreenletExit

from howdah import task as howdah_task
from howdah.spark import live, training
from howdah.spark.context import Wiring
from howdah.spark.errors import FeedError
from howdah.spark.feed import batch_dispenser, cache, ingest, trainer
from howdah.spark.feed import controller_connection as control
from howdah.spark.feed import state as feed_state
from howdah.spark.feed.control import control_server
from howdah.spark.feed.control import feed_controller as controller
from howdah.spark.feed.messages import Align, Endpoint, Position, TrainerLoad
from howdah.spark.feed.server import FeedServer
from howdah.spark.feed.tasks import feeder, feeder_client, feeding
from howdah.spark.reports import TrainReport
from howdah.wire.tls import PeerRole
from tests.spark.feed.simulation import network
from tests.spark.feed.simulation.actors import Actor, Actors, Calls, Condition, Event, Thread, drive
from tests.spark.feed.simulation.schedule import Ends, Fault, Program, Schedule

FEED = "train"
IDS = pa.record_batch({"id": pa.array(range(1000), pa.int64())})
PART = 100
"""Row ``n`` of partition ``p`` has the id ``PART * p + n``."""
LIMIT_S = 400.0
"""Virtual: by then everything is over."""
IDLE_S = 90.0
"""`timeout_s` of a run: nothing a schedule does to it takes so long."""
MOST_FAILURES = 4
"""``spark.task.maxFailures``."""
ACCESS = feeder_client.FeederAccess(
    job_id="j", host="driver", port=1, ca="", certificate="", key=""
)
WIRING = Wiring(job_id="j", host="driver", port=1)
ME = howdah_task.context()._replace(host="127.0.0.1")


class Given(Exception):
    """The story of what programs were given cannot be right."""


class Batch:
    """Given to a program."""

    __slots__ = ("epoch", "ids", "position", "run")

    def __init__(self, run: int, epoch: int, ids: list[int], position: Position) -> None:
        self.run = run
        self.epoch = epoch
        self.ids = ids
        self.position = position


class Process:
    """A training process."""

    def __init__(self, rank: int, generation: int) -> None:
        self.rank = rank
        self.generation = generation
        self.server: _Server | None = None
        self.control: network.ControlChannel | None = None
        self.dialler: network.Control
        self.dead = False
        self.returned = False
        self.stopped = False
        self.batches: list[Batch] = []


class _Server(FeedServer):
    """Where feeders bring rows."""

    socket = ""  # type: ignore[assignment]

    def __init__(self, take: Any, first: TrainerLoad, **options: Any) -> None:
        self._take = take
        self._first = first
        self._closed = False
        self._lock = contextlib.nullcontext()  # type: ignore[assignment]
        self._connections = set()
        self.port = 0
        process = network.world.actors.current.process  # type: ignore[union-attr]
        process.server = self

    def close(self) -> None:
        self._closed = True
        for connection in list(self._connections):
            connection.end()


class _Session:
    """Spark's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.jobs: dict[str, Actor | None] = {}
        self.cancelled: set[Actor] = set()
        self.ended = 0

    def thread(self, target: Any) -> Thread:
        return Thread(self._world.actors, target, "query")

    @contextlib.contextmanager
    def tagged(self, tag: str) -> Iterator[None]:
        self.jobs[tag] = self._world.actors.current
        yield

    def cancel(self, tag: str) -> None:
        actor = self.jobs.get(tag)
        if actor is not None:
            self.cancelled.add(actor)
            self._world.actors.wake(actor)

    def tasks_ended(self) -> int:
        return self.ended


class Job:
    """A query that feeds: Spark's scheduler, and the tasks it knows of."""

    def __init__(self, world: World, rows: Callable[[int], list[Any]], sent: bytes) -> None:
        self._world = world
        self._rows = rows
        self._task = feeder.msgspec.msgpack.decode(sent, type=feeding.FeedTask)
        self.me = world.actors.current
        self.waiting = deque(range(len(world.schedule.partitions)))
        self.running: dict[int, tuple[int, Actor]] = {}
        self.finished: set[int] = set()
        self._failures: Counter[int] = Counter()
        self._problem = ""

    def run(self) -> None:
        world = self._world
        world.jobs.append(self)
        try:
            while len(self.finished) < len(world.schedule.partitions):
                if self.me in world.session.cancelled:
                    raise RuntimeError("the job was cancelled")
                if self._problem:
                    raise RuntimeError(f"Job aborted: {self._problem}")
                while self.waiting and len(self.running) < world.schedule.slots:
                    self.begin(self.waiting.popleft())
                world.actors.block()
        finally:
            world.jobs.remove(self)
            for number, (_, actor) in list(self.running.items()):
                del self.running[number]
                if world.late.random() < 0.5:  # the others have not heard of it yet
                    world.actors.kill(actor)
            world.session.ended += 1

    def begin(self, partition: int) -> None:
        """One more attempt at that partition."""
        world = self._world
        world.attempts += 1
        number = world.attempts
        actor = world.actors.spawn(
            f"attempt {number} of partition {partition}", self._attempt, partition, number
        )
        actor.process = actor
        self.running[number] = (partition, actor)

    def lose(self, number: int) -> int:
        """Forget the attempt, which may go on."""
        partition, _ = self.running.pop(number)
        self._again(partition)
        return partition

    def _again(self, partition: int) -> None:
        others = any(each == partition for each, _ in self.running.values())
        if partition not in self.finished and not others and partition not in self.waiting:
            self.waiting.append(partition)
        self._world.actors.wake(self.me)

    def _attempt(self, partition: int, number: int) -> None:
        world = self._world
        host = world.schedule.hosts[partition]
        me = feeding.Me(partition, number, host, "", 0)
        work = feeder._Feeding(self._task, me)
        world.asking[number] = work.controller  # type: ignore[assignment]
        try:
            work.run(iter(self._rows(partition)))
        except GreenletExit:
            raise
        except Exception as error:
            if not isinstance(error, (FeedError, OSError)):
                raise
            if number in self.running:
                self._failures[partition] += 1
                if self._failures[partition] >= MOST_FAILURES:
                    self._problem = f"{type(error).__name__}: {error}"
                self.lose(number)
        else:
            if number in self.running:
                del self.running[number]
                self.finished.add(partition)
                world.session.ended += 1
                for other, (part, actor) in list(self.running.items()):
                    if part == partition:
                        del self.running[other]
                        world.actors.kill(actor)
                world.actors.wake(self.me)
        finally:
            work.controller.close()
            world.asking.pop(number, None)


class _Source:
    """A plan, or its rows as executors keep them."""

    def __init__(self, world: World, kept: int = 0) -> None:
        self._world = world
        self._kept = kept

    def feed(self, task: Any) -> list[tuple[int, int, int]]:
        Job(self._world, self._rows, task()).run()
        return []

    def ordered(self) -> bool:
        return self._world.schedule.ordered or self._kept > 0

    def materialised(self) -> _Source:
        world = self._world
        for _ in range(2):
            world.actors.block(world.late.random())
            if world.actors.current in world.session.cancelled:
                raise RuntimeError("the job was cancelled")
        world.kept += 1
        return _Source(world, world.kept)

    def release(self) -> None:
        pass

    def _rows(self, partition: int) -> list[Any]:
        """Of an attempt that begins now."""
        world = self._world
        rows = world.rows[partition]
        if world.schedule.ordered:
            return rows
        ids = [id for batch in rows for id in batch["id"].to_pylist()]
        order = f"{self._kept} {partition}" if self._kept else world.late.random()
        random.Random(order).shuffle(ids)
        left = iter(ids)
        return [
            pa.record_batch({"id": pa.array([*itertools.islice(left, batch.num_rows)], pa.int64())})
            for batch in rows
        ]


class _Live(live.Live):
    """The cluster, as the driver program sees it."""

    def __init__(self, world: World, restarts: int) -> None:
        self.session = world.session  # type: ignore[assignment]
        self.controller = world.controller
        self.access = ACCESS
        self.view = None
        self.moved = world.actors.now
        self._world = world
        self._restarts = restarts
        self._raised = {}
        self._echoes = set()
        self._trained = (0, 0, "")
        self.controller.trouble = self.trouble

    def over(self) -> bool:
        return self._world.ended

    def wants_slots(self) -> bool:
        return self._world.forming

    def _why_over(self) -> str:
        return "the job has ended"

    def _stop_soon(self, reason: str) -> None:
        self._world.raised = reason


class _Training(training.Training):
    def _turn(self, generation: int, readers: set[int]) -> Any:
        network.world.announced = generation
        return super()._turn(generation, readers)


class World:
    """See the module; made by its schedule alone."""

    def __init__(self, schedule: Schedule) -> None:
        network.world = self
        self.schedule = schedule
        self.chance = random.Random(schedule.seed)
        self.late = random.Random(f"late {schedule.seed}")
        self.actors = Actors(self.chance)
        self.session = _Session(self)
        self.jobs: list[Job] = []
        self.attempts = 0
        self.kept = 0
        """So often rows were materialised."""
        self.asking: dict[int, network.Asking] = {}
        self.gang: list[Process] = []
        self.past: list[list[Batch]] = [[] for _ in range(schedule.ranks)]
        """By rank, what programs of former generations were given up to their checkpoints."""
        self.resumed: list[Position] = []
        """What the present programs go on from."""
        self.generation = 0
        self.announced = 0
        """The last generation that a run was fed to."""
        self.ended = False
        self.forming = False
        self.restarting = False
        """One gang after the other: what is killed meanwhile comes again with the others."""
        self.raised = ""
        self.reports: list[TrainReport] = []
        self.error: FeedError | None = None
        self.finished = False
        self.connections: list[network.Rows] = []
        self.rows = [
            [IDS.slice(PART * p + start, size) for start, size in batches]
            for p, batches in enumerate(schedule.partitions)
        ]
        self.largest = max(
            (batch.serialize().size for rows in self.rows for batch in rows), default=0
        )
        feeder.FIRST_SEGMENT_BYTES = schedule.segment
        feeder.KEPT_BYTES, feeder.MOST_LOST = schedule.kept, schedule.lost
        self.controller = controller.FeedController(schedule.ranks)
        self.loop = Calls(self.actors)
        self.controller._loop = self.loop  # type: ignore[assignment]
        self.controller._thread = self.loop  # type: ignore[assignment]
        self._faults = deque(sorted(schedule.faults, key=lambda each: each.step))

    def run(self) -> None:
        """The whole schedule.

        Raises:
            Exception: something is not as it must be.
        """
        actors = self.actors
        try:
            actors.spawn(
                "the controller's loop", self.loop.run, process=self.controller, shares=False
            )
            self._form([None] * self.schedule.ranks)
            actors.spawn("driver", self._drive)
            actors.run(lambda: self.finished and self.ended, LIMIT_S, self._step)
        finally:
            actors.clear()

    # -- the driver ------------------------------------------------------------------------------

    def _drive(self) -> None:
        schedule = self.schedule
        alive = self.live = _Live(self, schedule.restarts)
        try:
            for options in schedule.runs:
                made = _Training(
                    alive,
                    _Source(self),
                    options,
                    timeout_s=IDLE_S,  # type: ignore[arg-type]
                )
                self.reports.append(made.run())
        except FeedError as error:
            self.error = error
        self.controller.end()
        self.finished = True

    # -- processes -------------------------------------------------------------------------------

    def _form(self, positions: list[Position | None]) -> None:
        self.generation += 1
        self.gang = [Process(rank, self.generation) for rank in range(self.schedule.ranks)]
        for process, position in zip(self.gang, positions, strict=True):
            self.actors.spawn(
                f"rank {process.rank} ({self.generation})",
                self._program,
                process,
                position,
                process=process,
            )

    def _program(self, process: Process, position: Position | None) -> None:
        program = self.schedule.programs[process.rank]
        me = ME._replace(rank=process.rank, index=process.rank, generation=self.generation)
        try:
            with trainer.Trainer(me, WIRING, Path("/nowhere/secrets")) as made:
                made._shared.changed.check = _Bounds(self, made)  # type: ignore[attr-defined]
                if self.chance.random() < 0.3:
                    self.actors.block(self.chance.random() * 0.4)
                self._work(process, program, made, position)
        except FeedError:
            if self.error is None and not self.controller.failures:
                raise
        process.returned = True
        if all(each.returned for each in self.gang):
            self.live.moved = self.actors.now
            self.ended = True
            self._tell_driver()

    def _work(
        self, process: Process, program: Program, made: trainer.Trainer, position: Position | None
    ) -> None:
        schedule = self.schedule
        if not program.reads:
            if program.ends is not Ends.RETURNS:
                while not self.finished:
                    self.actors.block(1.0)
            return
        feed = made.feed(FEED, ranks=schedule.readers)
        if position is not None:
            feed.restore(position)
        left = program.after
        if not program.by_epoch:
            for batch in feed.batches(program.size, drop_last=program.drop_last):
                self._given(process, made, feed, batch["id"])
                left -= 1
                if left == 0 and program.ends is not Ends.WHOLE:
                    break
        else:
            for epoch in feed:
                here = program.after if program.ends is Ends.LEAVES else left
                for batch in epoch.batches(program.size, drop_last=program.drop_last):
                    self._given(process, made, feed, batch["id"])
                    here -= 1
                    left -= 1
                    if here == 0 and program.ends is not Ends.WHOLE:
                        break
                if left <= 0 and program.ends in (Ends.STOPS, Ends.RETURNS):
                    break
        if program.ends is Ends.STOPS:
            process.stopped = True
            feed.stop()

    def _given(self, process: Process, made: trainer.Trainer, feed: Any, ids: Any) -> None:
        state = made._states[FEED]
        assert state.last is not None
        process.batches.append(Batch(*state.last, ids.tolist(), feed.position()))
        pace = self.schedule.programs[process.rank].pace
        if pace and self.chance.random() < pace:
            self.actors.block(self.chance.random() * 0.4)
        elif self.chance.random() < 0.5:
            self.actors.pause()

    def _tell_driver(self) -> None:
        with self.controller.changed:
            self.controller.changed.notify_all()

    def kill(self, process: Process) -> None:
        """As SIGKILL does."""
        if process.dead:
            return
        process.dead = True
        if process.control is not None:
            process.control.cut(self.chance)
        for actor in self.actors.alive():
            if actor.process is process:
                self.actors.kill(actor)
        if process.server is not None:
            for connection in list(process.server._connections):
                connection.end()

    def _restart(self) -> None:
        """What the coordinator does about a process that was killed."""
        self.actors.block(self.chance.random() * 0.4)
        self.forming = self.chance.random() < 0.5
        self._tell_driver()
        for process in self.gang:
            self.kill(process)
        self.actors.block(self.chance.random() * 2)
        self.forming = False
        self._form(self._checkpoint())
        self.restarting = False
        if self.late.random() < 0.5:  # the status document lags behind what the controller sees
            self.actors.block(self.late.random())
            self.forming = True
            self._tell_driver()
            self.actors.block(self.late.random())
            self.forming = False
            self._tell_driver()

    def _checkpoint(self) -> list[Position | None]:
        """What programs go on from, and their stories up to there."""
        positions: list[Position | None] = []
        together = self.schedule.runs[0].align is not Align.NONE
        counts = [len(self.past[p.rank]) + len(p.batches) for p in self.gang]
        step = self.chance.randint(0, min(counts)) if together or not min(counts) else None
        for process in self.gang:
            story = [*self.past[process.rank], *process.batches]
            upto = self.chance.randint(1, len(story)) if step is None else step
            self.past[process.rank] = story[:upto]
            positions.append(story[upto - 1].position if upto else None)
        self.resumed = [each for each in positions if each is not None]
        return positions

    # -- connections -----------------------------------------------------------------------------

    def dial(self, feeder: network.Feeder, endpoint: Endpoint) -> network.Rows:
        process = self.gang[endpoint.rank]
        server = process.server
        gone = process.dead or process.generation != endpoint.generation
        if gone or server is None or server._closed:
            raise ConnectionRefusedError(f"rank {endpoint.rank} is not there")
        rows = network.Rows(self.actors, feeder, self.schedule.pipe)
        server._connections.add(rows)
        self.connections.append(rows)
        self.actors.spawn(f"rows at rank {endpoint.rank}", server._serve, rows, process=process)
        return rows

    def ask(self) -> network.Channel:
        here, there = network.channels(self.actors, PeerRole.FEEDER)
        self._talk(there)
        return here

    def reach(self) -> network.Channel:
        process = self.actors.current.process  # type: ignore[union-attr]
        here, there = network.channels(self.actors, PeerRole.AGENT)
        process.control = here
        here.control = process.dialler
        self._talk(there)
        return here

    def _talk(self, there: network.Channel) -> None:
        def talk() -> None:
            drive(self.controller._talk(there))

        self.actors.spawn("a conversation", talk, process=self.controller, shares=False)

    # -- troubles --------------------------------------------------------------------------------

    def _step(self) -> float:
        """What goes wrong now; at which step something does again."""
        faults = self._faults
        while faults and faults[0].step <= self.actors.steps:
            self._do(faults.popleft())
        return faults[0].step if faults else math.inf

    def _do(self, fault: Fault) -> None:
        chance = self.chance
        running = [(job, number) for job in self.jobs for number in job.running]
        match fault.kind:
            case "task killed" if running:
                job, number = chance.choice(running)
                actor = job.running[number][1]
                job.lose(number)
                self.actors.kill(actor)
            case "task lost" if running:
                job, number = chance.choice(running)
                job.lose(number)
            case "task run twice" if running:
                job, number = chance.choice(running)
                if len([1 for p, _ in job.running.values() if p == job.running[number][0]]) == 1:
                    job.begin(job.running[number][0])
            case "rows cut":
                alive = [each for each in self.connections if not each.closed]
                if alive:
                    chance.choice(alive).cut(chance)
            case "control cut":
                process = chance.choice(self.gang)
                if process.control is not None and not process.dialler._ended:
                    process.control.cut(chance)
            case "question cut":
                channels = [each._channel for each in self.asking.values() if each._channel]
                if channels:
                    chance.choice(channels).cut(chance)
            case "process killed":
                process = chance.choice(self.gang)
                if not process.dead and not process.returned and not self.finished:
                    self.kill(process)
                    if not self.restarting:
                        self.restarting = True
                        self.actors.spawn("coordinator", self._restart, process=self)
            case _:
                pass


class _Bounds:
    """What holds of a trainer's buffer whenever its lock is let go."""

    def __init__(self, world: World, made: trainer.Trainer) -> None:
        self._most = max(world.schedule.runs[0].buffer, world.largest)
        self._made = made

    def __call__(self) -> None:
        for state in self._made._states.values():
            known = 0
            for stream in state.streams:
                known += stream.reserved
            for run in state.runs.values():
                for epoch in run.epochs.values():
                    for chunk in epoch.waiting:
                        known += chunk.counted
            if state.buffered != known:
                raise Given(f"{state.buffered} bytes are said to be buffered, {known} are")
            if known > self._most:
                raise Given(f"{known} bytes are buffered, of {self._most} at most")


class _Time:
    @staticmethod
    def monotonic() -> float:
        return network.world.actors.now

    @staticmethod
    def sleep(seconds: float) -> None:
        network.world.actors.block(seconds)


class _Random:
    @staticmethod
    def uniform(low: float, high: float) -> float:
        return network.world.chance.uniform(low, high)


def _current() -> Any:
    world = network.world
    actor = world.actors.current
    return world.loop if actor is not None and actor.process is world.controller else None


def _timer(seconds: float, action: Any) -> Any:
    return SimpleNamespace(start=lambda: network.world.actors.later(seconds, action))


class _Traceback:
    """Says as much as a schedule needs: to find the lines of a trace takes longer than to fail."""

    @staticmethod
    def format_exception_only(error: BaseException) -> list[str]:
        return [f"{type(error).__name__}: {error}"]

    format_exception = format_exception_only


def _descriptor(file: Any) -> int:
    """Of a file in memory: a disk would take as much time as the rest of a schedule."""
    if file._file is None:
        file._file = os.memfd_create("rows")
    return file._file


class _Control(network.Control):
    def start(self) -> None:
        world = network.world
        world.actors.current.process.dialler = self  # type: ignore[union-attr]
        super().start()


@contextlib.contextmanager
def virtual() -> Iterator[None]:
    """Within it the feed's modules are of such worlds."""
    threading = SimpleNamespace(
        Condition=lambda lock=None: Condition(network.world.actors),
        RLock=lambda: None,
        Thread=lambda target, name="", daemon=True: Thread(network.world.actors, target, name),
        current_thread=_current,
        Timer=_timer,
    )
    asyncio = SimpleNamespace(
        Event=lambda: Event(network.world.actors),
        wait_for=network.wait_for,
        sleep=network.sleep,
        new_event_loop=lambda: Calls(network.world.actors),
    )
    timed = (
        feed_state,
        control,
        control_server,
        feeding,
        batch_dispenser,
        ingest,
        feeder_client,
        live,
        controller,
        trainer,
        training,
    )
    with contextlib.ExitStack() as stack:
        for module in timed:
            stack.enter_context(mock.patch.object(module, "time", _Time))
        for module in (feed_state, control, control_server, live):
            stack.enter_context(mock.patch.object(module, "threading", threading))
        for module in (control, control_server):
            stack.enter_context(mock.patch.object(module, "asyncio", asyncio))
        for module, name, value in (
            (control, "connect", network.connect),
            (control, "random", _Random),
            (feeder, "FIRST_SEGMENT_BYTES", 0),
            (feeder, "KEPT_BYTES", 0),
            (feeder, "MOST_LOST", 0),
            (feeding, "ControllerConnection", network.Asking),
            (feeding, "TrainerConnection", network.Feeder),
            (trainer, "Control", _Control),
            (trainer, "FeedServer", _Server),
            (trainer, "client_context", lambda *args: None),
            (trainer, "has_files", lambda folder: False),
            (trainer, "traceback", _Traceback),
            (cache.SpillFile, "_descriptor", _descriptor),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield
