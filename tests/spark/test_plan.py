"""Decisions of a feed's controller."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from howdah.client.errors import BadInput
from howdah.spark.errors import FeedError
from howdah.spark.feed.control.plan import (
    Load,
    Resumption,
    allowance,
    batch_rows,
    preference,
    resumption,
)
from howdah.spark.feed.control.run_state import RunState
from howdah.spark.feed.messages import (
    Align,
    AssignmentRequest,
    Available,
    Endpoint,
    Fed,
    HandedOut,
    Options,
    Position,
    Purpose,
)
from howdah.spark.rows import arrow_schema, record_batches
from howdah.spark.session import shuffles

RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)))


def held(batches: int, *, final: bool = False, epoch: int = 0) -> Available:
    return Available(feed="train", run=1, epoch=epoch, batches=batches, rows=0, final=final)


def endpoint(rank: int, host: str = "here", folder: str = "/a") -> Endpoint:
    return Endpoint(rank=rank, host=host, folder=folder)


END = True
"""Of a rank that knows it."""


@pytest.mark.parametrize(
    ("holds", "batches", "final"),
    [
        pytest.param([(7,), (4,)], 4, False, id="as many as every rank can have"),
        pytest.param([(7,), (4,), None], 0, False, id="one has said nothing"),
        pytest.param([(7,), (4, END)], 4, True, id="the poorest knows its end"),
        pytest.param([(2,), (4, END)], 2, False, id="one may yet be the poorest"),
        pytest.param([(0, END), (0, END)], 0, True, id="no rows at all"),
    ],
)
def test_so_many_batches_are_allowed(
    holds: list[tuple[int, bool] | None], batches: int, final: bool
) -> None:
    state = {rank: held(each[0], final=len(each) == 2) for rank, each in enumerate(holds) if each}
    now = allowance([*range(len(holds))], state)
    assert (now.batches, now.final) == (batches, final)


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=4),
    st.data(),
)
def test_what_was_allowed_is_never_taken_back(growth: list[list[int]], data: st.DataObject) -> None:
    ranks = list(range(len(growth)))
    steps = {
        rank: [sum(parts[: i + 1]) for i in range(len(parts))] for rank, parts in enumerate(growth)
    }
    state: dict[int, Available] = {}
    before = allowance(ranks, state)
    while any(steps.values()):
        rank = data.draw(st.sampled_from([rank for rank in ranks if steps[rank]]))
        batches = steps[rank].pop(0)
        state[rank] = held(batches, final=not steps[rank])
        now = allowance(ranks, state)
        assert now.batches >= before.batches
        assert not before.final or now.batches == before.batches
        before = now
    assert before.final
    assert before.batches == min(sum(parts) for parts in growth)


def test_a_run_goes_on_where_all_ranks_together_were() -> None:
    found = resumption(
        3,
        Align.DROP,
        [
            Position(run=3, epoch=1, rows={0: [(0, 50)], 2: [(10, 20)]}),
            Position(run=3, epoch=1, rows={0: [(50, 80)]}),
        ],
    )
    assert found.epoch == 1
    assert found.skip == {0: [(0, 80)], 2: [(10, 20)]}


def test_a_position_of_an_earlier_run_leaves_nothing_out() -> None:
    found = resumption(4, Align.DROP, [Position(run=3, epoch=1, rows={0: [(0, 50)]})])
    assert (found.epoch, found.skip) == (0, {})


def test_ranks_that_do_not_wait_for_each_other_go_on_with_the_earliest_epoch() -> None:
    positions = [
        Position(run=1, epoch=2, rows={0: [(0, 5)]}),
        Position(run=1, epoch=1, rows={1: [(0, 9)]}),
    ]
    assert resumption(1, Align.NONE, positions).epoch == 1
    assert resumption(1, Align.DROP, positions).epoch == 2


def test_a_feeder_goes_to_the_trainer_of_its_own_executor() -> None:
    loads = [
        Load(endpoint=endpoint(0, "there")),
        Load(endpoint=endpoint(1, "here", "/b")),
        Load(endpoint=endpoint(2, "here", "/a")),
    ]
    assert preference(loads, host="here", folder="/a", rest=1) == [2, 1, 0]


def test_a_feeder_goes_to_another_host_when_ranks_there_are_behind() -> None:
    loads = [Load(endpoint=endpoint(0), rows=1000), Load(endpoint=endpoint(1, "there"), rows=100)]
    assert preference(loads, host="here", folder="/a", rest=100)[0] == 1


def test_a_feeder_stays_with_its_trainer_until_others_are_half_of_what_comes_behind() -> None:
    near = [Load(endpoint=endpoint(0), rows=1040), Load(endpoint=endpoint(1), rows=1000)]
    assert preference(near, host="here", folder="/a", rest=100, current=0)[0] == 0
    far = [Load(endpoint=endpoint(0), rows=1200), Load(endpoint=endpoint(1), rows=1000)]
    assert preference(far, host="here", folder="/a", rest=100, current=0)[0] == 1


def test_a_trainer_that_was_not_reached_comes_last() -> None:
    loads = [Load(endpoint=endpoint(0)), Load(endpoint=endpoint(1), rows=10)]
    assert preference(loads, host="here", folder="/a", rest=1, avoid=[0]) == [1, 0]


def again(partition: int, attempt: int, **fields: object) -> AssignmentRequest:
    given = {"epoch": 0, **fields}
    return AssignmentRequest(
        feed="train", run=1, partition=partition, attempt=attempt, host="here", **given
    )


def fed(partition: int, attempt: int, rank: int, rows: int, epoch: int = 0) -> Fed:
    return Fed(
        feed="train",
        run=1,
        epoch=epoch,
        partition=partition,
        attempt=attempt,
        rank=rank,
        rows=rows,
    )


def test_partitions_spread_over_the_ranks_as_they_come() -> None:
    run = RunState(1, Purpose.TRAIN, Options(feed="train"))
    endpoints = {rank: endpoint(rank) for rank in range(3)}
    taken: dict[int, int] = {}
    for partition in range(30):
        word = again(partition, attempt=partition)
        run.begin(word)
        rank = run.choose(word, endpoints)[0].rank
        taken[rank] = taken.get(rank, 0) + 1
        run.note_sent(fed(partition, partition, rank, 7))
    assert taken == {0: 10, 1: 10, 2: 10}


def test_partitions_take_turns_among_the_ranks_where_they_are_exchanged() -> None:
    """Also where one rank is nearer than the others."""
    options = Options(feed="train", epochs=4, exchange=True)
    run = RunState(1, Purpose.TRAIN, options)
    places = {0: endpoint(0), 1: endpoint(1, "there"), 2: endpoint(2, "there", "/b")}
    taken: list[list[int]] = []
    for epoch in range(4):
        of_epoch: list[int] = []
        for partition in range(6):
            ask = again(partition, 6 * epoch + partition, epoch=epoch, folder="/a")
            run.begin(ask)
            of_epoch.append(run.choose(ask, places)[0].rank)
            run.note_sent(fed(partition, ask.attempt, of_epoch[-1], 100, epoch))
        taken.append(of_epoch)
    assert taken == [[(p + epoch) % 3 for p in range(6)] for epoch in range(4)]


def test_attempts_that_fed_the_gang_before_are_known_to_the_next() -> None:
    run = RunState(1, Purpose.TRAIN, Options(feed="train"))
    assert not run.begin(again(0, attempt=3))
    run.begin_again(2, Resumption(), {})
    assert run.begin(again(0, attempt=6))  # trainers are asked, and shut the earlier one out
    assert run.superseded(again(0, attempt=3))


def test_two_small_partitions_one_after_the_other_are_shared_equally() -> None:
    run = RunState(1, Purpose.TRAIN, Options(feed="train"))
    endpoints = {rank: endpoint(rank) for rank in range(2)}
    for partition in range(2):
        word = again(partition, attempt=partition)
        run.begin(word)
        rank = run.choose(word, endpoints)[0].rank
        word = again(partition, attempt=partition, rank=rank, rows=250)
        run.note_sent(word)
        rank = run.choose(word, endpoints)[0].rank
        run.note_sent(fed(partition, partition, rank, 250))
    assert run.epoch(0).rows == {0: 500, 1: 500}


def test_one_large_partition_is_spread_over_the_ranks() -> None:
    run = RunState(1, Purpose.TRAIN, Options(feed="train"))
    endpoints = {rank: endpoint(rank) for rank in range(2)}
    word = again(0, attempt=0)
    run.begin(word)
    rank = run.choose(word, endpoints)[0].rank
    for _ in range(20):
        word = again(0, attempt=0, rank=rank, rows=100)
        run.note_sent(word)
        rank = run.choose(word, endpoints)[0].rank
    rows = run.epoch(0).rows
    assert abs(rows[0] - rows[1]) <= 200


def test_a_partition_that_is_brought_to_its_end_again_counts_once() -> None:
    run = RunState(1, Purpose.TRAIN, Options(feed="train"))
    for partition, attempt, rows in ((0, 0, 6), (1, 1, 2), (0, 2, 4)):
        run.begin(again(partition, attempt))
        run.note_sent(fed(partition, attempt, 0, rows))
    epoch = run.epoch(0)
    assert epoch.finished == {(0, 0): 10, (0, 1): 2}
    assert (epoch.expected_rows(), epoch.active) == (6, {})


@pytest.mark.parametrize("lost", [True, False], ids=["the same task", "its next attempt"])
def test_rows_that_a_trainer_has_of_a_broken_connection_are_not_dropped(lost: bool) -> None:
    run = RunState(1, Purpose.TRAIN, Options(feed="train"))

    def goes_on(attempt: int, start: int, **fields: object) -> None:
        assert run.begin(again(0, attempt, **fields)) is (attempt > 0)
        run.epoch(0).send_again((0, 0), start)

    goes_on(0, 0)
    # Rank 0 has enough after 50 of 100 rows, and nobody takes the others: Spark runs it again.
    run.note_sent(again(0, 0, rank=0, rows=50, dropped=[(50, 100)], offset=100))
    goes_on(1, 50)
    assert run.epoch(0).dropped == {(0, (0, 0)): [(50, 100)]}
    # Of the rows that it sends to rank 1, 20 arrive; the question is asked twice.
    for _ in range(2):
        goes_on(1 if lost else 2, 70, lost=lost, offset=50 if lost else 0)
        assert run.epoch(0).dropped == {(0, (0, 0)): [(70, 100)]}
    run.note_sent(fed(0, 1 if lost else 2, 1, 50))
    assert run.epoch(0).dropped == {(0, (0, 0)): []}


def test_a_restart_counts_rows_that_come_again_and_rows_that_nobody_knows_any_more() -> None:
    run = RunState(2, Purpose.TRAIN, Options(feed="train", epochs=3))
    run.begin_again(1, Resumption(), {})

    def handed(rank: int, epoch: int, rows: int) -> None:
        run.note_handed(rank, HandedOut(feed="train", run=2, epoch=epoch, rows=rows, batches=1))

    for rank in (0, 1):
        handed(rank, 0, 10)
        handed(rank, 1, 6)
    # One rank's checkpoint is in the second epoch, the other's had not come as far.
    positions = {
        0: Position(run=2, epoch=1, rows={0: [(0, 4)]}),
        1: Position(run=2, epoch=0, rows={1: [(0, 7)]}),
    }
    run.begin_again(2, resumption(2, Align.DROP, positions.values()), positions)
    assert (run.restarts, run.repeated, run.forgotten) == (1, 12 - 4, 10 - 7)
    # The same positions again: what the epoch had before counts as well.
    handed(0, 1, 2)
    run.begin_again(3, resumption(2, Align.DROP, positions.values()), positions)
    assert (run.restarts, run.repeated, run.forgotten) == (2, 8 + 2, 10 - 7)


@pytest.mark.parametrize(("align", "first"), [(Align.DROP, 2), (Align.NONE, 0)])
def test_a_rank_that_comes_late_reads_from_the_next_epoch_or_at_once(
    align: Align, first: int
) -> None:
    run = RunState(1, Purpose.TRAIN, Options(feed="train", epochs=3, align=align))
    run.readers = {0: 0}
    for epoch in range(2):
        run.note_available(0, Available(feed="train", run=1, epoch=epoch, batches=1, rows=1))
    assert run.join(1) and not run.join(1)
    assert [run.takes(1, epoch) for epoch in range(3)] == [epoch >= first for epoch in range(3)]
    assert not run.done(2, [0, 1])


@pytest.mark.parametrize(
    ("plan", "shuffled"),
    [
        ("*(1) Project [id#0L]\n+- *(1) Range (0, 9, step=1, splits=2)", False),
        ("BroadcastHashJoin [a#1]\n:- FileScan parquet\n+- BroadcastExchange Hashed", False),
        ("AdaptiveSparkPlan isFinalPlan=false\n+- Exchange RoundRobinPartitioning(8)", True),
        ("InMemoryTableScan [id#0]\n   +- InMemoryRelation\n      +- ShuffleExchange", True),
        ("GpuShuffleExchange hashpartitioning(id#0)", True),
    ],
    ids=["range", "broadcast", "repartition", "cached", "other engine"],
)
def test_plans_whose_rows_may_come_in_another_order_are_known(plan: str, shuffled: bool) -> None:
    assert shuffles(plan) is shuffled


def test_record_batches_have_about_the_same_size_whatever_the_rows() -> None:
    assert batch_rows(40) == 32768
    assert batch_rows(3136) == 512
    assert batch_rows(100_000) == 16
    assert batch_rows(0) == 65536


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (
            [(1, 2), (3, 4, 5)],
            r"\(3, 4, 5\), a row of the RDD, has .* _1, _2, _3; its first row has",
        ),
        ([(1, 2), (3,)], r"\(3,\), a row of the RDD, has the columns _1; its first row has _1, _2"),
        ([(1, 2), None], "None, a row of the RDD"),
        (
            [{"a": 1}, {"a": 2, "b": 3}],
            "'b': 3}, a row of the RDD, has the columns a, b; its first",
        ),
        ([Row(a=1, b=2), Row(a=3)], r"Row\(a=3\), a row of the RDD"),
        ([({"x": 1},), ({"x": 1, "y": 2},)], "'y': 2}, in column '_1' of the RDD, has a key that"),
        ([{"a": [{"x": 1}]}, {"a": [{}, {"y": 2}]}], "{'y': 2}], in column 'a' of the RDD"),
        ([(), ()], r"\(\), a row of this RDD, has no columns"),
        ([Row("a", "a")(1, 2)], r"Row\(a=1, a=2\), a row of this RDD, has two columns of one name"),
    ],
)
def test_no_value_of_an_rdd_is_dropped_without_a_word(rows: list[Any], error: str) -> None:
    with pytest.raises((BadInput, FeedError), match=error):
        list(record_batches(rows, arrow_schema(rows[0])))


def test_a_dictionary_of_an_rdd_may_lack_columns_and_a_row_be_none() -> None:
    def fed(rows: list[Any], columns: list[str] | None = None) -> list[Any]:
        batches = record_batches(rows, arrow_schema(rows[0], columns), whole=columns is None)
        return [row for batch in batches for row in batch.to_pylist()]

    assert fed([{"a": 1, "b": 2}, {"b": 3}]) == [{"a": 1, "b": 2}, {"a": None, "b": 3}]
    assert fed([{"a": [{"x": 1}]}, {"a": None}, {"a": [None, {}]}])[2] == {"a": [None, {"x": None}]}
    assert fed([1, None]) == [{"_1": 1}, {"_1": None}]
    assert fed([(1, 2), (3, 4, 5)], ["_2"]) == [{"_2": 2}, {"_2": 4}]
