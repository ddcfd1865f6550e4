"""Ports: locked for all agents of the host, tested, held."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from howdah.agent import ports
from howdah.agent.ports import KeptPortTaken, PortsError, lock, reserve
from howdah.storage.errors import is_transient

HOST = "127.0.0.1"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Locks of this test alone."""
    monkeypatch.setattr(ports, "BASE", tmp_path)
    return tmp_path / f"howdah-{os.getuid()}" / "ports"


@pytest.fixture
def low() -> Iterator[int]:
    """The first of a few ports that are free now, below those that agents reserve from."""
    low = random.randrange(11000, 19000, 10)
    while not all(ports.is_free(low + n, HOST) for n in range(10)):
        low = random.randrange(11000, 19000, 10)
    yield low


def listener(port: int, host: str = HOST) -> socket.socket:
    server = socket.socket()
    server.bind((host, port))
    server.listen()
    return server


def test_reserved_ports_are_different_and_in_the_range(low: int) -> None:
    reservation = reserve(4, HOST, (low, low + 9))
    assert len(set(reservation.ports)) == 4
    assert all(low <= port <= low + 9 for port in reservation.ports)
    reservation.release()


def test_no_port_is_given_twice_while_it_is_reserved(low: int) -> None:
    first = reserve(5, HOST, (low, low + 9))
    second = reserve(5, HOST, (low, low + 9))
    assert not set(first.ports) & set(second.ports)
    with pytest.raises(PortsError, match="Only 0 of 1 ports are free") as caught:
        reserve(1, HOST, (low, low + 9))
    assert is_transient(caught.value), "others give theirs back"
    first.release()
    third = reserve(5, HOST, (low, low + 9))
    for reservation in (second, third):
        reservation.release()


def test_a_range_that_is_too_small_stays_so(low: int) -> None:
    with pytest.raises(PortsError) as caught:
        reserve(3, HOST, (low, low + 1))
    assert not is_transient(caught.value)


def test_a_port_somebody_listens_on_is_passed_over(low: int) -> None:
    with closing(listener(low)), closing(listener(low + 1, "0.0.0.0")):
        reservation = reserve(1, HOST, (low, low + 2))
        assert reservation.ports == (low + 2,)
        reservation.release()


def test_a_listener_on_another_address_only_is_in_the_way_too(low: int) -> None:
    with closing(listener(low, "127.0.0.2")):
        assert not ports.is_free(low, HOST)


def test_nobody_can_bind_a_held_port_until_it_is_let_go(low: int) -> None:
    reservation = reserve(1, HOST, (low, low))
    with pytest.raises(OSError), socket.socket() as thief:
        thief.bind((HOST, low))
    reservation.let_go()
    listener(low).close()
    assert lock(low) is None  # other agents still keep away from it
    reservation.release()
    free = lock(low)
    assert free is not None
    free.release()


def test_a_program_that_shares_can_bind_a_held_port(low: int) -> None:
    reservation = reserve(1, HOST, (low, low))
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind((HOST, low))
        server.listen()
    reservation.release()


def test_kept_ports_are_had_again_in_their_order(low: int) -> None:
    reservation = reserve(2, HOST, (low, low + 9), keep=(low + 7, low + 3))
    assert reservation.ports == (low + 7, low + 3)
    reservation.release()


def test_more_ports_than_are_kept_are_filled_up(low: int) -> None:
    reservation = reserve(3, HOST, (low, low + 9), keep=(low + 7,))
    assert reservation.ports[0] == low + 7
    assert len(set(reservation.ports)) == 3
    reservation.release()


def test_a_kept_port_that_is_taken_is_said_and_nothing_stays_locked(low: int) -> None:
    with closing(listener(low + 1)), pytest.raises(KeptPortTaken) as caught:
        reserve(2, HOST, (low, low + 9), keep=(low, low + 1))
    assert caught.value.port == low + 1
    assert is_transient(caught.value)
    free = lock(low)
    assert free is not None
    free.release()


def test_a_kept_port_with_remains_of_old_connections_is_free(low: int) -> None:
    with closing(socket.create_server((HOST, low))) as server:  # sets SO_REUSEADDR, as servers do
        client = socket.create_connection((HOST, low))
        server.accept()[0].close()  # the serving side closes first: TIME_WAIT is on its port
        client.close()
    reservation = reserve(1, HOST, (low, low), keep=(low,))
    reservation.release()


def test_the_ephemeral_range_comes_last(monkeypatch: pytest.MonkeyPatch, low: int) -> None:
    monkeypatch.setattr(ports, "ephemeral_range", lambda: (low, low + 7))
    reservation = reserve(2, HOST, (low, low + 9))
    assert set(reservation.ports) == {low + 8, low + 9}
    more = reserve(1, HOST, (low, low + 9))
    assert more.ports[0] < low + 8
    reservation.release()
    more.release()


def test_released_locks_leave_no_files(folder: Path, low: int) -> None:
    reservation = reserve(3, HOST, (low, low + 9))
    assert sorted(f.name for f in folder.iterdir()) == sorted(
        f"{port}.lock" for port in reservation.ports
    )
    assert folder.stat().st_mode & 0o7777 == 0o700
    reservation.release()
    assert not folder.exists()


def test_locks_of_a_dead_process_are_free_and_can_be_tidied(folder: Path, low: int) -> None:
    code = (
        "import os, sys; from pathlib import Path; from howdah.agent import ports;"
        f"ports.BASE = Path({str(folder.parents[1])!r}); assert ports.lock({low});"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert (folder / f"{low}.lock").exists()
    ports.tidy(low)
    assert not folder.exists()


def test_a_lock_somebody_has_is_not_tidied_away(folder: Path, low: int) -> None:
    held = lock(low)
    assert held is not None
    ports.tidy(low)
    assert (folder / f"{low}.lock").exists()
    assert lock(low) is None
    held.release()


@pytest.mark.nightly
def test_many_processes_that_reserve_at_once_get_different_ports(folder: Path, low: int) -> None:
    code = (
        "import sys; from pathlib import Path; from howdah.agent import ports;"
        f"ports.BASE = Path({str(folder.parents[1])!r});"
        f"r = ports.reserve(2, '127.0.0.1', ({low}, {low + 9})); print(*r.ports, flush=True);"
        "sys.stdin.read(); r.release()"
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(5)
    ]
    try:
        found = [port for run in runs if run.stdout for port in run.stdout.readline().split()]
        assert len(found) == len(set(found)) == 10
    finally:
        for run in runs:
            run.communicate()
    assert not folder.exists()


@pytest.mark.parametrize("what", ["link", "folder", "pipe"])
def test_a_port_whose_lock_cannot_be_had_is_passed_over(
    folder: Path, low: int, tmp_path: Path, what: str
) -> None:
    folder.mkdir(mode=0o700, parents=True)
    path = folder / f"{low}.lock"
    if what == "link":
        path.symlink_to(tmp_path / "victim")
    elif what == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
        path.chmod(0)
    assert lock(low) is None or (what == "pipe" and os.getuid() == 0)
    assert not (tmp_path / "victim").exists()


def test_a_place_without_room_for_locks_is_explained(
    low: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "BASE", tmp_path / "nowhere")
    with pytest.raises(PortsError, match="Ports can't be locked"):
        lock(low)
