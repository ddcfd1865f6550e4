"""Whatever bytes come, in whatever pieces: messages, `FrameError`, and bounded memory."""

from __future__ import annotations

import struct
from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from howdah.core.messages import Exit, Held, HeldPhase, Task, TaskExited, TaskStarted
from howdah.wire.frames import HEADER_BYTES, FrameDecoder, FrameError, encode
from howdah.wire.messages import (
    AgentHello,
    AskStacks,
    ClientHello,
    FromAgent,
    FromClient,
    Heartbeat,
    LogChunk,
    Message,
    Sample,
    ToAgent,
    ToClient,
    Watch,
)

LIMIT = 2000

tasks = st.builds(Task, st.text(max_size=10), st.integers(0, 10_000))
numbers = st.floats(allow_nan=False)
exits = st.builds(
    Exit,
    code=st.none() | st.integers(0, 255),
    detail=st.text(max_size=50),
    tail=st.lists(st.text(max_size=50), max_size=4).map(tuple),
)
helds = st.builds(
    Held,
    task=tasks,
    attempt=st.integers(0, 100),
    generation=st.integers(0, 100),
    phase=st.sampled_from(HeldPhase),
    ports=st.lists(st.integers(0, 65535), max_size=5).map(tuple),
    exit=st.none() | exits,
)
samples = st.builds(
    Sample, time=numbers, values=st.dictionaries(st.text(max_size=8), numbers, max_size=5)
)
messages = st.one_of(
    st.builds(
        AgentHello, job_id=st.text(max_size=20), held=st.none() | helds, pid=st.integers(0, 2**31)
    ),
    st.builds(Heartbeat, attempt=st.integers(0, 9), sample=st.none() | samples),
    st.builds(TaskExited, task=tasks, attempt=st.integers(0, 9), exit=exits),
    st.builds(
        TaskStarted,
        task=tasks,
        attempt=st.integers(0, 9),
        pids=st.lists(st.integers(0, 2**40), max_size=9).map(tuple),
    ),
    st.builds(
        LogChunk,
        task=tasks,
        attempt=st.integers(0, 9),
        offset=st.integers(0, 2**62),
        data=st.binary(max_size=900),
    ),
)

documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)
tags = st.sampled_from(
    [
        kind.__name__
        for kind in (AgentHello, AskStacks, Heartbeat, ClientHello, TaskExited, LogChunk, Watch)
    ]
)
near_messages = st.builds(
    lambda tag, fields: {**fields, "type": tag},
    tags,
    st.dictionaries(
        st.sampled_from(["task", "attempt", "exit", "held", "sample", "data", "job_id", "tasks"]),
        documents,
        max_size=6,
    ),
)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


def feed_all(decoder: FrameDecoder[Message], parts: list[bytes]) -> list[Message]:
    """What comes out until an error, with the promise about memory checked after each piece."""
    found: list[Message] = []
    for part in parts:
        try:
            found += decoder.feed(part)
        except FrameError as error:
            assert str(error)
            assert decoder.pending == 0
            break
        assert decoder.pending < HEADER_BYTES + LIMIT
    return found


@given(st.lists(messages, max_size=8), st.lists(st.integers(0, 10**6), max_size=20))
def test_messages_survive_any_cutting(sent: list[Message], cuts: list[int]) -> None:
    data = b"".join(map(encode, sent))
    decoder = FrameDecoder[Message](FromAgent)
    assert [m for part in pieces(data, cuts) for m in decoder.feed(part)] == sent


@given(st.binary(max_size=4 * LIMIT), st.lists(st.integers(0, 10**6), max_size=10))
def test_any_bytes_give_messages_or_a_frame_error(data: bytes, cuts: list[int]) -> None:
    for types in (FromAgent, FromClient, ToAgent, ToClient):
        feed_all(FrameDecoder[Message](types, LIMIT), pieces(data, cuts))


@given(st.binary(max_size=LIMIT - 1) | near_messages.map(msgspec.msgpack.encode))
def test_any_body_gives_a_message_or_a_frame_error(body: bytes) -> None:
    frame = struct.pack(">I", len(body)) + body
    for types in (FromAgent, FromClient, ToAgent, ToClient):
        feed_all(FrameDecoder[Message](types, max(LIMIT, len(body))), [frame])


@given(
    st.lists(messages, min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=4),
    st.lists(st.integers(0, 10**6), max_size=5),
)
def test_damaged_messages_never_bring_down_the_decoder(
    sent: list[Message], damage: list[tuple[int, int]], cuts: list[int]
) -> None:
    data = bytearray(b"".join(map(encode, sent)))
    first_touched = len(data)
    for place, change in damage:
        place %= len(data)
        data[place] ^= change
        first_touched = min(first_touched, place)
    parts = pieces(bytes(data), cuts)
    found = feed_all(FrameDecoder[Message](FromAgent, LIMIT), parts)
    # Frames before the damage come out as they were, unless they share a piece with it.
    whole = 0
    end = 0
    for message in sent:
        end += len(encode(message))
        whole += end <= first_touched
    if len(parts) == len(data):
        assert found[:whole] == sent[:whole]


@given(st.integers(0, 2**32 - 1), st.integers(0, 50))
def test_a_lying_length_is_refused_or_waited_for(length: int, sent: int) -> None:
    decoder = FrameDecoder[Message](FromAgent, LIMIT)
    data = struct.pack(">I", length) + bytes(sent)
    if length > LIMIT:
        assert feed_all(decoder, [data]) == []
    elif length > sent:
        assert decoder.feed(data) == []
        assert decoder.pending == HEADER_BYTES + sent
