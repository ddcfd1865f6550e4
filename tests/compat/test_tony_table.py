"""Every key and option of TonY is in the table, and the table is what the converter does."""

from __future__ import annotations

import re
from typing import Any

import pytest

from howdah.cli.tony_options import NAMES
from howdah.compat.tony.conversion import About
from howdah.compat.tony.convert import convert
from howdah.compat.tony.options import Arguments
from howdah.compat.tony.settings import SettingSource
from howdah.compat.tony.table import OPTIONS, ROWS, RowKind, TonyRow, row_of
from howdah.spec.checks.shape import check
from howdah.spec.problems import JobFileError, Problems
from tests.compat import tony_keys
from tests.compat.given import converted, document, settings
from tests.compat.tony_keys import ALONE, BESIDE, CONTEXT, KEYS


def test_every_key_of_tonys_has_a_row_and_every_row_a_key() -> None:
    for key in KEYS:
        found = row_of(key)
        assert found is not None and (found[0].words or found[0].to), key
    used = {row_of(key)[0].key for key in KEYS}  # type: ignore[index]
    assert {row.key for row in ROWS} == used


@pytest.mark.parametrize("key", KEYS)
def test_a_key_does_what_its_row_says(key: str) -> None:
    row = row_of(key)[0]  # type: ignore[index]
    beside = {} if key in ALONE else CONTEXT
    beside = {**beside, **BESIDE.get(key, {})}
    without = {name: text for name, text in beside.items() if name != key}
    given = {**without, key: KEYS[key]}
    if row.kind is RowKind.CHECKED and "allocation-tags" not in key:
        with pytest.raises(JobFileError, match=re.escape(key)):
            converted(given)
        return
    before, after = converted(without), converted(given)
    said = [note for note in after.notes if note.key == key]
    if row.kind is RowKind.NOT_NEEDED:
        assert after.document == before.document
        assert [note.about for note in said] == [About.NOT_NEEDED]
        assert said[0].text == f"not needed: {row.words}"
    else:
        assert after.document != before.document
        assert not [note for note in said if note.about is About.UNKNOWN]


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.kind is RowKind.MAPPED], ids=lambda row: row.key
)
def test_a_row_names_a_place_in_the_job_file(row: TonyRow) -> None:
    key = next(key for key in KEYS if row_of(key)[0] is row)  # type: ignore[index]
    beside = {} if key in ALONE else CONTEXT
    made = document({**beside, **BESIDE.get(key, {}), key: KEYS[key]})
    for place in row.to.split(", "):
        path = place.partition(" = ")[0].split(".")
        assert _has(made, path), f"{place} is not in {made}"
    problems = Problems()
    check(made, problems)
    problems.raise_any()


def _has(table: Any, path: list[str]) -> bool:
    if not path:
        return True
    if not isinstance(table, dict):
        return False
    first, *rest = path
    if first == "<type>":
        return any(_has(value, rest) for value in table.values())
    return first in table and _has(table[first], rest)


def test_the_site_files_keys_for_the_portal_are_not_spoken_of_in_every_job() -> None:
    site = settings({"tony.history.location": "/x", "tony.nonsense": "1"}, SettingSource.SITE)
    assert [note.key for note in convert(site, Arguments(executes="x")).notes] == ["tony.nonsense"]


def test_every_option_of_tonys_has_a_row() -> None:
    assert [option.name for option in OPTIONS] and {o.name for o in OPTIONS} == {*tony_keys.OPTIONS}


def test_the_command_line_has_every_option() -> None:
    assert {*NAMES} == {*Arguments.__struct_fields__}
    assert {*NAMES, "help"} == {option.name for option in OPTIONS}
    repeated = {option.name for option in OPTIONS if option.repeated}
    plain = Arguments()
    assert {name for name in NAMES if getattr(plain, name) == ()} == repeated
