"""Last lines, for people."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from howdah.agent.forwarder import LINE_LENGTH, LINES, Tail, last_lines


def test_the_last_lines_are_kept() -> None:
    tail = Tail()
    for number in range(1000):
        tail.put(b"line %d\n" % number)
    assert tail.lines() == tuple(f"line {n}" for n in range(1000 - LINES, 1000))


def test_one_large_piece_is_as_good_as_many_small_ones() -> None:
    data = b"".join(b"%d %s\n" % (n, b"x" * 50) for n in range(100_000))
    whole, parts = Tail(), Tail()
    whole.put(data)
    for start in range(0, len(data), 777):
        parts.put(data[start : start + 777])
    assert whole.lines() == parts.lines()
    assert whole.lines()[-1].startswith("99999 ")


def test_long_lines_are_cut_and_odd_bytes_replaced() -> None:
    (cut,) = last_lines(b"x" * 5000)
    assert len(cut) == LINE_LENGTH
    assert cut.endswith("…")
    assert last_lines(b"caf\xe9\n") == ("caf�",)


def test_what_would_move_a_terminal_is_left_out() -> None:
    assert last_lines(b"\x1b[31mred\x1b[0m \x1b]0;title\x07done\x00\x08\n") == ("red done",)


def test_of_a_progress_bar_the_last_state_counts() -> None:
    assert last_lines(b"\r 10%\r 50%\r100%\n\r\n") == ("100%",)


@given(st.lists(st.binary(max_size=200)))
def test_any_bytes_give_few_short_harmless_lines(pieces: list[bytes]) -> None:
    tail = Tail()
    for piece in pieces:
        tail.put(piece)
    lines = tail.lines()
    assert len(lines) <= LINES
    assert all(len(line) <= LINE_LENGTH for line in lines)
    assert all(c == "\t" or c.isprintable() or ord(c) >= 0xA0 for line in lines for c in line)
