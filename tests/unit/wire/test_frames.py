from __future__ import annotations

import struct

import msgspec
import pytest

from howdah.core.messages import Exit, Held, HeldPhase, Task, TaskExited
from howdah.wire.frames import FrameDecoder, FrameError, encode
from howdah.wire.messages import (
    MAX_FRAME,
    AgentHello,
    FromAgent,
    Heartbeat,
    LogChunk,
    Message,
    Sample,
    ToAgent,
    Welcome,
)

HELLO = AgentHello(
    job_id="j",
    container_id="c",
    host="h",
    pid=1,
    held=Held(task=Task("worker", 1), attempt=2, generation=3, phase=HeldPhase.EXITED),
)
EXITED = TaskExited(task=Task("worker", 1), attempt=2, exit=Exit(code=42, tail=("a", "b")))
BEAT = Heartbeat(attempt=1, sample=Sample(time=1.5, values={"loss": 0.25}), step=3.0)


def body_of(document: object) -> bytes:
    body = msgspec.msgpack.encode(document)
    return struct.pack(">I", len(body)) + body


def test_bytes_given_as_a_view_of_a_buffer_that_changes_later_are_kept_apart() -> None:
    buffer = bytearray(encode(HELLO)[:-1])
    decoder = FrameDecoder[Message](FromAgent)
    assert decoder.feed(memoryview(buffer)) == []
    last = encode(HELLO)[-1:]
    buffer[:] = bytes(len(buffer))
    assert decoder.feed(last) == [HELLO]


def test_a_frame_of_the_greatest_size_passes_and_one_byte_more_does_not() -> None:
    empty = LogChunk(task=Task("w", 0), attempt=1, offset=0, data=b"")
    room = MAX_FRAME - (len(encode(empty)) - 4) - 3  # a long byte string's header is 5, not 2
    largest = LogChunk(task=Task("w", 0), attempt=1, offset=0, data=bytes(room))
    frame = encode(largest)
    assert len(frame) == MAX_FRAME + 4
    assert FrameDecoder[Message](FromAgent).feed(frame) == [largest]
    with pytest.raises(FrameError, match="LogChunk message of 4194305 bytes exceeds"):
        encode(LogChunk(task=Task("w", 0), attempt=1, offset=0, data=bytes(room + 1)))


def test_an_oversized_frame_is_refused_by_its_announcement_alone() -> None:
    decoder = FrameDecoder[Message](FromAgent)
    with pytest.raises(FrameError, match="announces 4294967295 bytes"):
        decoder.feed(b"\xff\xff\xff\xff")


def test_after_an_error_a_decoder_stays_failed_and_holds_nothing() -> None:
    decoder = FrameDecoder[Message](FromAgent)
    with pytest.raises(FrameError):
        decoder.feed(encode(BEAT) + b"\xff\xff\xff\xff")
    assert decoder.pending == 0
    with pytest.raises(FrameError, match="announces"):
        decoder.feed(encode(BEAT))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",  # an array of 4 billion items
        b"\xdb\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x91" * 100_000,
        msgspec.msgpack.encode({"type": "NoSuchMessage"}),
        msgspec.msgpack.encode({"type": "Heartbeat", "attempt": "x"}),
        msgspec.msgpack.encode({"attempt": 1}),
        msgspec.msgpack.encode([1, 2]),
        msgspec.msgpack.encode(None),
        msgspec.msgpack.encode({"type": "Heartbeat"}) + b"x",
    ],
)
def test_what_is_no_message_is_refused_in_words(body: bytes) -> None:
    with pytest.raises(FrameError, match="not a message expected here"):
        FrameDecoder[Message](FromAgent).feed(struct.pack(">I", len(body)) + body)


@pytest.mark.parametrize(
    "message",
    [AgentHello(job_id="\udcff", container_id="", host="", pid=1), Heartbeat(attempt=2**64)],
)
def test_what_msgpack_cannot_hold_is_refused_in_words(message: Message) -> None:
    with pytest.raises(FrameError, match="can't be put into a frame"):
        encode(message)


def test_messages_of_the_other_direction_are_refused() -> None:
    with pytest.raises(FrameError):
        FrameDecoder[Message](FromAgent).feed(encode(Welcome()))
    assert FrameDecoder[Message](ToAgent).feed(encode(Welcome())) == [Welcome()]


def test_a_newer_peers_unknown_fields_are_ignored() -> None:
    frame = body_of({"type": "Heartbeat", "attempt": 4, "colour": "red", "more": {"x": [1]}})
    assert FrameDecoder[Message](FromAgent).feed(frame) == [Heartbeat(attempt=4)]


def test_an_older_peers_missing_fields_have_defaults() -> None:
    assert FrameDecoder[Message](ToAgent).feed(body_of({"type": "Welcome"})) == [Welcome()]
