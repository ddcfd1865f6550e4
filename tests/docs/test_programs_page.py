"""The table of other people's programs is what the tests say."""

from __future__ import annotations

from docs.generate_programs import PAGE, TESTS, page


def test_the_table_of_programs_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run docs/generate_programs.py and commit the result"


def test_every_file_of_programs_has_a_row() -> None:
    written = page()
    assert [path.name for path in TESTS.glob("test_*.py") if path.name not in written] == []
