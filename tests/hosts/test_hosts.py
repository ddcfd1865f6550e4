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
from tests.hosts.hosts import Hosts
from tests.processes import runs

pytestmark = pytest.mark.nightly

NAMES = ("one", "two")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # Not below /tmp, where each host has files of its own.
    return Path("/var/tmp") / f"hwt-hosts-{os.getpid()}-{time.monotonic_ns()}"


def test_a_host_has_a_name_files_processes_and_a_network_of_its_own(folder: Path) -> None:
    with Hosts(folder, NAMES) as hosts:
        for host in hosts:
            done = host.run(
                ["sh", "-c", "hostname; cd /tmp; touch of-$(hostname); ls -d of-*; echo $$"]
            )
            name, *files, pid = done.stdout.split()
            assert (name, files) == (host.name, [f"of-{host.name}"]), done.stderr
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
