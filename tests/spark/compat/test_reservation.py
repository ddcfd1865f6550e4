"""The reservation server: nodes that know its key, and strangers."""

from __future__ import annotations

import contextlib
import pickle
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from howdah.compat.tensorflowonspark import reservation, util
from howdah.compat.tensorflowonspark.reservation import Client, KeyedAddress, Reservations, Server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv(reservation.TFOS_SERVER_HOST, "127.0.0.1")
    made = Server(2)
    yield made
    made.stop()
    made.join()


def test_reservations_are_done_when_all_are_there() -> None:
    found = Reservations(2)
    found.add({"node": 1})
    found.add({"node": 1})  # a retry
    assert (found.done(), found.remaining()) == (False, 1)
    found.add({"node": 2})
    assert found.done() and found.get() == [{"node": 1}, {"node": 2}]


def test_nodes_learn_of_each_other(server: Server) -> None:
    address = pickle.loads(pickle.dumps(server.start()))

    def node(number: int) -> list[dict[str, int | bytes]]:
        client = Client(address)
        assert client.register({"node": number, "authkey": b"\0"}) == "OK"
        found = client.await_reservations()
        client.close()
        return found

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(node, range(2))
    assert first == second == server.await_reservations(None)
    client = Client(address)
    assert client.request_stop() == "OK" and server.done
    client.close()


class _Broken(socket.socket):
    """A listening socket whose first connection is gone before it is taken."""

    broken = False

    def accept(self) -> tuple[socket.socket, Any]:
        sock, address = super().accept()
        if self.broken:
            return sock, address
        self.broken = True
        sock.close()
        raise ConnectionAbortedError("reset before it was taken")


def test_a_connection_that_breaks_at_once_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Server(reservation.Server):
        def start_listening_socket(self) -> socket.socket:
            return _Broken(fileno=super().start_listening_socket().detach())

    monkeypatch.setenv(reservation.TFOS_SERVER_HOST, "127.0.0.1")
    server = Server(1)
    address = server.start()
    try:
        with pytest.raises(ConnectionError):
            Client(address)
        client = Client(address)
        assert client.register({"node": 1}) == "OK"
        client.close()
    finally:
        server.stop()
        server.join()


def test_a_stranger_learns_and_changes_nothing(server: Server) -> None:
    host, port = server.start()
    with pytest.raises(ConnectionError):
        Client(KeyedAddress(host, port, b"another key")).register({"node": 1})
    with socket.create_connection((host, port)) as stranger:
        stranger.sendall(b"\0" * 128)
        stranger.settimeout(10)
        assert len(stranger.recv(1000)) == 32  # its nonce, and then nothing
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1000) == b""
    assert server.reservations.get() == []


def test_a_client_without_a_key_is_told_where_to_get_it(server: Server) -> None:
    host, port = server.start()
    with pytest.raises(ValueError, match="TFOS_SERVER_KEY"):
        Client((host, port))


def test_the_key_may_come_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, port = server.start()
    monkeypatch.setenv(reservation.TFOS_SERVER_KEY, server.key.hex())
    client = Client((host, port))
    assert client.get_reservations() == []
    client.close()


def test_an_error_elsewhere_ends_the_waiting(server: Server) -> None:
    with pytest.raises(RuntimeError, match="no disk"):
        server.await_reservations(None, {"error": "no disk"})


def test_missing_nodes_are_counted(server: Server) -> None:
    with pytest.raises(TimeoutError, match="timed out waiting.*2 of 2 are missing"):
        server.await_reservations(None, timeout=0)


def test_host_and_ports_come_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server.get_server_ip() == "127.0.0.1"
    assert server.get_server_ports() == [0]
    monkeypatch.delenv(reservation.TFOS_SERVER_HOST)
    assert server.get_server_ip() == util.get_ip_address()
    monkeypatch.setenv(reservation.TFOS_SERVER_PORT, "9997-9999")
    assert server.get_server_ports() == [9997, 9998, 9999]
    monkeypatch.setenv(reservation.TFOS_SERVER_PORT, "many")
    with pytest.raises(ValueError, match="Invalid TFOS_SERVER_PORT: many"):
        server.get_server_ports()


def test_the_first_free_port_of_a_range_is_taken(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.start_listening_socket() as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv(reservation.TFOS_SERVER_PORT, str(port))
        with pytest.raises(OSError, match="unable to bind to any ports"):
            server.start_listening_socket()
        monkeypatch.setenv(reservation.TFOS_SERVER_PORT, f"{port}-{port + 20}")
        with server.start_listening_socket() as other:
            assert port < other.getsockname()[1] <= port + 20
