"""TensorFlowOnSpark's reservation server listens where it says that it is, and nowhere else."""

from __future__ import annotations

import pytest

from howdah.compat.tensorflowonspark import reservation


def test_it_listens_on_the_address_that_it_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(reservation.TFOS_SERVER_HOST, raising=False)
    monkeypatch.delenv(reservation.TFOS_SERVER_PORT, raising=False)
    server = reservation.Server(1)
    with server.start_listening_socket() as listening:
        assert listening.getsockname()[0] == server.get_server_ip() != "0.0.0.0"
    monkeypatch.setenv(reservation.TFOS_SERVER_HOST, "127.0.0.1")
    with server.start_listening_socket() as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


def test_a_host_that_only_others_know_is_listened_for_on_all_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(reservation.TFOS_SERVER_HOST, "192.0.2.7")  # TEST-NET-1 (RFC 5737)
    with reservation.Server(1).start_listening_socket() as listening:
        assert listening.getsockname()[0] == "0.0.0.0"
