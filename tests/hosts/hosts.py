"""Hosts apart, on one machine: each with a network, a name, processes and temporary files of its own.

A host is a set of Linux namespaces, kept by its first process; that reads from a pipe of the test's
process and ends with it, however that ends. With the first process go all others of the host, its
network and its mounts. The hosts' cables lead to a bridge, the switch, in a network namespace of its
own: nothing of this machine's own network is touched, and no address of it is used.

    with Hosts(folder, ["head", "node1", "node2"]) as hosts:
        hosts["node1"].run(["hostname"])
        with hosts["node1"].cut_off():  # a cable pulled: nothing is refused, all is silent
            ...

Root is needed, and iproute2 and util-linux (``ip``, ``tc``, ``unshare``, ``nsenter``).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import psutil

from tests.hadoop import artifacts

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]

NETWORK = "10.203.7"
SECOND_NETWORK = "10.203.8"
"""Of the hosts' second interfaces, where they have any."""
_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
_BIND = 0x1000  # MS_BIND
_PRIVATE = 0x40000 | 0x4000  # MS_PRIVATE, MS_REC
_CLOCK = "clock"
_START_S = 20.0
_END_S = 90.0
"""The switch removes all files, gigabytes on a busy disk."""

_FIRST_PROCESS = r"""
set -eu
# Children that nobody waits for vanish; what is executed below inherits that.
trap '' CHLD
hostname "$NAME"
for place in tmp data; do mkdir -p "$FOLDER/hosts/$NAME/$place"; done
chmod 1777 "$FOLDER/hosts/$NAME/tmp"
mount --bind "$FOLDER/hosts/$NAME/data" "$FOLDER/data"
IFS='
'
# What the host's own folders would cover of what it needs is put back over them.
n=0
for shown in $SHOWN; do
n=$((n+1)); mkdir -p "$FOLDER/shown/$n"; mount --bind "$shown" "$FOLDER/shown/$n"
done
mount --bind "$FOLDER/hosts/$NAME/tmp" /tmp
for hidden in $HIDDEN; do [ ! -e "$hidden" ] || mount -t tmpfs -o size=1m tmpfs "$hidden"; done
n=0
for shown in $SHOWN; do
n=$((n+1)); mkdir -p "$shown"; mount --move "$FOLDER/shown/$n" "$shown"
done
# The other hosts' files are nobody's business.
mount -t tmpfs -o size=1m tmpfs "$FOLDER/hosts"
mount -t tmpfs -o size=1g tmpfs /dev/shm
mount -t tmpfs -o size=16m tmpfs /run
mount --bind "$FOLDER/etc-hosts" /etc/hosts
mount -t sysfs sysfs /sys
echo ready
exec cat > /dev/null
"""

_SWITCH = r"""
echo ready
cat > /dev/null
# The hosts are ending, and may still write.
for _ in 1 2 3 4 5 6 7 8 9; do rm -rf "$FOLDER" 2>/dev/null && break; sleep 0.2; done
"""


class HostsError(Exception):
    """Hosts cannot be made here; the text says why."""


class Host:
    """One host. Made by `Hosts`."""

    def __init__(self, hosts: Hosts, name: str, number: int, init: subprocess.Popen[str]) -> None:
        self.name = name
        self.address = f"{NETWORK}.{number}"
        self.second_address = f"{SECOND_NETWORK}.{number}"
        self._hosts = hosts
        self._number = number
        self._init = init
        (self.pid,) = (child.pid for child in psutil.Process(init.pid).children())
        """The host's first process, as this machine counts."""
        self.gone: bool = False
        """It has crashed, for good."""

    def enter(self, *argv: str, cwd: Path | None = None) -> list[str]:
        """The command line that runs a command there; ``cwd`` is a folder of the host."""
        return entering(self.pid, *argv, cwd=cwd)

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout_s: float = 60.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there to its end."""
        with self.start(argv, env=env, cwd=cwd) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except BaseException:
                end_tree(process)
                raise
        return subprocess.CompletedProcess(list(argv), process.returncode, out, err)

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.Popen[str]:
        """Start a command there, with pipes for what it prints."""
        return subprocess.Popen(
            self.enter(*argv, cwd=cwd),
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def do(self, function: Callable[[], T]) -> T:
        """Call a function of this process with the host's network and names."""
        return inside(self.pid, self._hosts.names, function)

    def processes(self) -> list[psutil.Process]:
        """All that run there, but the first."""
        own = Path(f"/proc/{self.pid}/ns/pid").readlink()
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if (
                    process.pid != self.pid
                    and Path(f"/proc/{process.pid}/ns/pid").readlink() == own
                ):
                    found.append(process)
        return found

    # Faults -----------------------------------------------------------------------------------

    def unplug(self) -> None:
        """Pull its cable: whatever is sent to it or by it is lost, and no connection is refused."""
        self._hosts.on_switch("ip", "link", "set", self._port, "down")

    def plug_in(self) -> None:
        """Put the cable back."""
        self._hosts.on_switch("ip", "link", "set", self._port, "up")

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """Unplugged meanwhile."""
        self.unplug()
        try:
            yield
        finally:
            self.plug_in()

    def drop_sent_to(self, port: int) -> None:
        """Lose all that is sent from there to that port of any host, until `drop_nothing`."""
        rule = ("ipproto", "tcp", "dport", str(port), "blackhole")
        _do("ip", "rule", "add", *rule, inside=self.pid)

    def let_in_only(self, ports: Mapping[str, range]) -> None:
        """A firewall: what comes over an interface named here, to other ports and from others, is lost.

        There is no netfilter to be had everywhere, so it is made of routing rules. They know nothing of
        connections: answers are told by the port that they come from.
        """
        _do("ip", "rule", "add", "pref", "200", "lookup", "local", inside=self.pid)
        for interface, allowed in ports.items():
            tcp = ("iif", interface, "ipproto", "tcp")
            for end in ("dport", "sport"):
                these = (end, f"{allowed[0]}-{allowed[-1]}", "lookup", "local")
                _do("ip", "rule", "add", "pref", "100", *tcp, *these, inside=self.pid)
            _do("ip", "rule", "add", "pref", "150", *tcp, "blackhole", inside=self.pid)
        _do("ip", "rule", "del", "pref", "0", inside=self.pid)

    def drop_nothing(self) -> None:
        """Take `drop_sent_to`'s rules away."""
        told = _do("ip", "rule", inside=self.pid)
        for line in told.splitlines():
            if "blackhole" in line:
                _do("ip", "rule", "del", "pref", line.partition(":")[0], inside=self.pid)

    @contextlib.contextmanager
    def slow(self, kilobits_s: int) -> Iterator[None]:
        """Its cable takes no more than that meanwhile, each way; what does not fit waits, then is lost."""
        limit = ("root", "tbf", "rate", f"{kilobits_s}kbit", "burst", "16kb", "latency", "500ms")
        self._hosts.on_switch("tc", "qdisc", "add", "dev", self._port, *limit)
        _do("tc", "qdisc", "add", "dev", "eth0", *limit, inside=self.pid)
        try:
            yield
        finally:
            self._hosts.on_switch("tc", "qdisc", "del", "dev", self._port, "root")
            _do("tc", "qdisc", "del", "dev", "eth0", "root", inside=self.pid)

    def set_clock(self, ahead_s: int) -> None:
        """Set the clock of what was started there with `Hosts.with_own_clock`: so far ahead of this
        machine's."""
        with open(self._hosts.folder / "hosts" / self.name / "data" / _CLOCK, "r+b") as clock:
            clock.write(struct.pack("<q", ahead_s * 10**9))

    def crash(self) -> None:
        """The power is gone: all its processes are dead at once, and nobody hears of it."""
        self.unplug()
        self.gone = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._init.wait(_START_S)

    @property
    def _port(self) -> str:
        """The switch's end of its cable."""
        return f"port{self._number}"


class Hosts:
    """Hosts on a switch. Their folder is on a disk that all of them see, as a network's share is,
    but for its ``data``: there each finds its own disk."""

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        *,
        hidden: Mapping[str, Sequence[Path]] | None = None,
        two_networks: bool = False,
    ) -> None:
        """``hidden``: folders of this machine that a host does not have.

        Raises:
            HostsError: namespaces cannot be had here.
        """
        self.folder = folder
        self.names = folder / "etc-hosts"
        """What each has for ``/etc/hosts``."""
        _check()
        (folder / "data").mkdir(parents=True, exist_ok=True)
        rows = "".join(f"{NETWORK}.{10 + i} {name}\n" for i, name in enumerate(names))
        self.names.write_text(f"127.0.0.1 localhost\n{rows}")
        self._inits: list[subprocess.Popen[str]] = []
        self._hosts: dict[str, Host] = {}
        try:
            self._switch = self._first_process(["--net"], _SWITCH, {"FOLDER": str(folder)})
            (self._switch_pid,) = (
                child.pid for child in psutil.Process(self._switch.pid).children()
            )
            for bridge in ("switch", "switch2")[: 2 if two_networks else 1]:
                self.on_switch("ip", "link", "add", bridge, "type", "bridge")
                self.on_switch("ip", "link", "set", bridge, "up")
            for i, name in enumerate(names):
                self._add(name, 10 + i, (hidden or {}).get(name, ()), two_networks)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def __enter__(self) -> Hosts:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Everything of the hosts is gone afterwards, their files too; the switch comes last."""
        for init in reversed(self._inits):
            assert init.stdin is not None
            assert init.stdout is not None
            init.stdin.close()
            try:
                init.wait(_END_S)
            finally:
                end_tree(init)
                init.stdout.close()

    def with_own_clock(self) -> dict[str, str]:
        """Environment of processes whose host has a wall clock of its own, see `Host.set_clock`; they pass
        it on. The kernel has one for all hosts.

        Raises:
            HostsError: there is no C compiler.
        """
        compiler = shutil.which("cc")
        if compiler is None:
            raise HostsError("clocks of hosts need a C compiler: install gcc (`cc`)")
        library = self.folder / "clock.so"
        source = Path(__file__).with_name("clock.c")
        command = [
            compiler,
            "-shared",
            "-fPIC",
            "-O1",
            "-Wall",
            "-o",
            str(library),
            str(source),
            "-ldl",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise HostsError(f"{source} could not be compiled:\n{done.stderr}")
        for host in self:
            (self.folder / "hosts" / host.name / "data" / _CLOCK).write_bytes(bytes(8))
        return {"LD_PRELOAD": str(library), "HOWDAH_TEST_CLOCK": str(self.folder / "data" / _CLOCK)}

    def on_switch(self, *argv: str) -> None:
        """Run a command in the switch's network."""
        _do(*argv, inside=self._switch_pid)

    def _add(self, name: str, number: int, hidden: Sequence[Path], two_networks: bool) -> None:
        init = self._first_process(
            ["--net", "--mount", "--uts", "--ipc", "--pid", "--mount-proc"],
            _FIRST_PROCESS,
            {
                "NAME": name,
                "FOLDER": str(self.folder),
                "HIDDEN": "\n".join(map(str, hidden)),
                "SHOWN": "\n".join(
                    map(str, _covered([path for path in needed() if path not in hidden], hidden))
                ),
            },
        )
        host = self._hosts[name] = Host(self, name, number, init)
        networks = [(f"port{number}", "eth0", "switch", host.address)]
        if two_networks:
            networks.append((f"second{number}", "eth1", "switch2", host.second_address))
        _do("ip", "link", "set", "lo", "up", inside=host.pid)
        for port, interface, bridge, address in networks:
            peer = ("peer", "name", interface, "netns", str(host.pid))
            self.on_switch("ip", "link", "add", port, "type", "veth", *peer)
            self.on_switch("ip", "link", "set", port, "master", bridge, "up")
            _do("ip", "addr", "add", f"{address}/24", "dev", interface, inside=host.pid)
            _do("ip", "link", "set", interface, "up", inside=host.pid)

    def _first_process(
        self, namespaces: Sequence[str], script: str, env: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        init = subprocess.Popen(
            ["unshare", *namespaces, "--fork", "--kill-child", "sh", "-c", script],
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._inits.append(init)
        assert init.stdout is not None
        if init.stdout.readline() != "ready\n":
            raise HostsError("a host could not be made; what it said stands above")
        return init


def python_folder() -> Path:
    """Of the Python that the tests' environment was made with."""
    return Path(os.__file__).resolve().parents[2]


def needed() -> list[Path]:
    """What hosts have of this machine wherever it is: this repository, its Python, Java and Hadoop's jars."""
    cache = artifacts.cache()
    return [ROOT, python_folder(), artifacts.java_home(), *{cache, cache.resolve()}]


def _covered(paths: Sequence[Path], hidden: Sequence[Path]) -> list[Path]:
    """Those of them that are below a folder which a host has of its own, or has not."""
    covers = [Path("/tmp"), *hidden]
    found = [path for path in paths if any(path.is_relative_to(each) for each in covers)]
    # Outer ones first.
    return sorted(found)


def inside(pid: int, names: Path, function: Callable[[], T]) -> T:
    """Call a function in a thread that has the network and name of the host with that first process.

    Threads and processes that it starts have them too. Files and processes are this machine's.
    ``names`` is the hosts' `/etc/hosts`.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            # Mounts of the thread's own, in which one file is another.
            _system("unshare", _NEW_MOUNTS)
            _system("mount", b"none", b"/", None, _PRIVATE, None)
            _system("mount", bytes(names), b"/etc/hosts", None, _BIND, None)
            for kind in ("net", "uts"):
                with open(f"/proc/{pid}/ns/{kind}") as namespace:
                    _system("setns", namespace.fileno(), 0)
            results.append(function())
        except BaseException as error:  # raised again below, in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=call, name=f"in {pid}")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def end_tree(process: subprocess.Popen[str]) -> None:
    """Kill a process and all below it: `nsenter` does not pass signals on."""
    with contextlib.suppress(psutil.Error):
        for each in [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]:
            with contextlib.suppress(psutil.Error):
                each.kill()
    process.wait()


def entering(pid: int, *argv: str, cwd: Path | None = None) -> list[str]:
    """The command line that runs a command on the host with that first process.

    The command is a child of what is started so: signals are for that child.
    """
    kinds = ("--net", "--mount", "--uts", "--ipc", "--pid")
    return ["nsenter", "--target", str(pid), *kinds, f"--wdns={cwd or '/'}", "--", *argv]


def _do(*argv: str, inside: int) -> str:
    done = subprocess.run(
        ["nsenter", "--target", str(inside), "--net", "--", *argv],
        capture_output=True,
        text=True,
        timeout=_START_S,
    )
    if done.returncode:
        raise HostsError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def _system(name: str, *arguments: int | bytes | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _check() -> None:
    missing = [name for name in ("ip", "unshare", "nsenter") if shutil.which(name) is None]
    if missing:
        raise HostsError(
            f"tests of hosts apart need {', '.join(missing)} (Debian: iproute2, util-linux)"
        )
    if os.geteuid() != 0:
        raise HostsError("tests of hosts apart make network namespaces: run them as root")
