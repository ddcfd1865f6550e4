"""Bugs that feeds once had, or could have: put back for as long as a block runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from howdah.spark import training
from howdah.spark.feed import ingest, state, trainer
from howdah.spark.feed.control import control_server, plan, run_state
from howdah.spark.feed.epochs import TrainerEpoch, TrainerRun
from howdah.spark.feed.messages import OffsetQuery, OffsetReply, TrainerHello
from howdah.spark.feed.tasks import feeder

Mutant = Callable[[], AbstractContextManager[Any]]


def _put(where: Any, name: str, what: Any) -> Mutant:
    return lambda: mock.patch.object(where, name, what)


def _room(feed: state.FeedState, stream: Any, size: int) -> bool:
    with feed.changed:
        while not stream.discard:
            if not feed.buffered or feed.buffered + size <= ingest._limit(feed, stream):
                return False
            if feed.shared.starved():
                return True
            feed.changed.wait(0.2)
    return False


_takes = run_state.RunState.takes


def _takes_though_returned(run: run_state.RunState, rank: int, number: int) -> bool:
    return rank in run.returned or _takes(run, rank, number)


def _takes_though_done(run: run_state.RunState, rank: int, number: int) -> bool:
    return rank not in run.stopped and rank not in run.returned


async def _nowhere(controller: Any, run: Any, again: Any) -> int:
    return 0


def _how_far(feed: state.FeedState, message: OffsetQuery) -> OffsetReply:
    ranges = feed.taken.get((message.run, message.epoch), {}).get(message.partition)
    return OffsetReply(
        feed=feed.name,
        run=message.run,
        epoch=message.epoch,
        partition=message.partition,
        upto=ranges[-1][1] if ranges else -1,
        question=message.question,
    )


def _over(feed: state.FeedState, run: TrainerRun, epoch: TrainerEpoch) -> bool:
    return epoch.over(feed.size or 1, feed.drop_last)


_allowance = plan.allowance


def _allows_the_richest(ranks: Any, held: Any) -> Any:
    found = _allowance(ranks, held)
    most = max((held[rank].batches for rank in ranks if rank in held), default=0)
    return plan.Allowance(batches=most, final=found.final)


def _drop(epoch: TrainerEpoch) -> int:
    return epoch.clear()


def _prepare(feed: state.FeedState, run: TrainerRun, number: int) -> None:
    if run.cache is not None and not run.streamed(number) and number < run.options.epochs:
        feed._lay_out(run, number)


def _nothing_again(task: feeder._Feeding, error: Exception, left: Any) -> Any:
    _go_on_after(task, error, left)  # type: ignore[arg-type]
    return left


_go_on_after = feeder._Feeding._go_on_after


def _keep_order(work: training.Training, generation: int) -> Any:
    work._run.ordered = True
    return training._Turn.DONE


def _first_connection(process: trainer.Trainer, connection: int) -> TrainerHello:
    return _hello(process, 1)


_hello = trainer.Trainer._hello


def _nothing(*args: Any) -> None:
    pass


MUTANTS: dict[str, Mutant] = {
    "earlier attempts are let in": _put(ingest, "fence", lambda *args: True),
    "a retried task begins at its first row": _put(
        control_server.ControlServer, "_last_offset", _nowhere
    ),
    "the buffer is looked at and not reserved": _put(ingest, "room", _room),
    "ranks that have returned are waited for": _put(
        run_state.RunState, "takes", _takes_though_returned
    ),
    "ranks that are done are waited for": _put(run_state.RunState, "takes", _takes_though_done),
    "an epoch without rows is over before it begins": _put(state.FeedState, "_over", _over),
    "as many batches as the richest rank has": _put(run_state, "allowance", _allows_the_richest),
    "dropped rows are not counted": _put(TrainerEpoch, "drop", _drop),
    "a rank without rows has no cached epochs": _put(state.FeedState, "prepare", _prepare),
    "rows in any order are fed as if they stayed in theirs": _put(
        training.Training, "_keep_order", _keep_order
    ),
    "connections of a process are not told apart": _put(
        trainer.Trainer, "_hello", _first_connection
    ),
    "what a broken connection lost is not sent again": _put(
        feeder._Feeding, "_go_on_after", _nothing_again
    ),
    "what a broken connection lost is not told again": _put(state.FeedState, "told_anew", _nothing),
}
