"""Whether a program has found its peers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import closing
from typing import IO

import pytest

from howdah.agent.host.socket_owners import serves
from howdah.agent.host.tcp_table import packed
from howdah.agent.monitoring.probes import bound_ports, connected, joined, listening

TABLE = b"""\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:4E21 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1565 1
   1: 0100007F:C376 0100007F:4E22 01 00000000:00000000 03:000011CD 00000000     0        0 77 3
   2: 0100007F:4E23 0200007F:4E22 06 00000000:00000000 03:000011CD 00000000     0        0 0 3
"""
TABLE6 = b"""\
  sl  local_address                         remote_address                        st tx rx tr tm x uid t inode
   0: 00000000000000000000000000000000:4E21 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 99 1
   1: 0000000000000000FFFF00000100007F:C376 0000000000000000FFFF00000100007F:4E22 01 0:0 0:0 0 0 0 98 1
"""


def test_listeners_are_found_by_port() -> None:
    assert listening(TABLE, (20001,)) == {1565}
    assert listening(TABLE, (20002, 20003)) == set()
    assert listening(TABLE6, (20001, 9)) == {99}


def test_connections_are_found_by_address_and_port() -> None:
    assert connected(TABLE, {("127.0.0.1", 20002)}) == {77}
    assert connected(TABLE, {("127.0.0.2", 20002)}) == set()
    assert connected(TABLE6, {("127.0.0.1", 20002)}) == {98}


def test_an_address_that_only_begins_alike_is_another() -> None:
    table = TABLE.replace(b"0100007F:4E22", b"0A00000A:4E22")  # 10.0.0.10
    assert connected(table, {("10.0.0.1", 20002)}) == set()
    assert connected(table, {("10.0.0.10", 20002)}) == {77}


def test_names_are_no_numeric_addresses() -> None:
    assert packed("localhost") == b""
    assert packed("::ffff:10.0.0.1") == packed("10.0.0.1")


def read_port(stream: IO[str] | None) -> int:
    assert stream is not None
    return int(stream.readline())


def test_only_sockets_of_the_given_processes_count() -> None:
    code = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 0));"
        "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        port = read_port(other.stdout)
        assert serves(lambda: [other.pid], "127.0.0.1", port)
        assert not serves(lambda: [os.getpid()], "127.0.0.1", port)
        with closing(socket.create_connection(("127.0.0.1", port))):
            peers = {("127.0.0.1", port)}
            assert joined(lambda: [os.getpid()], (), peers)
            assert not joined(lambda: [other.pid], (), peers)
        assert not joined(lambda: [os.getpid()], (), {("127.0.0.1", port)})
    finally:
        other.communicate()


def test_processes_are_not_looked_for_when_no_socket_can_be_theirs() -> None:
    def never() -> list[int]:
        raise AssertionError("asked in vain")

    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    assert not serves(never, "127.0.0.1", port)


@pytest.mark.nightly
def test_a_file_that_is_closed_while_they_are_looked_at_hides_no_bound_port() -> None:
    code = (
        "import os, socket; f = os.open(os.devnull, 0); s = socket.socket(); s.bind(('127.0.0.1', 0));"
        "assert f < s.fileno(); print(s.getsockname()[1], flush=True)\n"
        "while True: os.close(f); f = os.open(os.devnull, 0)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        try:
            port = read_port(other.stdout)
            for _ in range(500):
                assert list(bound_ports(other.pid)) == [port]
        finally:
            other.kill()


def test_a_port_that_is_bound_but_does_not_listen_yet_counts_as_taken_up() -> None:
    code = (
        "import socket, sys; s = socket.socket(); s.bind(('127.0.0.1', 0));"
        "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        port = read_port(other.stdout)
        assert joined(lambda: [other.pid], (port,), ())
        assert not joined(lambda: [other.pid], (port + 1,), ())
        assert not serves(lambda: [other.pid], "127.0.0.1", port), "nobody could open its page yet"
    finally:
        other.communicate()
