"""``/tmp`` as another user of the machine has prepared it: jobs step around it."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from howdah.agent import ports
from howdah.backends.gpus import Device, DeviceLocks
from howdah.storage import runtime
from tests.cli.howdah import HOWDAH, WAIT_S

STRANGER = 54321
DEVICES = [Device(uuid=f"GPU-{n}", index=str(n)) for n in range(2)]


def closed(path: Path) -> None:
    """A folder of somebody else's that nobody else may enter."""
    path.mkdir(mode=0o700)
    strangers(path)


def open_to_all(path: Path) -> None:
    """A folder that somebody else may write to."""
    path.mkdir()
    path.chmod(0o777)


def link(path: Path) -> None:
    """A link to where somebody wants something made."""
    (path.parent / "elsewhere").mkdir()
    path.symlink_to(path.parent / "elsewhere")


def file(path: Path) -> None:
    path.touch()


def strangers(path: Path) -> None:
    """Give it to another user, where this one may; else take all rights away."""
    if os.getuid() == 0:
        os.chown(path, STRANGER, STRANGER)
    else:
        path.chmod(0)


PLANTED = [closed, open_to_all, link, file]


@pytest.mark.parametrize(
    "plant", [closed, *(pytest.param(plant, marks=pytest.mark.nightly) for plant in PLANTED[1:])]
)
def test_a_job_runs_where_its_socket_folder_was_made_by_somebody_else(
    tmp_path_factory: pytest.TempPathFactory, plant: Callable[[Path], None]
) -> None:
    """Finding 10: `/tmp/howdah-<uid>` already exists: another user's folder, a link or a file. Jobs
    use a different folder, and find it again."""
    place = Path(os.environ["HOWDAH_RUNTIME_DIR"]) / plant.__name__  # sockets need short paths
    place.mkdir()
    usual = place / f"howdah-{os.getuid()}"
    plant(usual)
    before = usual.lstat()
    env = {**os.environ, "HOWDAH_RUNTIME_DIR": str(place)}
    done = subprocess.run(
        [*HOWDAH, "run", "--role", "worker=2", "--", sys.executable, "-c", "print('ran')"],
        cwd=tmp_path_factory.mktemp("job"),
        env=env,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ran") >= 2
    assert usual.lstat().st_mode == before.st_mode and usual.lstat().st_uid == before.st_uid
    if plant is link:
        assert list((place / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("plant", PLANTED)
def test_ports_are_reserved_whatever_stands_in_the_place_of_their_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: Callable[[Path], None]
) -> None:
    """Finding 10: Another user makes the folder of port locks first, or puts a link there. Ports
    are reserved and locked all the same, and nothing is made where the link leads."""
    monkeypatch.setattr(ports, "BASE", tmp_path)
    plant(tmp_path / f"howdah-{os.getuid()}")
    reservation = ports.reserve(2, "127.0.0.1", (21000, 29999))
    assert len(reservation.ports) == 2
    assert ports.lock(reservation.ports[0]) is None, "another agent keeps away"
    reservation.release()
    if plant is link:
        assert list((tmp_path / "elsewhere").iterdir()) == []


def test_nobody_else_can_see_or_take_the_locks_of_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 6: Another user reads from the names of lock files which ports are about to be bound,
    or locks them all. The locks are in a folder that only their user can enter."""
    monkeypatch.setattr(ports, "BASE", tmp_path)
    reservation = ports.reserve(1, "127.0.0.1", (21000, 29999))
    folder = ports.folder()
    assert (folder / f"{reservation.ports[0]}.lock").exists()
    for each in (folder, folder.parent):
        assert each.stat().st_mode & 0o777 == 0o700
    reservation.release()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process of the host has that lock."""
    code = (
        "import fcntl, os, sys; fd = os.open(sys.argv[1], os.O_RDONLY | os.O_CREAT, 0o644);"
        "fcntl.flock(fd, fcntl.LOCK_EX); print('locked', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    try:
        yield
    finally:
        process.communicate()


def taken(locks: DeviceLocks) -> tuple[list[str], float]:
    """GPUs that are had, asking as the backends do, and after how many seconds."""
    began = time.monotonic()
    while (found := locks.take(DEVICES, lambda free: free)) is None:
        assert time.monotonic() - began < 10
        time.sleep(0.01)
    for _, descriptor in found:
        os.close(descriptor)
    return [device.uuid for device, _ in found], time.monotonic() - began


def test_a_stranger_who_keeps_the_lock_on_choosing_gpus_keeps_nobody_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Finding 10: Someone keeps `/tmp/howdah-gpus/all.lock` locked forever. GPUs are chosen without
    it, and a device that another job holds is still not given twice."""
    folder = tmp_path / "locks"
    locks = DeviceLocks(folder)
    assert taken(locks)[0] == ["GPU-0", "GPU-1"]
    with locked(folder / "all.lock"), locked(folder / "GPU-0.lock"):
        devices, _ = taken(locks)
    assert devices == ["GPU-1"]
    assert "GPUs are chosen without it" in caplog.text


@pytest.mark.parametrize("plant", [link, file, closed])
def test_gpus_are_had_whatever_stands_in_the_place_of_their_locks(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    plant: Callable[[Path], None],
) -> None:
    """Finding 10: `/tmp/howdah-gpus` is a link, a file or a closed folder. GPUs are locked in a
    folder of the user's own, with a warning, and nothing is made where the link leads."""
    if plant is closed and os.getuid() == 0:
        pytest.skip("root enters every folder")
    monkeypatch.setenv(runtime.VARIABLE, str(tmp_path))
    folder = tmp_path / "locks"
    plant(folder)
    devices, _ = taken(DeviceLocks(folder))
    assert devices == ["GPU-0", "GPU-1"]
    assert f"{folder} can't be used" in caplog.text
    if plant is link:
        assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("what", ["pipe", "socket", "link", "folder"])
def test_a_gpu_lock_that_is_no_file_blocks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A lock of GPUs is a named pipe, a socket, a link or a folder. No job waits for it, and
    nothing is locked through it."""
    monkeypatch.setenv(runtime.VARIABLE, str(tmp_path))
    folder = tmp_path / "locks"
    folder.mkdir()
    (tmp_path / "victim").touch()
    for name in ("all.lock", "GPU-0.lock"):
        if what == "pipe":
            os.mkfifo(folder / name)
        elif what == "link":
            (folder / name).symlink_to(tmp_path / "victim")
        elif what == "folder":
            (folder / name).mkdir()
        else:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.bind(str(folder / name))
    with (tmp_path / "victim").open() as victim:
        fcntl.flock(victim, fcntl.LOCK_EX)
        devices, _ = taken(DeviceLocks(folder))
    assert devices == ["GPU-0", "GPU-1"]
