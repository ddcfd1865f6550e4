"""What this machine offers to jobs, and what would get in their way. Looks, changes nothing."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import resource
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from howdah.agent.host.tcp_table import LISTEN, tables
from howdah.backends import registry as backends
from howdah.backends.base import BackendError, Running
from howdah.backends.findings import DoctorFinding, Health, fine, problem, warning
from howdah.backends.gpus import GpuError, allowed, nvml_devices
from howdah.backends.local import processes, runtime_paths
from howdah.client.lookup.site import running, site_of
from howdah.client.submission.begin import backend_of_site
from howdah.frameworks import registry as frameworks
from howdah.packing.archives import PackingError, cache_folder
from howdah.packing.python import uv
from howdah.spec import site
from howdah.spec.model import Network
from howdah.spec.problems import JobFileError
from howdah.spec.units import port_range
from howdah.storage import ownership
from howdah.storage.jobdir import JobDirectory, StorageError, base_folder, list_jobs, may_be_made

LEAST_DISK = 1024**3
LEAST_FILES = 1024
LEAST_SHARED_MEMORY = 512 * 1024**2
FULL_PORTS = 0.5
"""Share of the port range in use from which it is worth a word."""

PACKAGES = (
    "tensorflow",
    "torch",
    "jax",
    "xgboost",
    "xgboost-cpu",
    "lightgbm",
    "distributed",
    "ray",
    "horovod",
    "mxnet",
    "tensorboard",
)


__all__ = ["DoctorFinding", "Health", "examine"]


def examine(store: str | None = None) -> Iterator[DoctorFinding]:
    """Look at this machine; a look that fails by itself is a finding, not an end."""
    looks: tuple[Callable[[], Iterator[DoctorFinding]], ...] = (
        _python,
        _machine,
        _site_file,
        lambda: _jobs_folder(store),
        _archives,
        _sockets,
        _network,
        _ports,
        _limits,
        _py_spy,
        _uv,
        _gpus,
        _packages,
        _plugins,
        lambda: _leftovers(store),
    )
    for look in looks:
        try:
            yield from look()
        except Exception as error:
            name = getattr(look, "__name__", "look").strip("_<>")
            yield warning(name, f"could not be looked at: {type(error).__name__}: {error}")


def _python() -> Iterator[DoctorFinding]:
    text = f"{platform.python_version()} at {sys.executable}"
    if ssl.HAS_TLSv1_3:
        yield fine("Python", f"{text}, {ssl.OPENSSL_VERSION}")
    else:
        yield problem(
            "Python",
            f"{text} has {ssl.OPENSSL_VERSION}, which has no TLS 1.3",
            "use a Python built with OpenSSL 1.1.1 or newer",
        )


def _machine() -> Iterator[DoctorFinding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    text = f"{platform.system()} {platform.machine()}, {cores} cores, load {os.getloadavg()[0]:.1f}"
    memory = _memory()
    if memory is not None:
        text += f", {memory[1] / 1024**3:.1f} of {memory[0] / 1024**3:.1f} GiB memory available"
    yield fine("machine", text)
    shared = Path("/dev/shm")  # noqa: S108 - only looked at
    if shared.is_dir():
        room = shutil.disk_usage(shared).total
        if room < LEAST_SHARED_MEMORY:
            yield warning(
                "shared memory",
                f"{shared} has {room >> 20} MiB; data loaders with worker processes need more",
                "in a container: start it with --shm-size=2g, or with --ipc=host",
            )


def _memory() -> tuple[int, int] | None:
    """Bytes of memory, and of them available."""
    try:
        lines = Path("/proc/meminfo").read_text("utf-8").splitlines()
    except OSError:
        return None
    sizes = {
        name: int(rest.split()[0]) * 1024 for name, _, rest in (x.partition(":") for x in lines)
    }
    return sizes["MemTotal"], sizes["MemAvailable"]


def _site_file() -> Iterator[DoctorFinding]:
    if (path := site.find(os.environ)) is None:
        return
    try:
        backend = backend_of_site()
    except JobFileError as error:
        told = "; ".join(map(str, error.problems))
        yield problem("site file", told, "correct it: until then no job is taken")
    else:
        yield fine("site file", f"{path}{f', backend {backend}' if backend else ''}")


def _jobs_folder(store: str | None) -> Iterator[DoctorFinding]:
    try:
        base = base_folder(store)
    except StorageError as error:
        yield problem("job directories", str(error))
        return
    if not may_be_made(base):
        yield problem(
            "job directories",
            f"{base} cannot be written",
            "set HOWDAH_HOME to a folder of your own",
        )
        return
    if why := ownership.exposed(base):
        yield problem(
            "job directories",
            f"{why}: somebody else could put jobs there",
            f"set HOWDAH_HOME to a folder of your own, or make that one yours and {ownership.REMEDY}",
        )
        return
    free = shutil.disk_usage(
        next(folder for folder in (base, *base.parents) if folder.exists())
    ).free
    text = f"{base}, {free / 1024**3:.1f} GiB free"
    if free < LEAST_DISK:
        yield warning("job directories", text, "make room, or set HOWDAH_HOME to a larger disk")
    else:
        yield fine("job directories", text)


def _archives() -> Iterator[DoctorFinding]:
    folder = cache_folder()
    if why := ownership.exposed(folder):
        yield problem(
            "archives",
            f"{why}: somebody else could put programs there",
            f"remove {folder}, or set XDG_CACHE_HOME to a folder of your own; of a folder above, "
            f"{ownership.REMEDY}",
        )


def _sockets() -> Iterator[DoctorFinding]:
    try:
        path = runtime_paths.socket_path(Path("/job"))
    except BackendError as error:
        yield problem("sockets", str(error))
        return
    with contextlib.suppress(OSError):
        path.parent.rmdir()  # made by the look, unless it was there and in use
    yield fine("sockets", str(path.parent))


def _network() -> Iterator[DoctorFinding]:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=2).close()
    except OSError as error:
        yield problem(
            "network",
            f"a program cannot connect to another one on 127.0.0.1: {error}",
            "look at the firewall's and the container's rules for the loopback interface",
        )
        return
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        yield warning(
            "network",
            f"the host's own name {name} has no address; some frameworks look it up",
            f"add a line '127.0.0.1 {name}' to /etc/hosts",
        )
        return
    yield fine("network", f"127.0.0.1 works, {name} is {address}")


def _ports() -> Iterator[DoctorFinding]:
    first, last = port_range(Network().ports)
    text = f"{first}-{last}"
    try:
        low, high = map(
            int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("utf-8").split()
        )
    except OSError:
        low, high = 0, -1
    if low <= last and first <= high:
        yield warning(
            "ports",
            f"the range {text} overlaps the kernel's own {low}-{high}, from which any connection "
            "may take a port",
            f"give jobs another range ([network] ports), or: sysctl -w "
            f"net.ipv4.ip_local_port_range='{max(last + 1, 32768)} 60999'",
        )
        return
    used = _listening(first, last)
    share = used / (last - first + 1)
    if share > FULL_PORTS:
        yield warning("ports", f"{share:.0%} of {text} are in use", "see 'howdah list'")
    else:
        yield fine("ports", f"{text}, {used} in use")


def _listening(first: int, last: int) -> int:
    """Ports of the range some socket on this machine listens on."""
    rows = (line.split() for table in tables() for line in table.splitlines()[1:])
    used = {int(row[1].rpartition(b":")[2], 16) for row in rows if row[3] == LISTEN}
    return sum(first <= port <= last for port in used)


def _limits() -> Iterator[DoctorFinding]:
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < LEAST_FILES:
        yield warning(
            "open files",
            f"a process may open {files}; many tasks need more",
            f"ulimit -n {most if most != resource.RLIM_INFINITY else 65536}",
        )
    else:
        yield fine("open files", "no limit" if files == resource.RLIM_INFINITY else str(files))


def _py_spy() -> Iterator[DoctorFinding]:
    beside = Path(sys.executable).with_name("py-spy")
    tool = str(beside) if beside.exists() else shutil.which("py-spy")
    if tool is None:
        yield warning(
            "py-spy",
            "not found: a hung task's stacks cannot be shown",
            f"{sys.executable} -m pip install py-spy",
        )
        return
    # A child of ours that sleeps stands for a task beside the agent that takes its stacks.
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert sleeper.stdout is not None
        sleeper.stdout.readline()  # or py-spy may meet an interpreter that has not begun
        dump = subprocess.run(
            [tool, "dump", "--pid", str(sleeper.pid)], capture_output=True, text=True, timeout=15
        )
    finally:
        sleeper.kill()
        sleeper.communicate()
    if dump.returncode == 0:
        yield fine("py-spy", "can show the stacks of tasks")
        return
    words = (dump.stderr.strip().splitlines() or ["it failed"])[0]
    yield warning(
        "py-spy",
        f"cannot look into other processes: {words}",
        "allow it with: sysctl -w kernel.yama.ptrace_scope=0, in a container --cap-add SYS_PTRACE",
    )


def _uv() -> Iterator[DoctorFinding]:
    try:
        yield fine("uv", uv.find())
    except PackingError:
        text = "not found: an [environment] of requirements or a project cannot be built here"
        yield warning("uv", text, f"{sys.executable} -m pip install uv")


def _gpus() -> Iterator[DoctorFinding]:
    try:
        devices = nvml_devices()
    except GpuError as error:
        yield warning("GPUs", str(error))
        return
    visible = allowed(devices, os.environ.get("CUDA_VISIBLE_DEVICES"))
    if not visible:
        usable = len(allowed(devices, None))
        hidden = f"; CUDA_VISIBLE_DEVICES hides {usable}" if usable else ""
        yield fine("GPUs", f"none{hidden}")
    for device in visible:
        use = ", in use by some program" if device.busy else ""
        memory = f", {device.memory_mb >> 10} GiB" if device.memory_mb else ""
        name = device.name or f"GPU {device.index}"
        yield fine("GPUs", f"{name}{memory}, {device.uuid}{use}")
    for device in devices:
        if device.problem:
            yield warning(
                f"GPU {device.index}", f"can't be used: {device.problem}", "see nvidia-smi"
            )


def _packages() -> Iterator[DoctorFinding]:
    found: list[str] = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    yield fine("packages", ", ".join(found) or "no framework is installed next to Howdah")


def _plugins() -> Iterator[DoctorFinding]:
    for kind, broken in (("framework", frameworks.broken()), ("backend", backends.broken())):
        for name, reason in broken.items():
            yield warning(f"{kind} {name}", reason, "repair or remove that package")


def _leftovers(store: str | None) -> Iterator[DoctorFinding]:
    """Jobs without a coordinator, and processes of jobs that are over."""
    try:
        jobs = list_jobs(base_folder(store))
    except StorageError:
        return  # told of by the job directories
    here = [job for job in jobs if _runs_here(job)]
    unfinished = [job for job in here if _final(job) is None]
    lost = [job for job in unfinished if running(job) is Running.NO]
    for job in lost:
        yield warning(
            f"job {job.job_id}",
            "has not ended, and has no coordinator any more",
            f"{site_of(job).lost().remedy}; to remove it: howdah rm {job.job_id}",
        )
    ended = {job.job_id for job in here} - {job.job_id for job in unfinished}
    gone = ended.union(job.job_id for job in lost)
    known = {job.job_id for job in jobs} - gone
    for job_id, pids in processes.strays(known).items():
        numbers = " ".join(map(str, pids))
        if job_id in gone:
            state = "is over" if job_id in ended else "is lost"
            yield warning(
                f"job {job_id}",
                f"{state}, but has processes that belong to no agent: {numbers}",
                f"end them: kill {numbers}",
            )
        else:
            yield warning(
                f"job {job_id}",
                f"has processes here that belong to no agent of this machine's jobs: {numbers}",
                f"it is not in {base_folder(store)}: look where it is (another --store, a cluster) before "
                "you end them",
            )


def _runs_here(job: JobDirectory) -> bool:
    """Whether its processes are this machine's; what a cluster runs is not looked at."""
    try:
        return job.meta().url is None
    except StorageError:
        return False


def _final(job: JobDirectory) -> object:
    try:
        return job.final()
    except StorageError:
        return "unreadable"
