"""What fuzzing has found, each as a test of its own."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from pathlib import Path

import pytest

from howdah.hadoop.aggregated import javaserial, tfile
from howdah.hadoop.aggregated.source import PIECE_BYTES, Data, LogFormatError
from howdah.hadoop.errors import ProtocolError
from howdah.hadoop.protos import common
from howdah.packing.archives import PackingError
from howdah.packing.ignore_rules import rules
from howdah.packing.python import elf
from howdah.spark.errors import FeedError
from howdah.spark.feed.arrow.ipc import CONTINUATION, Head, IpcKind, read_head, read_schema
from howdah.spark.tfrecord.codec.columns import RecordType
from howdah.spark.tfrecord.codec.framing import blocks, frame
from howdah.spark.tfrecord.errors import CorruptRecord
from howdah.spark.tfrecord.schemas import infer
from howdah.storage import journal, metrics
from tests.fuzz.targets import TARGETS


def test_a_journal_key_that_is_no_text_is_damage(tmp_path: Path) -> None:
    """A key with a byte that is no UTF-8 raised what nobody expects of a journal."""
    body = b'{"is":"event","seq":1,"now":1.0,"\x80":1}'
    line = b'{"crc":"%08x",%b\n' % (zlib.crc32(body), body[1:])
    (tmp_path / "events-0001.jsonl").write_bytes(line + line)
    with pytest.raises(journal.JournalError, match="line 1"):
        list(journal.read(tmp_path))


def test_a_journal_event_whose_type_is_no_name_is_damage(tmp_path: Path) -> None:
    """It was looked up among the names of the last release, where only a text can be."""
    body = b'{"is":"event","seq":1,"now":1.0,"event":{"type":["x"]}}'
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

    for head in (Head(IpcKind.SCHEMA, b"x", 1 << 60), Head(IpcKind.SCHEMA, b"\xff" * 64, 0)):
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


def test_a_serialised_class_that_is_its_own_ancestor_is_refused() -> None:
    """Its ancestors were listed for ever, until the memory was full."""
    data = b"\xac\xed\x00\x05sr\x00\x01A" + bytes(8) + b"\x02\0\x01I\0\x01xxq\0~\0\0"
    with pytest.raises(LogFormatError, match="ancestors"):
        javaserial.loads(data)


def test_an_aggregated_log_of_zeros_is_unpacked_in_pieces() -> None:
    """A megabyte of a compressed log was unpacked at once, to a thousand times as much."""
    size = 40 << 20
    packed = zlib.compress(bytes(size), 9)

    class Files:
        def files(self, folder: str) -> dict[str, int]:
            return {}

        def read(self, path: str, offset: int, length: int) -> bytes:
            return packed[offset : offset + length]

    data = Data(Files(), "a", 0, len(packed), "gz")
    pieces = [len(piece) for piece in data.pieces(size)]
    assert sum(pieces) == size
    assert max(pieces) <= PIECE_BYTES
    assert data.at_end()


def test_a_log_whose_length_has_thousands_of_digits_is_refused() -> None:
    """Python refused to convert it, in words of its own that nothing expected."""
    content = b"\0\x01a" + struct.pack(">H", 5000) + b"9" * 5000

    class Files:
        def files(self, folder: str) -> dict[str, int]:
            return {}

        def read(self, path: str, offset: int, length: int) -> bytes:
            return content[offset : offset + length]

    value = tfile._Value(Data(Files(), "a", 0, len(content)), len(content), True)
    with pytest.raises(LogFormatError, match="the length of the log 'a'"):
        list(tfile._entries(value))


def test_a_feature_whose_name_is_no_text_is_a_corrupt_record() -> None:
    """A schema was inferred from records that protobuf itself refuses."""
    record = b"\x0a\x09\x0a\x07\x0a\x01\xb0\x12\x02\x1a\x00"
    with pytest.raises(CorruptRecord, match="record 0"):
        infer(blocks(io.BytesIO(frame([record]))), RecordType.EXAMPLE)


@pytest.mark.parametrize("name", ["soname", "run_path", "without_symbols"])
def test_a_damaged_library_is_left_as_it_is(name: str) -> None:
    """Half a library in an environment ended `howdah pack` with a traceback."""
    good = TARGETS["elf"].seeds[0]
    for size in range(6, len(good)):
        assert getattr(elf, name)(good[:size]) in (None, good[:size], getattr(elf, name)(good))
        with contextlib.suppress(elf.NotChangeable):
            elf.with_run_path(good[:size], "x")


def test_an_answer_of_hadoop_with_a_text_that_is_none_is_refused() -> None:
    """Protobuf hands out bytes where a text is no UTF-8; what looked into it raised a TypeError."""
    answers = TARGETS["hadoop-answers"]
    report = next(seed for seed in answers.seeds if b"exitCode" in seed)
    with pytest.raises(ProtocolError, match="GetApplicationReportResponseProto"):
        answers.decode(report.replace(b"exitCode", b"exit\xff\xff\xff\xff"))


def test_a_token_that_is_renewed_until_never_is_refused() -> None:
    """A time beyond the year 9999 ended the renewal of every token."""
    answers = TARGETS["hadoop-answers"]
    renewed = common.RenewDelegationTokenResponseProto(newExpiryTime=1 << 62)
    number = next(seed[0] for seed in answers.seeds if len(seed) == 8)
    with pytest.raises(ProtocolError, match="which is no time"):
        answers.decode(bytes([number]) + renewed.SerializeToString())
