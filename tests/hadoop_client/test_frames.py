"""Bytes in and out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah.hadoop import frames
from howdah.hadoop.errors import AccessControl, ApplicationNotFound, ProtocolError, remote_error
from howdah.hadoop.protos import common


@given(st.lists(st.binary(max_size=50), max_size=5), st.integers(1, 20))
def test_frames_come_out_however_the_bytes_were_cut(bodies: list[bytes], step: int) -> None:
    data = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    reader = frames.FrameReader(1000)
    found: list[bytes] = []
    for at in range(0, len(data), step):
        found += reader.feed(data[at : at + step])
    assert found == bodies
    assert reader.pending == 0


@given(st.integers(0, 2**32 - 1))
def test_lengths_survive(value: int) -> None:
    data = frames.varint(value)
    assert frames.read_varint(b"x" + data, 1) == (value, 1 + len(data))
    with pytest.raises(ProtocolError):
        frames.read_varint(data[:-1], 0)


def test_a_length_without_end_is_refused() -> None:
    with pytest.raises(ProtocolError, match="32 bits"):
        frames.read_varint(b"\xff" * 6, 0)


def test_negative_call_ids_are_read() -> None:
    header = common.RpcResponseHeaderProto(callId=-33 & 0xFFFFFFFF, status=0)
    assert frames.parse_response(frames.frame(header)[4:]).call_id == -33


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ("a.B: text\n\tat x.y(Z.java:1)\n\tat u", "text"),
        ("a.B", ""),
        ("a.B: two\nlines", "two\nlines"),
        ("no class before", "no class before"),
        ("", ""),
    ],
)
def test_the_message_is_taken_out_of_class_name_and_stack_trace(details: str, message: str) -> None:
    assert remote_error("a.B", details).message == message


def test_an_exception_inside_another_decides_the_class() -> None:
    text = "java.security.AccessControlException: root may not"
    error = remote_error("org.apache.hadoop.yarn.exceptions.YarnException", text)
    assert isinstance(error, AccessControl)
    assert error.message == text
    text = "java.io.IOException: org.apache.hadoop.security.AccessControlException"
    error = remote_error("org.apache.hadoop.yarn.exceptions.YarnException", text)
    assert isinstance(error, AccessControl)


def test_errors_survive_pickling() -> None:
    import pickle

    name = "org.apache.hadoop.yarn.exceptions.ApplicationNotFoundException"
    error = pickle.loads(pickle.dumps(remote_error(name, "gone")))
    assert isinstance(error, ApplicationNotFound)
    assert (error.class_name, error.message) == (name, "gone")
