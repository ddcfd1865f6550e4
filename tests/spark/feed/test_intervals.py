"""Sets of offsets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from howdah.spark.feed.intervals import Offsets, count, cut, first, merged, without

ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=8)


def members(intervals: list[tuple[int, int]]) -> set[int]:
    return {offset for start, stop in intervals for offset in range(start, stop)}


@given(ranges)
def test_merged_ranges_are_sorted_and_do_not_touch(given_ranges: list[tuple[int, int]]) -> None:
    found = merged(given_ranges)
    assert members(found) == members(given_ranges)
    assert all(left[1] < right[0] for left, right in pairwise(found))
    assert count(found) == len(members(found))


@given(ranges, ranges)
def test_without_is_the_difference_of_sets(
    some: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    assert members(without(merged(some), merged(others))) == members(some) - members(others)


@given(ranges, st.integers(0, 80))
def test_first_keeps_the_smallest_offsets(some: list[tuple[int, int]], rows: int) -> None:
    assert sorted(members(first(merged(some), rows))) == sorted(members(some))[:rows]


@given(st.integers(0, 50), ranges, st.lists(st.integers(0, 20), max_size=6))
def test_offsets_leave_out_what_is_skipped(
    start: int, skip: list[tuple[int, int]], takes: list[int]
) -> None:
    offsets = Offsets(start, merged(skip))
    got = [offset for rows in takes for a, b in offsets.take(rows) for offset in range(a, b)]
    rest = (offset for offset in range(start, 1000) if offset not in members(skip))
    assert got == [next(rest) for _ in range(sum(takes))]


def test_cut_says_which_rows_have_the_offsets() -> None:
    assert cut(10, 20, [(0, 5), (8, 12), (15, 16), (19, 30)]) == [(0, 2), (5, 6), (9, 10)]
