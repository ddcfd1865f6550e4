"""Quantities as users write them."""

from __future__ import annotations

import pytest

from howdah.spec import units


@pytest.mark.parametrize(
    ("text", "expected"),
    [("off", None), ("500ms", 0.5), ("10s", 10), ("1.5m", 90), ("2h", 7200), ("1d", 86400)],
)
def test_a_time_is_seconds_and_off_is_no_limit(text: str, expected: float | None) -> None:
    assert units.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "10", "10 s", "s", "-1s", "1e3s", "10s\n", "١s", "1h30m"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        units.seconds(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1k", 1), ("512m", 512), ("2g", 2048), ("1.5G", 1536), ("1GiB", 1024), ("1t", 1 << 20)],
)
def test_memory_is_mebibytes_rounded_up(text: str, expected: int) -> None:
    assert units.mebibytes(text) == expected


def test_memory_is_also_bytes() -> None:
    assert units.octets("1.5k") == 1536


@pytest.mark.parametrize("text", ["", "2", "g", "2 g", "-2g", "2x", "2g\n", "2e3m"])
def test_what_is_no_memory_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an amount of memory"):
        units.octets(text)


@pytest.mark.parametrize("text", ["9" * 400 + "t", "9" * 400 + "d"])
def test_absurd_quantities_are_refused(text: str) -> None:
    read = units.octets if text.endswith("t") else units.seconds
    with pytest.raises(ValueError, match=r"is (more memory|longer) than"):
        read(text)


@pytest.mark.parametrize(
    ("count", "expected"), [(1, (1, 1)), (8, (8, 8)), ("4", (4, 4)), ("2..8", (2, 8))]
)
def test_a_count_is_its_least_and_greatest(count: int | str, expected: tuple[int, int]) -> None:
    assert units.instance_range(count) == expected


@pytest.mark.parametrize("count", [0, -1, "0..2", "3..2", "", "..", "a", "1..9999999", "9" * 99])
def test_a_count_below_one_or_backwards_is_refused(count: int | str) -> None:
    with pytest.raises(ValueError):
        units.instance_range(count)


def test_a_range_of_ports_has_a_first_and_a_last() -> None:
    assert units.port_range("20000-29999") == (20000, 29999)


@pytest.mark.parametrize("text", ["20000", "1-2000", "60000-70000", "3000-2000", "a-b", ""])
def test_a_range_no_user_may_have_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        units.port_range(text)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (10, "10s"),
        ("10 s", "10s"),
        ("5 minutes", "5m"),
        ("1h30m", "90m"),
        ("1h 1s", "3601s"),
        ("1.5 hours", "1.5h"),
        ("1m1ms", "60001ms"),
        ("none", "off"),
        (True, None),
        ("soon", None),
        ("", None),
        ([1], None),
    ],
)
def test_a_wrong_time_is_guessed(written: object, meant: str | None) -> None:
    assert units.likely_duration(written) == meant
    assert meant is None or units.seconds(meant) != 0


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (2, "2g"),
        (512, "512m"),
        (1 << 30, "1024m"),
        ("2 GB", "2g"),
        ("2 gigs", "2g"),
        ("4096", "4096m"),
        (True, None),
        ("much", None),
    ],
)
def test_a_wrong_amount_of_memory_is_guessed(written: object, meant: str | None) -> None:
    assert units.likely_memory(written) == meant
    assert meant is None or units.octets(meant) > 0
