"""The hosts themselves: are they apart, and is nothing of them left?"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from tests.hadoop.polling import wait
from tests.hosts.hosts import Host, Hosts
from tests.processes import runs

NAMES = ("one", "two")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # Not below /tmp, where each host has files of its own.
    return Path("/var/tmp") / f"hwt-hosts-{os.getpid()}-{time.monotonic_ns()}"


def test_a_host_has_a_name_files_processes_and_a_network_of_its_own(folder: Path) -> None:
    with Hosts(folder, NAMES) as hosts:
        for host in hosts:
            done = host.run(["sh", "-c", "hostname; touch /tmp/$(hostname); ls /tmp; echo $$"])
            name, *files, pid = done.stdout.split()
            assert (name, files) == (host.name, [host.name]), done.stderr
            assert int(pid) < 100, "processes are counted from 1"
            assert host.do(socket.gethostname) == host.name
        listening = hosts["one"].do(lambda: socket.create_server(("one", 7000)))
        with listening:
            near = hosts["two"].do(lambda: socket.create_connection(("one", 7000), timeout=5))
            with near, listening.accept()[0] as far:
                assert near.getpeername() == (hosts["one"].address, 7000)
                assert far.getpeername()[0] == hosts["two"].address
        own = {each.address for all in psutil.net_if_addrs().values() for each in all}
        assert not own & {host.address for host in hosts}, "this machine's network is untouched"


def test_a_host_that_is_cut_off_is_silent_and_its_connections_live_on(folder: Path) -> None:
    with Hosts(folder, NAMES) as hosts:
        listening = hosts["one"].do(lambda: socket.create_server(("one", 7000)))
        near = hosts["two"].do(lambda: socket.create_connection(("one", 7000), timeout=5))
        with listening, near, listening.accept()[0] as far:
            with hosts["one"].cut_off():
                with pytest.raises(TimeoutError):
                    hosts["two"].do(lambda: socket.create_connection(("one", 7000), timeout=0.5))
                near.sendall(b"late")
                far.settimeout(0.5)
                with pytest.raises(TimeoutError):
                    far.recv(4)
            far.settimeout(10)
            assert far.recv(4) == b"late"


def test_what_is_sent_to_one_port_alone_can_be_lost(folder: Path) -> None:
    with Hosts(folder, NAMES) as hosts:
        servers = [
            hosts["one"].do(lambda port=port: socket.create_server(("one", port)))
            for port in (7000, 7001)
        ]
        hosts["two"].drop_sent_to(7000)
        with pytest.raises(OSError):
            hosts["two"].do(lambda: socket.create_connection(("one", 7000), timeout=0.5))
        hosts["two"].do(lambda: socket.create_connection(("one", 7001), timeout=5)).close()
        hosts["two"].drop_nothing()
        hosts["two"].do(lambda: socket.create_connection(("one", 7000), timeout=5)).close()
        for server in servers:
            server.close()


def test_a_slow_cable_takes_its_time(folder: Path) -> None:
    sent = bytes(100_000)
    with Hosts(folder, NAMES) as hosts:
        listening = hosts["one"].do(lambda: socket.create_server(("one", 7000)))
        near = hosts["two"].do(lambda: socket.create_connection(("one", 7000), timeout=30))
        with listening, near, listening.accept()[0] as far:
            with hosts["one"].slow(1000):
                begin = time.monotonic()
                near.sendall(sent)
                assert len(far.recv(len(sent), socket.MSG_WAITALL)) == len(sent)
                assert time.monotonic() - begin > 0.5
            near.sendall(sent)
            assert len(far.recv(len(sent), socket.MSG_WAITALL)) == len(sent)


def test_a_host_has_a_wall_clock_of_its_own_and_the_monotonic_one_of_all(folder: Path) -> None:
    program = "import time; print(time.time(), time.monotonic()); time.sleep(0.01)"

    def off_s(host: Host, env: dict[str, str]) -> tuple[int, int]:
        """How far its clocks are ahead of this process's, in minutes."""
        before = time.time(), time.monotonic()
        wall, monotonic = map(
            float, host.run([sys.executable, "-c", program], env=env).stdout.split()
        )
        return round((wall - before[0]) / 60), round((monotonic - before[1]) / 60)

    with Hosts(folder, NAMES) as hosts:
        env = hosts.with_own_clock()
        assert [off_s(host, env) for host in hosts] == [(0, 0), (0, 0)]
        hosts["one"].set_clock(480)
        hosts["two"].set_clock(-600)
        assert [off_s(host, env) for host in hosts] == [(8, 0), (-10, 0)]


def test_a_crash_takes_all_processes_of_a_host_and_none_of_another(folder: Path) -> None:
    with Hosts(folder, NAMES) as hosts:
        sleepers = {
            host.name: host.start(["sh", "-c", "setsid sleep 300 & exec sleep 300"])
            for host in hosts
        }
        wait("two processes on the first host", lambda: len(hosts["one"].processes()) == 2)
        wait("two processes on the second host", lambda: len(hosts["two"].processes()) == 2)
        there = hosts["one"].processes()
        hosts["one"].crash()
        wait("the first host's end", lambda: not any(map(runs, there)))
        assert len(hosts["two"].processes()) == 2
    for sleeper in sleepers.values():
        sleeper.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_test_run_is_killed(folder: Path, number: signal.Signals) -> None:
    program = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from tests.hosts.hosts import Hosts
        hosts = Hosts(Path({str(folder)!r}), {NAMES!r})
        for host in hosts:
            host.start(["sleep", "300"])
        print(*[host.pid for host in hosts], flush=True)
        time.sleep(300)
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    with process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == len(NAMES)
        processes = [
            each for pid in pids for each in [psutil.Process(pid), *psutil.Process(pid).parents()]
        ]
        mine = {each.pid for each in psutil.Process().parents()} | {os.getpid(), process.pid}
        processes = [each for each in processes if each.pid not in mine]
        process.send_signal(number)
        process.wait()
    wait("the hosts' end", lambda: not any(map(runs, processes)))
    wait("their files' end", lambda: not folder.exists())
    assert str(folder) not in Path("/proc/mounts").read_text()
