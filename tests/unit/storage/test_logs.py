from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from howdah.storage import logs
from howdah.storage.logs import LogPart, LogTimes, LogWriter, lines, read, size, tail


def everything(path: Path, limit: int = 100_000, start: int = 0) -> list[LogPart]:
    """All parts from ``start`` on, as a reader that goes on at ``next_offset`` sees them."""
    parts: list[LogPart] = []
    while (part := read(path, start, limit)).data:
        parts.append(part)
        start = part.next_offset
    return parts


def kept(path: Path) -> int:
    """Bytes on disk."""
    return sum(p.stat().st_size for p in path.parent.glob(path.name + "*"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "worker-0" / "1.log"


def written(path: Path, count: int, **options: Any) -> LogWriter:
    writer = LogWriter(path, **options)
    for number in range(count):
        writer.write(b"line %d\n" % number)
    return writer


# -- small logs ----------------------------------------------------------------------------------


def test_what_is_written_can_be_read_at_once(path: Path) -> None:
    writer = LogWriter(path)
    writer.write(b"hello\nwor")
    assert read(path) == LogPart(0, b"hello\nwor", 9)
    writer.write(b"ld\n")
    assert read(path, 6) == LogPart(6, b"world\n", 12)
    assert size(path) == writer.offset == 12
    writer.close()
    writer.close()


def test_a_reader_at_the_end_or_past_it_gets_an_empty_part(path: Path) -> None:
    written(path, 1).close()
    assert read(path, 7) == LogPart(7, b"", 7)
    assert read(path, 1000) == LogPart(7, b"", 7)


def test_negative_offsets_count_from_the_end(path: Path) -> None:
    written(path, 1).close()
    assert read(path, -3) == LogPart(4, b" 0\n", 7)
    assert read(path, -1000) == LogPart(0, b"line 0\n", 7)


def test_a_log_that_is_not_there_is_said_to_be_missing(path: Path) -> None:
    for use in (size, read, lambda p: tail(p, 3), lambda p: list(lines(p))):
        with pytest.raises(FileNotFoundError):
            use(path)


def test_an_empty_log_is_empty(path: Path) -> None:
    LogWriter(path).close()
    assert size(path) == 0
    assert read(path) == LogPart(0, b"", 0)
    assert tail(path, 5) == []


def test_only_the_owner_can_read_it(path: Path) -> None:
    before = os.umask(0)
    try:
        written(path, 50, max_bytes=100, segments=2).close()
    finally:
        os.umask(before)
    for file in path.parent.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


# -- limits --------------------------------------------------------------------------------------


def test_head_and_tail_are_kept_and_a_line_tells_what_is_missing(path: Path) -> None:
    writer = written(path, 10_000, max_bytes=4000, segments=4)
    text = b"".join(part.data for part in everything(path)).decode().splitlines()
    assert text[0] == "line 0"
    assert text[-1] == "line 9999"
    (marker,) = [number for number, line in enumerate(text) if line.startswith("[howdah: ")]
    before = int(text[marker - 1].split()[1])
    after = int(text[marker + 1].split()[1])
    missing = sum(len(f"line {n}\n") for n in range(before + 1, after))
    assert text[marker] == (
        f"[howdah: {missing} bytes are missing here, over the log's size limit]"
    )
    assert all(line.startswith("line ") for n, line in enumerate(text) if n != marker)
    assert 2000 <= kept(path) - path.with_suffix(".idx").stat().st_size <= 4000
    assert size(path) == writer.offset == sum(len(f"line {n}\n") for n in range(10_000))


def test_a_reader_inside_the_missing_part_is_told_and_goes_on_after_it(path: Path) -> None:
    written(path, 5000, max_bytes=4000, segments=4).close()
    part = read(path, 10_000)
    assert part.offset == 10_000
    assert b"bytes are missing here" in part.data
    assert read(path, part.next_offset).data.startswith(b"line ")


def test_long_and_endless_lines_are_limited_too(path: Path) -> None:
    writer = LogWriter(path, max_bytes=400_000, segments=4)
    for _ in range(50):
        writer.write(b"x" * 65_536)
    # Segments grow by at most a line's sane length: 100,000 + 65,536 each.
    assert kept(path) < 4 * (100_000 + 65_536) + 1000
    assert size(path) == 50 * 65_536
    head, marker, *_ = everything(path, limit=200_000)
    assert head.data.strip(b"x") == b""
    assert marker.data.startswith(b"\n[howdah: ")


def test_a_block_larger_than_the_whole_log_is_cut_up(path: Path) -> None:
    writer = LogWriter(path, max_bytes=1000, segments=4)
    writer.write(b"".join(b"line %d\n" % n for n in range(10_000)))
    assert tail(path, 1) == ["line 9999"]
    assert read(path, 0, 6).data == b"line 0"
    assert kept(path) < 1100


@pytest.mark.parametrize("segments", [0, 1, 2, 7])
def test_any_number_of_segments_works(path: Path, segments: int) -> None:
    written(path, 2000, max_bytes=1000, segments=segments).close()
    assert tail(path, 1) == ["line 1999"]
    assert len(list(path.parent.glob("1.log*"))) == max(segments, 2)


def test_attempts_whose_numbers_begin_alike_do_not_mix(tmp_path: Path) -> None:
    one, ten = tmp_path / "1.log", tmp_path / "10.log"
    written(ten, 500, max_bytes=400).close()
    written(one, 2).close()
    assert tail(one, 5) == ["line 0", "line 1"]
    assert size(one) == 14


def test_random_writes_read_back_as_a_model_says(path: Path, chance: random.Random) -> None:
    model = bytearray()
    writer = LogWriter(path, max_bytes=3000, segments=3)
    for step in range(400):
        data = bytes(
            chance.choice(b"ab \n" if chance.random() < 0.8 else b"ab")
            for _ in range(chance.choice([0, 1, 5, 50, 500]))
        )
        model += data
        writer.write(data)
        if step % 50 == 49:
            writer.close()
            writer = LogWriter(path, max_bytes=3000, segments=3)
        offset = chance.randrange(len(model) + 10)
        part = read(path, offset, 100)
        if part.data and b"howdah" not in part.data:
            assert part.data == bytes(model[part.offset : part.next_offset])
        assert size(path) == len(model)
    parts = everything(path)
    assert [p.offset for p in parts[1:]] == [p.next_offset for p in parts[:-1]]
    assert parts[0].offset == 0
    assert parts[-1].next_offset == len(model)
    writer.close()


def test_readers_are_not_disturbed_by_a_writer_that_drops_segments(path: Path) -> None:
    writer = LogWriter(path, max_bytes=20_000, segments=4)
    writer.write(b"line 0\n")
    stop = threading.Event()
    problems: list[str] = []

    def follow() -> None:
        offset, rest = 0, b""
        while not stop.is_set():
            part = read(path, offset, 3000)
            # Where segments were dropped before they were read, a line may break off.
            marked = (rest + part.data).replace(b"[howdah: ", b"\n[howdah: ")
            *whole, rest = marked.split(b"\n")
            problems.extend(
                repr(line)
                for line in whole
                if not line.startswith((b"line ", b"[howdah: ")) and line not in b"line "
            )
            offset = part.next_offset

    readers = [threading.Thread(target=follow) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(1, 30_000):
        writer.write(b"line %d\n" % number)
    stop.set()
    for reader in readers:
        reader.join()
    assert problems == []


# -- a full disk ---------------------------------------------------------------------------------


def test_a_full_disk_stalls_nobody_and_the_log_goes_on_when_there_is_room(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = LogWriter(path)
    writer.write(b"before\n")
    real = os.write

    def full(descriptor: int, data: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    writer.write(b"lost\n")
    assert writer.lost == 5
    assert "No space left on device" in writer.problem
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:2]))
    writer.write(b"after\n")
    monkeypatch.undo()
    assert read(path).data == b"before\nafter\n"
    assert writer.offset == size(path)


# -- lines, tail, time ---------------------------------------------------------------------------


def test_lines_come_with_their_offsets(path: Path) -> None:
    writer = LogWriter(path)
    writer.write(b"one\n\nthree\nfour")
    assert list(lines(path)) == [(0, b"one"), (4, b""), (5, b"three"), (11, b"four")]
    assert list(lines(path, 5)) == [(5, b"three"), (11, b"four")]


def test_lines_over_a_missing_part_have_their_true_offsets(path: Path) -> None:
    written(path, 5000, max_bytes=4000, segments=4).close()
    for offset, line in lines(path):
        if not line.startswith(b"[howdah"):
            assert read(path, offset, len(line)).data == line


def test_a_line_of_any_length_comes_in_pieces(path: Path) -> None:
    writer = LogWriter(path, max_bytes=10**8)
    writer.write(b"y" * 1_000_000 + b"\nlast\n")
    found = list(lines(path))
    assert b"".join(line for _, line in found[:-1]).startswith(b"y" * 1_000_000)
    assert max(len(line) for _, line in found) <= 2 * logs.BLOCK_BYTES
    assert found[-1] == (1_000_001, b"last")


def test_the_tail_is_the_last_lines(path: Path) -> None:
    written(path, 30_000).close()
    assert tail(path, 3) == ["line 29997", "line 29998", "line 29999"]
    assert len(tail(path, 20_000)) == 20_000
    assert tail(path, 0) == []
    assert len(tail(path, 10**6)) == 30_000


def test_a_tail_longer_than_what_is_kept_says_what_is_missing(path: Path) -> None:
    written(path, 5000, max_bytes=4000, segments=4).close()
    found = tail(path, 10**6)
    assert found[0] == "line 0"
    assert sum(line.startswith("[howdah: ") for line in found) == 1


def test_what_is_no_text_is_shown_leniently(path: Path) -> None:
    LogWriter(path).write(b"caf\xc3\xa9 \xff\n")
    assert tail(path, 1) == ["café \ufffd"]


def test_a_time_leads_to_its_offset(path: Path) -> None:
    now = 1000.0
    writer = LogWriter(path, clock=lambda: now)
    offsets = []
    for _ in range(100):
        offsets.append(writer.offset)
        writer.write(b"line\n")
        now += 0.5
    writer.close()

    def offset_at(moment: float, path: Path = path) -> int:
        return LogTimes(path).offset_at(moment)

    assert offset_at(0.0) == 0
    assert offset_at(1020.0) == offsets[40]
    assert offset_at(1020.4) == offsets[40]
    assert offset_at(9999.0) == offsets[99]
    assert offset_at(1000.0, path.with_name("2.log")) == 0


def test_the_parts_of_a_log_have_times_as_it_grows(path: Path) -> None:
    now = 1000.0
    writer = LogWriter(path, clock=lambda: now)
    times = LogTimes(path)
    assert times.between(0, 100) == ()
    for now in (1000.0, 1000.05, 1000.1, 1003.0):  # noqa: B007 (the writer's clock)
        writer.write(b"line\n")
    assert times.between(0, 5) == ((0, 1000.0),)
    assert times.between(7, 20) == ((0, 1000.0), (10, 1000.1), (15, 1003.0))
    index = path.with_suffix(".idx")
    index.write_bytes(index.read_bytes() + b"1004.0 1\n\x00\n1005.000 20\n1006.0")
    assert times.between(16, 30) == ((15, 1003.0), (20, 1005.0))
    writer.close()


def test_the_index_grows_slower_in_a_long_log(path: Path) -> None:
    now = 0.0
    writer = LogWriter(path, clock=lambda: now)
    for _ in range(60_000):
        writer.write(b"x\n")
        now += 0.5
    writer.close()
    index = path.with_suffix(".idx")
    assert len(index.read_bytes().splitlines()) < 40_000


# -- cost ----------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_64_kib_blocks_are_written_at_more_than_50_mb_a_second(path: Path) -> None:
    """The best of some runs counts."""
    writer = LogWriter(path, max_bytes=64 * 1024 * 1024)
    block = (b"x" * 99 + b"\n") * 655
    best = 0.0
    for _ in range(5):
        began = time.thread_time()
        for _ in range(2000):
            writer.write(block)
        best = max(best, 2000 * len(block) / 1e6 / (time.thread_time() - began))
        if best > 50:
            break
    assert best > 50
