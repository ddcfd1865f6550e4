"""Tables are whole in pipes and fit the window on a terminal."""

from __future__ import annotations

from howdah.cli.display.formatting import (
    Paint,
    TableColumn,
    display_width,
    duration,
    mebibytes,
    render,
    shortened,
)

COLUMNS = (
    TableColumn("NAME"),
    TableColumn("N", right=True),
    TableColumn("EMPTY"),
    TableColumn("TEXT", gives=True),
)
ROWS = [("a", "1", "", "short"), ("bbb", "22", "-", "a text that is rather long")]


def test_in_a_pipe_every_cell_is_whole() -> None:
    assert render(COLUMNS, ROWS, Paint(False)) == [
        "NAME   N  TEXT",
        "a      1  short",
        "bbb   22  a text that is rather long",
    ]


def test_in_a_narrow_window_the_giving_column_gives() -> None:
    lines = render(COLUMNS, ROWS, Paint(False), width=24, indent="  ")
    assert lines == ["  NAME   N  TEXT", "  a      1  short", "  bbb   22  a text that…"]
    assert all(display_width(line) <= 24 for line in lines)


def test_colours_do_not_move_columns() -> None:
    paint = Paint(True)
    rows = [(paint("a", "red"), "1", "", "x"), ("bb", "2", "", "y")]
    assert [display_width(x) for x in render(COLUMNS, rows, paint)] == [13, 10, 10]


def test_wide_characters_take_two_columns() -> None:
    assert display_width("学习") == 4
    assert display_width("e\u0301") == 1
    assert shortened("学习学习", 5) == "学习…"


def test_durations_and_amounts() -> None:
    assert [duration(s) for s in (None, 0.04, 59.96, 65, 7380, 360000)] == [
        "-",
        "0.0s",
        "60.0s",
        "1m 05s",
        "2h 03m",
        "4d 4h",
    ]
    assert [mebibytes(m) for m in (None, 0.04, 12.3, 1536)] == ["-", "41K", "12M", "1.5G"]
