"""A feeder's own connections, to trainers of another host and to the controller."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import tempfile
import termios

import pytest

from howdah.spark.feed.messages import AssignmentRequest, Begin, Stop
from howdah.spark.feed.tasks import feeder_client
from howdah.spark.feed.tasks.feeder_client import (
    ControllerConnection,
    TrainerConnection,
    first_word,
)
from tests.spark.feed.rig import Rig, access


def far(rig: Rig) -> TrainerConnection:
    trainer = TrainerConnection(
        rig.endpoint(), access(rig.secrets, rig.controller.port), "another-host"
    )
    first_word(trainer)
    return trainer


def option(sock: socket.socket, name: str) -> int:
    level = socket.SOL_SOCKET if name.startswith("SO_") else socket.IPPROTO_TCP
    return sock.getsockopt(level, getattr(socket, name))


def unread(sock: socket.socket) -> int:
    """Bytes sent that the other system has not taken."""
    return struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))[0]


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has files on disks only")
def test_a_feeders_key_is_never_on_a_disk(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark kills its Python workers whenever it likes: nobody would remove it."""
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    feeder_client._contexts.clear()
    rig.trainer()
    far(rig).close()


def test_both_ends_of_a_data_connection_notice_that_the_other_host_is_gone(rig: Rig) -> None:
    """But not one that holds them back: a program may compute for hours, a query write for hours."""
    server = rig.trainer()._server
    assert server is not None
    feeder = far(rig)
    (accepted,) = server._connections
    for end in (feeder._socket, accepted._socket):
        assert option(end, "SO_KEEPALIVE") and option(end, "TCP_KEEPIDLE") <= 20
        assert option(end, "TCP_USER_TIMEOUT") == 0
    feeder.close()


def test_a_feeder_notices_that_the_drivers_host_is_gone(rig: Rig) -> None:
    controller = ControllerConnection(access(rig.secrets, rig.controller.port))
    controller.tell(AssignmentRequest(feed="train", run=1, epoch=0, partition=0, attempt=0))
    assert controller._socket is not None
    assert option(controller._socket, "SO_KEEPALIVE")
    assert option(controller._socket, "TCP_USER_TIMEOUT") > 0
    controller.close()


def test_a_write_to_a_host_that_vanished_says_that_the_connection_is_lost(rig: Rig) -> None:
    """In the one word that is recovered from, whatever the system calls it."""
    rig.trainer()
    feeder = far(rig)
    # The system takes the trainer for gone when it has not read for a millisecond.
    feeder._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1)
    feeder.send(Begin(feed="train", run=1, partition=0))
    broken = select.poll()
    broken.register(feeder._socket, 0)
    while not broken.poll(1):
        if unread(feeder._socket) < 100_000:
            feeder.write(bytes(10_000))
    with pytest.raises(ConnectionError, match="rank 0"):
        feeder.write(b"more")
    feeder.close()


def test_sending_on_a_connection_that_was_ended_fails_as_on_any_that_is_broken(rig: Rig) -> None:
    server = rig.trainer()._server
    assert server is not None
    feeder = far(rig)
    (accepted,) = server._connections
    accepted.closed = True  # as `end` does first, while a sender is about to wait
    with pytest.raises(OSError):
        accepted.send(Stop(), bytes(64 << 20))
    feeder.close()
