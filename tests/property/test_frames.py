"""Whatever bytes come, in whatever pieces: messages, `FrameError`, and bounded memory."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah.core.messages import Exit, Held, HeldPhase, Task, TaskExited, TaskStarted
from howdah.wire.frames import HEADER_BYTES, FrameDecoder, FrameError, encode
from howdah.wire.messages import (
    AgentHello,
    FromAgent,
    Heartbeat,
    LogChunk,
    Message,
    Sample,
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


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


@given(st.lists(messages, max_size=8), st.lists(st.integers(0, 10**6), max_size=20))
def test_messages_survive_any_cutting(sent: list[Message], cuts: list[int]) -> None:
    data = b"".join(map(encode, sent))
    decoder = FrameDecoder[Message](FromAgent)
    assert [m for part in pieces(data, cuts) for m in decoder.feed(part)] == sent


@given(st.integers(0, 2**32 - 1), st.integers(0, 50))
def test_a_lying_length_is_refused_or_waited_for(length: int, sent: int) -> None:
    decoder = FrameDecoder[Message](FromAgent, LIMIT)
    data = struct.pack(">I", length) + bytes(sent)
    if length > LIMIT:
        with pytest.raises(FrameError):
            decoder.feed(data)
        assert decoder.pending == 0
    elif length > sent:
        assert decoder.feed(data) == []
        assert decoder.pending == HEADER_BYTES + sent
