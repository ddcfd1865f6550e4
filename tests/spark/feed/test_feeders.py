"""Feeders as they run in Spark's tasks, with a controller and trainers: all of it real but Spark."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from howdah import task
from howdah.spark.context import Wiring
from howdah.spark.errors import FeedError
from howdah.spark.feed import controller_connection
from howdah.spark.feed.control import control_server
from howdah.spark.feed.control.feed_controller import FeedController
from howdah.spark.feed.control.plan import Resumption
from howdah.spark.feed.control.run_state import RunState
from howdah.spark.feed.ingest import answer_offset_query
from howdah.spark.feed.messages import (
    Align,
    AssignmentRequest,
    Broken,
    Endpoint,
    OffsetQuery,
    OffsetReply,
    Options,
    Purpose,
)
from howdah.spark.feed.state import FeedState
from howdah.spark.feed.tasks import feeder_client
from howdah.spark.feed.tasks.feeder import _Feeding
from howdah.spark.feed.tasks.feeding import Connecting, FeedTask, Me
from howdah.spark.feed.tasks.scorer import Scoring
from howdah.spark.feed.trainer import Trainer
from howdah.wire.tls import PeerRole, certificate_name
from tests.spark.feed.rig import DEADLINE_S, JOB, access


def numbers(*ranges: tuple[int, int]) -> list[pa.RecordBatch]:
    return [pa.record_batch({"y": np.arange(start, stop)}) for start, stop in ranges]


class Gang:
    """The controller of so many ranks, and their trainers, one generation after the other."""

    def __init__(self, secrets: Path, folder: Path, ranks: int = 1) -> None:
        self._secrets = secrets
        self._folder = folder
        self.controller = FeedController(ranks)
        self.port = self.controller.bind("127.0.0.1")
        self.controller.start(secrets)
        self.access = access(secrets, self.port)
        self.trainers: list[Trainer] = []

    def trainer(self, rank: int = 0, generation: int = 1) -> Trainer:
        """A trainer the controller knows."""
        me = task.context()._replace(rank=rank, index=rank, host="127.0.0.1", generation=generation)
        wiring = Wiring(job_id=JOB, host="127.0.0.1", port=self.port)
        made = Trainer(me, wiring, self._secrets, str(self._folder))
        self.trainers.append(made)
        self.wait(
            lambda: self.controller.generation == generation and rank in self.controller.trainers
        )
        return made

    def wait(self, condition: Callable[[], bool]) -> None:
        with self.controller.changed:
            assert self.controller.changed.wait_for(condition, DEADLINE_S)

    def open(self, purpose: Purpose, **options: Any) -> FeedTask:
        run = self.controller.open(purpose, Options(feed="train", **options))
        self.controller.announce(run)
        return FeedTask(access=self.access, feed="train", run=run.number, purpose=purpose)

    def close(self) -> None:
        feeder_client.ControllerConnection.of(self.access).close()
        for trainer in self.trainers:
            trainer.close()
        self.controller.close()


@pytest.fixture
def gang(
    request: pytest.FixtureRequest,
    feed_secrets: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Gang]:
    """Of one rank, or of as many as the test names."""
    monkeypatch.chdir(tmp_path)
    made = Gang(feed_secrets, tmp_path, getattr(request, "param", 1))
    yield made
    made.close()


def me(partition: int = 0, attempt: int = 0) -> Me:
    return Me(partition, attempt, host=socket.gethostname(), folder="")


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def in_background(work: Callable[[], Any]) -> Callable[[], Any]:
    """Begin it; what is returned waits for what it gives, or raises what it raises."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def ended() -> Any:
        thread.join(DEADLINE_S)
        assert found, "it goes on"
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    return ended


def test_rows_a_program_did_not_answer_before_it_raised_are_answered_by_the_next(
    gang: Gang,
) -> None:
    first = gang.trainer()
    scoring = Scoring(gang.open(Purpose.SCORE), me())
    answers = in_background(lambda: list(scoring.run(iter(numbers((0, 4), (4, 6))))))
    next(first.feed("train").batches(2))
    first.close(Broken(error="ValueError: no", trace=""))
    feed = gang.trainer(generation=2).feed("train")
    batches = feed.batches(2)
    for _ in range(3):
        feed.results(next(batches)["y"] * 10)
    assert [batch["prediction"].to_pylist() for batch in answers()] == [[0, 10, 20, 30], [40, 50]]


def test_rows_of_a_stretch_are_counted_also_while_nobody_takes_the_next(gang: Gang) -> None:
    """They decide who is to take what follows."""
    gone = gang.trainer()
    task = gang.open(Purpose.TRAIN)
    feeder = Connecting(task, me())
    feeder.ask()
    gone.close()
    gang.wait(lambda: not gang.controller.connected())
    answer = feeder.controller.ask(AssignmentRequest(**feeder.named(), rank=0, rows=5))
    assert answer.wait_s > 0
    assert gang.controller.runs["train", task.run].epoch(0).rows == {0: 5}


def test_a_connection_to_the_driver_that_broke_while_it_was_idle_fails_no_task(gang: Gang) -> None:
    trainer = gang.trainer()
    task = gang.open(Purpose.TRAIN, align=Align.NONE)

    def rows() -> Iterator[pa.RecordBatch]:
        yield from numbers((0, 5))
        broken = feeder_client.ControllerConnection.of(gang.access)._socket
        assert broken is not None
        broken.shutdown(socket.SHUT_RDWR)

    fed = in_background(lambda: _Feeding(task, me()).run(rows()))
    assert len(next(trainer.feed("train").batches(5))["y"]) == 5
    assert fed()["rows"].to_pylist() == [5]
    epoch = gang.controller.runs["train", task.run].epoch(0)
    gang.wait(lambda: epoch.finished == {(0, 0): 5})


def test_a_task_whose_trainer_closes_the_connection_sends_again_what_was_not_taken(
    gang: Gang,
) -> None:
    trainer = gang.trainer()
    task = gang.open(Purpose.TRAIN, align=Align.NONE, buffer=1)
    feed, server = trainer.feed("train"), trainer._server
    assert server is not None
    read: list[Callable[[], Any]] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for start in range(0, 40, 4):
            yield from numbers((start, start + 4))
            if start in (8, 20):
                # One batch has been taken, and the others wait for the program.
                until(lambda: feed._state.taken.get((task.run, 0), {}).get(0))
                for connection in list(server._connections):
                    connection.end()
                if not read:
                    read.append(in_background(lambda: list(next(iter(feed)).batches(40))))

    fed = in_background(lambda: _Feeding(task, me()).run(rows()))
    assert fed()["rows"].to_pylist() == [40]
    run = gang.controller.runs["train", task.run]
    gang.wait(lambda: run.epoch(0).finished == {(0, 0): 40})
    gang.controller.fed(run, 0)
    assert [batch["y"].tolist() for batch in read[0]()] == [[*range(40)]]
    assert run.epoch(0).rows == {0: 40}


def test_a_task_that_loses_its_connection_too_often_fails(gang: Gang) -> None:
    trainer = gang.trainer()
    task = gang.open(Purpose.TRAIN, align=Align.NONE)
    server = trainer._server
    assert server is not None

    def rows() -> Iterator[pa.RecordBatch]:
        for start in range(0, 40, 4):
            yield from numbers((start, start + 4))
            until(lambda: server._connections)
            for connection in list(server._connections):
                connection.end()

    with pytest.raises(ConnectionError, match="rank 0"):
        _Feeding(task, me()).run(rows())


def test_rows_are_left_out_of_the_partitions_alone_that_they_were_in(gang: Gang) -> None:
    """Spark may divide the rows otherwise in a later query."""
    trainer = gang.trainer()
    task = gang.open(Purpose.TRAIN, align=Align.NONE)
    run = gang.controller.runs["train", task.run]

    def feed(part: int, attempt: int, *ranges: tuple[int, int], skip: Any = None) -> list[int]:
        now = msgspec.structs.replace(task, query=run.query, skip=skip or {})
        feeding = _Feeding(now, me(part, attempt), checked=True)
        return feeding.run(iter(numbers(*ranges)))["rows"].to_pylist()

    assert feed(0, 1, (0, 4), (4, 8)) == [8]
    assert feed(1, 2, (8, 12)) == [4]
    gang.wait(lambda: len(run.epoch(0).finished) == 2)
    run.query += 1
    for part, attempt, rows in ((1, 3, (4, 8)), (0, 4, (0, 4)), (0, 5, (0, 12))):
        with pytest.raises(FeedError, match=r"another one than .*leafNodeDefaultParallelism"):
            feed(part, attempt, rows)
    run.query += 1
    assert feed(0, 6, (0, 2), (2, 8)) == [0]
    assert run.vanished(0, []) == 1
    assert feed(1, 7, (8, 10), (10, 12)) == [0]
    assert run.vanished(0, []) is None
    # Of an epoch of which nothing is left out it does not matter.
    again = gang.trainer(generation=2)
    run.begin_again(2, Resumption(), {})
    gang.controller.announce(run)
    assert feed(0, 8, (0, 3)) == [3]
    assert run.vanished(0, []) is None
    assert run.vanished(0, [5]) == 5
    # What a position says of a partition that is shorter is wrong, too.
    with pytest.raises(FeedError, match="partition 1 .*another one than"):
        feed(1, 9, (8, 10), skip={1: [(0, 4)]})
    assert trainer is not again


@pytest.mark.parametrize("gang", [2], indirect=True)
def test_a_rank_that_says_nothing_for_longer_than_feeders_wait_costs_no_row_and_no_task(
    gang: Gang, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that holds Python's lock in a compilation: it may have rows of the partition."""
    monkeypatch.setattr(feeder_client, "LOST_S", 2.0)
    monkeypatch.setattr(control_server, "ANSWER_S", 0.1)
    questions = 0
    how_far = gang.controller._last_offset

    async def counted(*arguments: Any) -> int | None:
        nonlocal questions
        questions += 1
        return await how_far(*arguments)

    monkeypatch.setattr(gang.controller, "_last_offset", counted)
    answered: list[OffsetQuery] = []

    def answer(state: FeedState, query: OffsetQuery) -> OffsetReply:
        if state is silent:
            answered.append(query)
            if len(answered) == 2:
                # Its first answer is out: a feeder that began upon it would be cut off by the
                # questions that have piled up behind.
                with state.changed:
                    state.changed.wait_for(lambda: state.streams, 0.5)
        return answer_offset_query(state, query)

    monkeypatch.setattr(controller_connection, "answer_offset_query", answer)
    trainers = [gang.trainer(rank) for rank in range(2)]
    task = gang.open(Purpose.TRAIN, align=Align.NONE)
    rows = numbers((0, 4), (4, 8))
    earlier = _Feeding(task, me(attempt=1))
    earlier._go = earlier.ask()
    earlier._send(rows[0], 0)
    earlier._finish()  # the controller has not heard of them
    silent = trainers[earlier._go.endpoints[0].rank].feed("train")._state
    with silent.changed:
        later = in_background(lambda: _Feeding(task, me(attempt=2)).run(iter(rows)))
        until(lambda: questions > 12)
    assert later()["rows"].to_pylist() == [4]


@pytest.mark.parametrize("host", [socket.gethostname(), "elsewhere"])
def test_a_rank_that_accepts_no_feeder_for_longer_than_feeders_wait_gets_its_rows_later(
    gang: Gang, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """All ranks may compile at once, or stand still with their host."""
    monkeypatch.setattr(feeder_client, "CONNECT_S", 1.0)
    server = gang.trainer()._server
    task = gang.open(Purpose.TRAIN, align=Align.NONE)
    questions = 0
    choose = RunState.choose

    def counted(*arguments: Any) -> list[Endpoint]:
        nonlocal questions
        questions += 1
        return choose(*arguments)

    monkeypatch.setattr(RunState, "choose", counted)
    goes_on = threading.Event()
    assert server is not None
    server._loop.call_soon_threadsafe(goes_on.wait, DEADLINE_S)
    try:
        fed = in_background(
            lambda: _Feeding(task, Me(0, 1, host, "")).run(iter(numbers((0, 4), (4, 8))))
        )
        until(lambda: questions > 2)
    finally:
        goes_on.set()
    assert fed()["rows"].to_pylist() == [8]


def test_what_lets_a_feeder_in_says_so_and_opens_no_door_of_the_job(feed_secrets: Path) -> None:
    """It travels in Spark's tasks: who reads it there can bring rows, and not stop the job."""
    from cryptography import x509

    found = x509.load_pem_x509_certificate(access(feed_secrets, 1).certificate.encode())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [certificate_name(PeerRole.FEEDER, JOB)]
