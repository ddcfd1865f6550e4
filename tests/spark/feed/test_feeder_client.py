"""A feeder's own connections, to trainers of another host and to the controller."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from pathlib import Path

import psutil
import pytest

from howdah.spark.feed import tls_proxy
from howdah.spark.feed.messages import AssignmentRequest, Begin, Stop
from howdah.spark.feed.server import FeedServer
from howdah.spark.feed.tasks import feeder_client
from howdah.spark.feed.tasks.feeder_client import (
    ControllerConnection,
    EnoughRows,
    TrainerConnection,
    first_word,
)
from howdah.wire.bulk_tls import BulkTls
from howdah.wire.tls import PeerRole, certificate_name
from tests.cli.howdah import until
from tests.spark.feed.rig import DEADLINE_S, JOB, Rig, access


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that takes rows of other hosts may take its time to begin."""
    monkeypatch.setattr(feeder_client, "CONNECT_S", 40.0)


def far(rig: Rig) -> TrainerConnection:
    trainer = TrainerConnection(
        rig.endpoint(), access(rig.secrets, rig.controller.port), "another-host"
    )
    first_word(trainer)
    return trainer


def proxy_of(server: FeedServer) -> psutil.Process:
    """The process that takes its rows of other hosts."""
    assert server._proxy is not None
    return psutil.Process(server._proxy.pid)


def wire(feeder: TrainerConnection) -> socket.socket:
    """What its TLS goes over."""
    assert isinstance(feeder._socket, BulkTls)
    return feeder._socket.socket


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


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="this system does not show timers")
def test_both_ends_of_a_data_connection_notice_that_the_other_host_is_gone(rig: Rig) -> None:
    """But not one that holds them back: a program may compute for hours, a query write for hours."""
    rig.trainer()
    feeder = far(rig)
    assert option(wire(feeder), "SO_KEEPALIVE") and option(wire(feeder), "TCP_KEEPIDLE") <= 20
    assert option(wire(feeder), "TCP_USER_TIMEOUT") == 0
    ports = [wire(feeder).getpeername()[1], wire(feeder).getsockname()[1]]
    until(lambda: keep_alive(ports)[0] == 2, "nothing is under way any more")
    assert keep_alive(ports)[1] <= 20
    feeder.close()


def keep_alive(ports: list[int]) -> tuple[int, float]:
    """Which timer a connection has (2: to ask whether its peer is there), and the seconds until then."""
    for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]:
        _, local, remote, _, _, timer, *_ = line.split()
        if [int(end.partition(":")[2], 16) for end in (local, remote)] == ports:
            which, _, ticks = timer.partition(":")
            return int(which, 16), int(ticks, 16) / os.sysconf("SC_CLK_TCK")
    raise AssertionError(f"no connection between {ports}")


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
    wire(feeder).setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1)
    feeder.send(Begin(feed="train", run=1, partition=0))
    broken = select.poll()
    broken.register(feeder._socket, 0)
    with pytest.raises(ConnectionError, match="rank 0"):
        # It may break amid this, too.
        while not broken.poll(0 if (few := unread(wire(feeder)) < 100_000) else 1):
            if few:
                feeder.write(bytes(10_000))
        feeder.write(b"more")
    feeder.close()


def test_sending_on_a_connection_that_was_ended_fails_as_on_any_that_is_broken(rig: Rig) -> None:
    server = rig.trainer()._server
    assert server is not None
    feeder = far(rig)
    (accepted,) = server._connections
    accepted.end()
    with pytest.raises(OSError):
        accepted.send(Stop(), bytes(64 << 20))
    feeder.close()


def test_a_feeder_of_another_host_hears_what_a_program_said_just_before_it_ended(rig: Rig) -> None:
    server = rig.trainer()._server
    assert server is not None
    feeder = far(rig)
    proxy = proxy_of(server)
    (accepted,) = server._connections
    proxy.suspend()  # it is slower than the program
    until(lambda: proxy.status() == psutil.STATUS_STOPPED, "it stands still")
    accepted.send(Stop(rows=7))
    closing = threading.Thread(target=server.close)
    closing.start()
    until(lambda: accepted.closed, "the program has ended its connections")
    with contextlib.suppress(psutil.NoSuchProcess):
        proxy.resume()
    with pytest.raises(EnoughRows):
        while True:
            feeder.wait()
    feeder.close()
    closing.join()
    assert not proxy.is_running()


def test_answers_come_whole_though_the_program_took_no_more_rows_and_hung_up() -> None:
    """What comes last may be more than one write takes."""
    (feeder, far_end), (near_end, program) = socket.socketpair(), socket.socketpair()
    with feeder, program:
        far_end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        answers = os.urandom(50_000)
        program.sendall(answers)
        program.close()
        feeder.sendall(b"rows")

        def join() -> None:
            with far_end, near_end:
                far_end.setblocking(False)
                near_end.setblocking(False)
                tls_proxy._join(far_end, near_end)  # pyright: ignore[reportArgumentType]

        joining = threading.Thread(target=join)
        joining.start()
        got = b"".join(iter(lambda: feeder.recv(1 << 16), b""))
        joining.join()
    assert got == answers


def test_a_last_answer_comes_whole_though_rows_were_on_the_way(rig: Rig, tmp_path: Path) -> None:
    """A close with unread bytes would reset the connection, and drop what the feeder has not read yet."""
    answer = os.urandom(100_000)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as here,
        socket.socket() as wire,
    ):
        target = str(tmp_path / "rows")
        here.bind(target)
        here.listen()
        here.settimeout(DEADLINE_S)
        with tls_proxy.start(listener, rig.secrets, JOB, target) as started:
            assert started.stdin is not None
            proxy = psutil.Process(started.pid)
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.settimeout(DEADLINE_S)
            wire.connect(listener.getsockname())
            context = feeder_client.tls(access(rig.secrets, 0))
            with context.wrap_socket(
                wire, server_hostname=certificate_name(PeerRole.AGENT, JOB)
            ) as feeder:
                program, _ = here.accept()
                feeder.setblocking(False)
                with contextlib.suppress(ssl.SSLWantWriteError):
                    while True:
                        feeder.send(bytes(1 << 14))
                program.sendall(answer)
                program.close()
                until(
                    lambda: all(
                        each.status != psutil.CONN_ESTABLISHED
                        for each in proxy.net_connections("tcp")
                    ),
                    "the proxy has hung up",
                )
                feeder.settimeout(DEADLINE_S)
                assert b"".join(iter(lambda: feeder.recv(1 << 16), b"")) == answer
            started.stdin.write(b"\n")


def test_rows_of_other_hosts_come_also_after_the_process_that_takes_them_was_killed(
    rig: Rig,
) -> None:
    server = rig.trainer()._server
    assert server is not None
    feeder = far(rig)
    proxy = proxy_of(server)
    assert "howdah.spark.feed.tls_proxy" in proxy.cmdline()
    proxy.kill()
    with pytest.raises(ConnectionError):
        feeder.wait()
    far(rig).close()
    assert proxy_of(server) != proxy


def test_the_process_that_takes_rows_of_other_hosts_ends_with_its_program(rig: Rig) -> None:
    program = (
        "import os, socket, sys; from pathlib import Path; from howdah.spark.feed import tls_proxy; "
        "listener = socket.create_server(('127.0.0.1', 0)); "
        "print(tls_proxy.start(listener, Path(sys.argv[1]), 'job', 'nowhere').pid, flush=True); os._exit(1)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(rig.secrets)], stdout=subprocess.PIPE
    ) as started:
        assert started.stdout is not None
        pid = int(started.stdout.readline())
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait(DEADLINE_S)
    assert not psutil.pid_exists(pid)
