"""TLS with many records a system call."""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from howdah.wire.bulk_tls import BulkTls
from howdah.wire.sockets import NoAnswer, dial_bulk_tls
from howdah.wire.tls import (
    CA_FILE,
    PeerRole,
    certificate_name,
    client_context,
    peer_identity,
    server_context,
)
from tests.unit.wire.rig import JOB, OTHER_JOB, secrets_of

NAME = certificate_name(PeerRole.AGENT, JOB)


class Counting(socket.socket):
    """Knows how often it was called."""

    calls = 0

    def send(self, *given: Any) -> int:
        self.calls += 1
        return super().send(*given)

    def recv_into(self, *given: Any) -> int:
        self.calls += 1
        return super().recv_into(*given)


@pytest.fixture
def ends() -> Iterator[tuple[BulkTls, BulkTls]]:
    """Of the feeder, and of the trainer, that know each other and do not block."""
    near, far = (Counting(fileno=each.detach()) for each in socket.socketpair())
    feeder = BulkTls(near, client_context(secrets_of(JOB), PeerRole.FEEDER), server_hostname=NAME)
    trainer = BulkTls(far, server_context(secrets_of(JOB), PeerRole.AGENT))
    with near, far:
        shaking = threading.Thread(target=trainer.do_handshake)
        shaking.start()
        feeder.do_handshake()
        shaking.join()
        for each in (near, far):
            each.setblocking(False)
            each.calls = 0
        yield feeder, trainer


def talk(end: BulkTls, says: bytes, hears: int) -> bytes:
    """Say and hear whatever is possible, as one thread does that has both directions."""
    left, heard = memoryview(says), bytearray()
    while left or len(heard) < hears:
        with suppress(BlockingIOError):
            while len(heard) < hears:
                got = end.recv(hears - len(heard))
                assert got, f"it ended after {len(heard)} of {hears} bytes"
                heard += got
        with suppress(BlockingIOError):
            while left:
                left = left[end.send(left) :]
        wanted = (select.POLLOUT if left else 0) | (select.POLLIN if len(heard) < hears else 0)
        if wanted:
            poll = select.poll()
            poll.register(end, wanted)
            poll.poll()
    return bytes(heard)


def test_both_know_each_other(ends: tuple[BulkTls, BulkTls]) -> None:
    feeder, trainer = ends
    assert peer_identity(feeder.getpeercert())[0] is PeerRole.AGENT
    assert peer_identity(trainer.getpeercert())[0] is PeerRole.FEEDER


@pytest.mark.parametrize("buffer", [1, 4 << 20])
def test_what_both_say_at_once_comes_whole(ends: tuple[BulkTls, BulkTls], buffer: int) -> None:
    """Also where the system takes less at a time than a record."""
    feeder, trainer = ends
    rows, answers = os.urandom(3_000_001), os.urandom(500_003)
    for end in ends:
        end.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
    with ThreadPoolExecutor(1) as other:
        at_trainer = other.submit(talk, trainer, answers, len(rows))
        assert talk(feeder, rows, len(answers)) == answers
        assert at_trainer.result() == rows


def test_a_system_call_moves_many_records(ends: tuple[BulkTls, BulkTls]) -> None:
    """One to write each and two to read it were a third of what TLS cost rows of other hosts."""
    feeder, trainer = ends
    for end in ends:
        end.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    rows = os.urandom(8 << 14)
    assert feeder.send(memoryview(rows)) == len(rows)
    got = bytearray(len(rows))
    assert trainer.recv_into(memoryview(got)[:1000]) == 1000
    assert trainer.recv_into(memoryview(got)[1000:]) == len(rows) - 1000
    assert got == rows
    calls = [end.socket.calls for end in ends]  # pyright: ignore
    assert calls == [1, 1], calls


@pytest.mark.parametrize("politely", [False, True])
def test_the_end_is_no_bytes(ends: tuple[BulkTls, BulkTls], politely: bool) -> None:
    feeder, trainer = ends
    feeder.send(memoryview(b"last"))
    if politely:
        with suppress(ssl.SSLWantReadError):
            feeder._tls.unwrap()
        feeder._push()
    feeder.close()
    assert trainer.recv(10) == b"last"
    assert trainer.recv(1) == b""
    assert trainer.recv_into(memoryview(bytearray(1))) == 0


def test_a_server_of_another_job_is_refused_and_hears_why() -> None:
    near, far = socket.socketpair()
    heard: list[ssl.SSLError] = []

    def serve() -> None:
        try:
            BulkTls(far, server_context(secrets_of(OTHER_JOB), PeerRole.AGENT)).do_handshake()
        except ssl.SSLError as error:
            heard.append(error)

    with near, far:
        serving = threading.Thread(target=serve)
        serving.start()
        context = client_context(secrets_of(JOB), PeerRole.FEEDER)
        with pytest.raises(ssl.SSLCertVerificationError):
            BulkTls(near, context, server_hostname=NAME).do_handshake()
        serving.join()
    assert "ALERT" in str(heard[0]).upper()


def test_a_feeder_without_a_certificate_is_refused_and_hears_why() -> None:
    near, far = socket.socketpair()
    with near, far:

        def serve() -> None:
            with suppress(ssl.SSLError):
                BulkTls(far, server_context(secrets_of(JOB), PeerRole.AGENT)).do_handshake()

        serving = threading.Thread(target=serve)
        serving.start()
        context = ssl.create_default_context(cafile=secrets_of(JOB) / CA_FILE)
        stranger = BulkTls(near, context, server_hostname=NAME)
        with pytest.raises(ssl.SSLError, match="(?i)certificate.required"):
            stranger.do_handshake()
            stranger.recv(1)
        serving.join()


def test_a_server_that_says_nothing_gives_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(NoAnswer):
        dial_bulk_tls(
            silent.getsockname(), client_context(secrets_of(JOB), PeerRole.FEEDER), NAME, 0.05
        )
