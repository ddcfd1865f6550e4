"""What fuzzing has found, each as a test of its own."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from howdah.packing.archives import PackingError
from howdah.packing.ignoring import rules
from howdah.spark.errors import FeedError
from howdah.spark.feed.ipc import CONTINUATION, Head, Kind, read_head, read_schema
from howdah.storage import journal, metrics
from tests.fuzz.targets import TARGETS


def test_a_journal_key_that_is_no_text_is_damage(tmp_path: Path) -> None:
    """A key with a byte that is no UTF-8 raised what nobody expects of a journal."""
    body = b'{"is":"event","seq":1,"now":1.0,"\x80":1}'
    line = b'{"crc":"%08x",%b\n' % (zlib.crc32(body), body[1:])
    (tmp_path / "events-0001.jsonl").write_bytes(line + line)
    with pytest.raises(journal.JournalError, match="line 1"):
        list(journal.read(tmp_path))


def test_a_line_of_metrics_that_is_no_text_is_passed_over(tmp_path: Path) -> None:
    """The same in a line of measurements, which are read past damage."""
    (tmp_path / "metrics-0001.jsonl").write_bytes(b'{"\x80":1}\n' + b"[" * 100_000 + b"\n")
    assert list(metrics.read(tmp_path)) == []


@pytest.mark.parametrize("line", ["x[a\udc80-z]", "*" * 100 + "/x[a-z]?", "*a" * 100])
def test_an_ignore_pattern_is_matched_at_once_or_refused(tmp_path: Path, line: str) -> None:
    """A hundred stars took for ever to match, and a range of strange letters crashed."""
    (tmp_path / ".gitignore").write_text(line + "\n", errors="surrogateescape")
    try:
        rules(tmp_path).leave_out(tmp_path / ("a" * 200), is_folder=False)
    except PackingError as error:
        assert ".gitignore" in str(error)


def test_a_schema_that_is_none_is_a_feeders_error() -> None:
    """A schema of 2**60 bytes was made room for; one that Arrow refuses ended the thread."""

    def nothing(view: memoryview) -> None:
        view[:] = bytes(len(view))

    for head in (Head(Kind.SCHEMA, b"x", 1 << 60), Head(Kind.SCHEMA, b"\xff" * 64, 0)):
        with pytest.raises(FeedError):
            read_schema(head, nothing)


def test_a_head_that_points_outside_is_a_feeders_error() -> None:
    good = TARGETS["feed"].seeds[0]
    data = bytearray(good)
    data[21] = 0x7F
    rest = memoryview(data)

    def read_into(view: memoryview) -> None:
        nonlocal rest
        view[:], rest = rest[: len(view)], rest[len(view) :]

    assert struct.unpack_from("<I", data)[0] == CONTINUATION
    with pytest.raises(FeedError):
        read_head(read_into)
