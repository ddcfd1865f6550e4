"""GPUs of one machine: which there are, which this job may use, which are free.

A device belongs to a container while a process of the container (agent or guard) holds a lock on
the device's file in a folder all users of the host share. Nobody has to give a device back: when
the last of these processes has ended, the kernel has.

Not guaranteed: that a program outside Howdah does not use a device (those that do use one are
taken last), nor that a job which waits for many devices is not overtaken by jobs that want few, nor that
another user does not keep a device locked: whoever may use a machine's devices may have them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from howdah.storage import runtime

LOCK_FOLDER = Path("/tmp/howdah-gpus")  # noqa: S108 - what lies there is never trusted
"""One place for all users of the host, sticky. Its small files stay: a lock on a removed file would
be worth nothing."""
_MODE = 0o1644
"""Of those files, whatever the umask: other users lock them too, and systemd-tmpfiles, which removes
what is old in ``/tmp``, leaves files that have the sticky bit; a lock alone it may not heed."""
CHOOSING_S = 0.5
"""Another job that chooses is not waited for any longer: it takes milliseconds."""
DRIVER = Path("/proc/driver/nvidia/version")
_EVERYTHING = "all.lock"
_TRIES = 20
"""To lock a file that is still in its place afterwards."""

log: logging.Logger = logging.getLogger(__name__)


class GpuError(Exception):
    """GPUs cannot be used; the text is for the user."""


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, or one instance of a partitioned one (MIG)."""

    uuid: str
    """What ``CUDA_VISIBLE_DEVICES`` takes: ``GPU-…`` or ``MIG-…``."""
    index: str
    """Its number; of a MIG instance ``<GPU>:<instance>``."""
    name: str = ""
    """Empty where the driver does not say."""
    memory_mb: int = 0
    """0 where the driver does not say."""
    busy: bool = False
    """Some program uses it now."""
    problem: str = ""
    """Why it cannot be used, in the driver's words; its UUID is not known then."""


Lister = Callable[[], Sequence[Device]]
"""Lists the machine's devices; may take seconds where the driver is not kept loaded."""


def nvml_devices() -> list[Device]:
    """The NVIDIA devices of this machine, also those that cannot be used; none where there is no driver.

    Raises:
        GpuError: there is a driver, but no library to ask it, or it answers with an error.
    """
    try:
        import pynvml as nvml  # the package nvidia-ml-py
    except ImportError:
        if not DRIVER.exists():
            return []
        raise GpuError(
            "This machine has an NVIDIA driver, but the package that asks it is missing: install "
            "it with `pip install 'howdah[gpu]'`"
        ) from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        missing = (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED)
        if getattr(error, "value", None) in missing:
            return []
        raise GpuError(f"The NVIDIA driver answers: {error}") from error
    try:
        found: list[Device] = []
        for number in range(nvml.nvmlDeviceGetCount()):
            found += _devices_of(nvml, number)
        return found
    except nvml.NVMLError as error:
        raise GpuError(f"The NVIDIA driver answers: {error}") from error
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def allowed(devices: Sequence[Device], visible: str | None) -> list[Device]:
    """The usable devices that ``CUDA_VISIBLE_DEVICES=visible`` leaves; all if it is not set.

    As CUDA reads it: indices, UUIDs or beginnings of UUIDs; everything from the first entry on that
    names no device is ignored. Indices are in the order of the bus, whatever CUDA_DEVICE_ORDER.
    """
    if visible is None:
        return [device for device in devices if not device.problem]
    chosen: list[Device] = []
    for word in re.split(r"\s*,\s*", visible.strip()):
        device = _named(devices, word)
        if device is None:
            break
        if device not in chosen and not device.problem:
            chosen.append(device)
    return chosen


def unusable(devices: Sequence[Device]) -> str:
    """Which of the devices cannot be used and why, in words; empty if all can."""
    return "; ".join(f"GPU {d.index} can't be used: {d.problem}" for d in devices if d.problem)


class DeviceLocks:
    """The host's locks on devices."""

    def __init__(self, folder: Path = LOCK_FOLDER) -> None:
        self._folder = folder
        self._refused_since: float | None = None
        self._warned: set[str] = set()

    def take(
        self, devices: Sequence[Device], choose: Callable[[int], int]
    ) -> list[tuple[Device, int]] | None:
        """Lock some of the devices, all at once.

        ``choose`` is told how many are free and says how many are taken. While it decides, no other
        job on the host takes any, so two jobs never hold a part each of what both need.

        Returns the devices with the descriptors that hold their locks; those in use by some
        program outside Howdah come last. None if another job is choosing: try again soon.

        Raises:
            GpuError: the folder for locks cannot be used.
        """
        everything = self._lock(_EVERYTHING)
        if everything is None and not self._waited():
            return None
        self._refused_since = None
        free: list[tuple[Device, int]] = []
        try:
            for device in sorted(devices, key=lambda d: d.busy):
                descriptor = self._lock(_file_name(device))
                if descriptor is not None:
                    free.append((device, descriptor))
            count = choose(len(free))
            taken, free = free[:count], free[count:]
            return taken
        finally:
            for _, descriptor in free:
                os.close(descriptor)
            if everything is not None:
                os.close(everything)

    def _waited(self) -> bool:
        """Whether somebody has had the lock on choosing for so long that it is done without."""
        now = time.monotonic()
        if self._refused_since is None:
            self._refused_since = now
        if now - self._refused_since < CHOOSING_S:
            return False
        self._warn(
            f"{self._folder / _EVERYTHING} has been locked for {CHOOSING_S:g}s, which no job does: GPUs "
            "are chosen without it"
        )
        return True

    def _warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            log.warning(text)

    def _lock(self, name: str) -> int | None:
        for _ in range(_TRIES):
            try:
                path, descriptor = self._folder / name, _open(self._folder, name)
            except OSError as error:
                path, descriptor = self._open_own(name, error)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            # A lock on a file that something has just removed is worth nothing.
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), path.lstat()):
                    return descriptor
            os.close(descriptor)
        return None

    def _open_own(self, name: str, problem: OSError) -> tuple[Path, int]:
        """The lock where somebody has made the shared one unusable."""
        try:
            folder = runtime.private_folder(runtime.base()) / "gpus"
            runtime.retry_with_folder(partial(folder.mkdir, mode=0o700, exist_ok=True))
            self._warn(
                f"{self._folder} can't be used ({problem}): GPUs are locked in {folder}, which jobs "
                "of other users don't see. Ask an administrator to remove it"
            )
            return folder / name, _open(folder, name)
        except OSError as error:
            raise GpuError(
                f"GPUs can't be locked: neither in {self._folder} ({problem}), which must be open to "
                f"all (mode 1777), nor in a folder of your own: {error}"
            ) from error


def _open(folder: Path, name: str) -> int:
    """Open a lock file, made if there is none.

    Raises:
        OSError: folder or file can't be opened, or is none.
    """
    try:
        folder.mkdir()
        folder.chmod(0o1777)
    except FileExistsError:
        pass
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        descriptor = _open_in(at, name)
    finally:
        os.close(at)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "is no file", f"{folder}/{name}")
    if status.st_uid == os.getuid() and not status.st_mode & stat.S_ISVTX:
        # Made by an earlier release. No more than that bit: it may be a link to another file of ours.
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) | stat.S_ISVTX)
    return descriptor


def _open_in(folder: int, name: str) -> int:
    # Without O_CREAT first: in a sticky folder the kernel may refuse it for others' files.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with contextlib.suppress(FileNotFoundError):
        return os.open(name, flags, dir_fd=folder)
    try:
        descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
    except FileExistsError:
        return os.open(name, flags, dir_fd=folder)
    os.fchmod(descriptor, _MODE)
    return descriptor


def _file_name(device: Device) -> str:
    return re.sub(r"[^A-Za-z0-9-]", "_", device.uuid) + ".lock"


def _named(devices: Sequence[Device], word: str) -> Device | None:
    if word.isdecimal():
        matching = [d for d in devices if d.index == word]
    elif word.startswith(("GPU-", "MIG-")):
        matching = [d for d in devices if d.uuid.startswith(word)]
    else:
        matching = []
    return matching[0] if len(matching) == 1 else None


# nvidia-ml-py has no types.
def _devices_of(nvml, number: int) -> list[Device]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
    except nvml.NVMLError as error:
        return [Device(uuid="", index=str(number), problem=str(error))]
    try:
        partitioned = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    except nvml.NVMLError:  # a model that has no such mode
        partitioned = False
    if not partitioned:
        return [_device(nvml, handle, str(number))]
    found: list[Device] = []
    for instance in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, instance)
        except nvml.NVMLError:  # not every place is filled
            continue
        found.append(_device(nvml, part, f"{number}:{instance}"))
    return found


def _device(nvml, handle, index: str) -> Device:
    try:
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
    except nvml.NVMLError as error:  # it has fallen off the bus
        return Device(uuid="", index=index, problem=str(error))
    busy, name, memory_mb = False, "", 0
    # Each by itself: the GB10 has no memory of its own, and answers so.
    with contextlib.suppress(nvml.NVMLError):
        busy = bool(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    with contextlib.suppress(nvml.NVMLError):
        name = _text(nvml.nvmlDeviceGetName(handle))
    with contextlib.suppress(nvml.NVMLError):
        memory_mb = nvml.nvmlDeviceGetMemoryInfo(handle).total >> 20
    return Device(uuid=uuid, index=index, name=name, memory_mb=memory_mb, busy=busy)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
