"""What must be true of a schedule that is over: every row once an epoch, or the report says so."""

from __future__ import annotations

from collections import Counter

from howdah.spark.feed.messages import Align, Options
from howdah.spark.reports import TrainReport
from tests.spark.feed.simulation.schedule import Ends
from tests.spark.feed.simulation.world import PART, Batch, Given, World


def check(world: World) -> str:
    """How it ended, in a word.

    Raises:
        Given: a row was given twice, or not at all, and nothing says so.
    """
    schedule = world.schedule
    if world.error is not None:
        if world.kept > 1 and "which of them they have had can't be told" in str(world.error):
            return "kept rows were of another order"
        raise Given(f"a run failed: {world.error}")
    rows = {
        PART * partition + start + index
        for partition, batches in enumerate(schedule.partitions)
        for start, size in batches
        for index in range(size)
    }
    stories = [[*world.past[process.rank], *process.batches] for process in world.gang]
    outcome = ""
    for number, report in enumerate(world.reports, 1):
        options = schedule.runs[number - 1]
        given = [
            [batch for batch in story if batch.run == number and batch.ids] for story in stories
        ]
        early = {p.ends for p in schedule.programs if p.reads} - {Ends.WHOLE}
        outcome = "stopped" if report.stopped else "early" if early else "whole"
        # A gang that forms anew after the run was used has nothing of it.
        whole = not early and not report.stopped and world.announced == world.generation
        for epoch in range(options.epochs):
            _epoch(world, options.align, epoch, rows, given, whole=whole)
        if world.generation > 1:
            outcome = "restarted"
            if whole:
                _restarted(world, number, options, report, len(rows))
            continue
        for rank, story in enumerate(given):
            said = {each.rank: each.rows for each in report.ranks}
            count = sum(len(batch.ids) for batch in story)
            # What a rank said last as all stopped may have been lost with its connection.
            lost = report.stopped and schedule.faults and said.get(rank, 0) < count
            if said.get(rank, 0) != count and not lost:
                raise Given(f"rank {rank} was given {count} rows of run {number}: {report}")
        if not report.stopped:
            told, all_rows = report.rows + report.dropped, len(rows) * options.epochs
            # What no rank wanted of an epoch was not sent to any.
            less = told < all_rows and Ends.LEAVES not in early
            if less or told > all_rows:
                raise Given(
                    f"of {len(rows)} rows in {options.epochs} epochs run {number} says: {report}"
                )
            if options.align is Align.NONE and report.dropped and not early:
                dropping = any(p.drop_last for p in schedule.programs)
                if not dropping:
                    raise Given(f"rows were dropped for nothing: {report}")
    return outcome


def _epoch(
    world: World,
    align: Align,
    epoch: int,
    rows: set[int],
    given: list[list[Batch]],
    *,
    whole: bool,
) -> None:
    mine = [[batch for batch in story if batch.epoch == epoch] for story in given]
    seen = Counter(row for story in mine for batch in story for row in batch.ids)
    if strange := seen.keys() - rows:
        raise Given(f"epoch {epoch} has rows that nobody sent: {sorted(strange)}")
    # Ranks that do not wait for each other go on with the earliest of their epochs.
    again = align is Align.NONE and world.generation > 1
    if not again and len(seen) != seen.total():
        twice = sorted(row for row, count in seen.items() if count > 1)
        raise Given(f"rows were given twice in epoch {epoch}: {twice}")
    if not whole:
        return
    reading = [story for story, program in zip(mine, world.schedule.programs) if program.reads]
    if align is not Align.NONE and len({len(story) for story in reading}) > 1:
        raise Given(f"ranks had {[len(story) for story in reading]} batches of epoch {epoch}")
    drop_last = any(program.drop_last for program in world.schedule.programs)
    if align is Align.NONE and not drop_last:
        if missing := rows - seen.keys():
            raise Given(f"rows were not given in epoch {epoch}: {sorted(missing)}")


def _restarted(world: World, run: int, options: Options, report: TrainReport, rows: int) -> None:
    """What the report must say of a run that went on from positions."""
    pick = min if options.align is Align.NONE else max
    mine = [each for each in world.resumed if each.run == run]
    epoch = pick((each.epoch for each in mine), default=0)
    trained = sum(
        stop - start
        for each in mine
        if each.epoch == epoch
        for ranges in each.rows.values()
        for start, stop in ranges
    )
    told, expected = report.rows + report.dropped, rows * options.epochs - trained
    # Of the epochs before, a process that was killed may not have told its last rows.
    if told > expected or (told < expected and not epoch):
        raise Given(
            f"of {rows} rows in {options.epochs} epochs, {trained} of them trained before the restart, "
            f"run {run} says: {report}"
        )
    if report.restarts > world.generation - 1:
        raise Given(f"generation {world.generation} after {report.restarts} restarts")
