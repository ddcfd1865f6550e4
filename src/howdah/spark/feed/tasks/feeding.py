"""What feeding and scoring a partition have in common: what the Spark task is told, and finding a
trainer that takes its rows."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from howdah.spark.errors import FeedError
from howdah.spark.feed.messages import (
    AssignmentRequest,
    AssignmentResponse,
    Begin,
    Intervals,
    Purpose,
)
from howdah.spark.feed.tasks.feeder_client import (
    ControllerConnection,
    EnoughRows,
    FeederAccess,
    TrainerConnection,
    first_word,
)
from howdah.wire.sockets import NoAnswer

MOST_LOST = 5
"""Connections to trainers that one task may lose before it fails, for Spark to run it again."""


class FeedTask(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks of one Spark job are told."""

    access: FeederAccess
    feed: str
    run: int
    epoch: int = 0
    query: int = 0
    """Number of the query among those of its run: tasks of one that was given up may go on for a
    while, and are heard no more."""
    purpose: Purpose = Purpose.TRAIN
    skip: dict[int, Intervals] = {}
    """By partition: rows programs have had."""
    columns: list[str] | None = None
    """Only these are sent; None for all."""
    keep: bool = True
    """Scoring: the columns that came go before the answers."""
    answer: bytes = b""
    """Scoring: the schema of the answers, as Arrow serialises it; empty: answer with theirs."""


class Me(msgspec.Struct, frozen=True):
    partition: int
    attempt: int
    host: str
    folder: str
    stage: int = 0


class NobodyLeft(Exception):
    """No trainer takes more rows of the epoch."""


class Connecting:
    """What feeding and scoring have in common: to find a trainer that takes it."""

    def __init__(self, task: FeedTask, me: Me) -> None:
        self.task = task
        self.me = me
        self.controller: ControllerConnection = ControllerConnection.of(task.access)
        self.enough: set[int] = set()
        """Ranks that take no more rows of the epoch."""

    def ask(self, **fields: Any) -> AssignmentResponse:
        """Where and with whom to go on. Waits while nobody can take rows.

        Args:
            fields: further ones of `AssignmentRequest`.

        Raises:
            FeedError: it will never be taken, or the driver program is not there.
        """
        request = AssignmentRequest(
            **self.named(),
            query=self.task.query,
            host=self.me.host,
            folder=self.me.folder,
            enough=sorted(self.enough),
            **fields,
        )
        while True:
            try:
                answer = self.controller.ask(request)
            except OSError as error:
                access = self.task.access
                raise FeedError(
                    f"the driver program at {access.host}:{access.port} does not answer: {error}. "
                    "The feed's tasks must reach it: set spark.driver.host to an address that "
                    "executors can connect to"
                ) from error
            if answer.problem:
                raise FeedError(answer.problem)
            if not answer.wait_s:
                return answer
            request = msgspec.structs.replace(request, rows=0)
            time.sleep(answer.wait_s)

    def named(self) -> dict[str, Any]:
        """What messages about this task have in common."""
        task, me = self.task, self.me
        return {
            "feed": task.feed,
            "run": task.run,
            "epoch": task.epoch,
            "partition": me.partition,
            "stage": me.stage if task.purpose is Purpose.SCORE else 0,
            "attempt": me.attempt,
        }

    def open(self, answer: AssignmentResponse, begin: int, skip: Intervals) -> TrainerConnection:
        """A connection on which the partition has begun. A trainer that is connected to the controller and
        does not answer is waited for: it may be stopped, or hold Python's lock in a compilation."""
        problems: dict[int, OSError] = {}
        while True:
            for endpoint in answer.endpoints:
                rank = endpoint.rank
                if rank in problems:
                    continue
                trainer = None
                try:
                    trainer = TrainerConnection(endpoint, self.task.access, self.me.host)
                    word = first_word(trainer)
                    if (word.rank, word.generation) != (rank, endpoint.generation):
                        raise ConnectionError("another process has its address now")
                    trainer.send(
                        Begin(**self.named(), purpose=self.task.purpose, start=begin, skip=skip)
                    )
                    return trainer
                except EnoughRows:
                    assert trainer is not None
                    trainer.close()
                    self.enough.add(rank)
                except OSError as error:
                    if trainer is not None:
                        trainer.close()
                    problems[rank] = error
            answer = self.ask(unreachable=list(problems), offset=begin)
            if answer.whole:
                raise NobodyLeft
            if all(endpoint.rank in problems for endpoint in answer.endpoints):
                reached = [rank for rank in problems if isinstance(problems[rank], NoAnswer)]
                if not reached:
                    told = "; ".join(f"rank {rank}: {error}" for rank, error in problems.items())
                    raise FeedError(f"no trainer takes rows of this task: {told}")
                for rank in reached:
                    del problems[rank]
