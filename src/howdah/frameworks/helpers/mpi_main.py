"""One task of an MPI job. Run with the user's interpreter; standard library only.

Where the job's ranks are started by mpirun (HOWDAH_MPI_NODES), the chief runs the user's command, in which
mpirun finds its hosts and reaches them without ssh; every task that is a node runs what it is sent, until
the chief's command has ended. See ``mpi_remote.py``.

Otherwise this runs the user's program, and ends it if it loads an MPI library: nobody has told that
library of the other tasks, so ``MPI_Init`` would give each a world of its own, and the job a wrong result.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import mpi_remote  # pyright: ignore[reportMissingImports] - beside this file where it is started

LIBRARY = re.compile(r"\S*/lib(?:mpi|mpich|mpi_abi|mpi_cxx)\.so\S*")
"""Open MPI's, MPICH's and those built from it, and the one of MPI's standard ABI."""
STARTED_BY_MPIRUN = (b"PMIX_RANK=", b"PMI_RANK=", b"PMI_FD=", b"PMI_PORT=")
MEMORY = Path("/dev/shm")  # noqa: S108 - for a folder 0700
HYDRA = ("HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP")


def main() -> int:
    argv = sys.argv[1:]
    if "HOWDAH_MPI_NODES" not in os.environ:
        return alone(argv)
    with contextlib.ExitStack() as stack:
        own = os.environ.get("HOWDAH_MPI_NODE")
        server = None
        if own:
            stack.enter_context(shared_memory())
            server = mpi_remote.CommandServer(mpi_remote.nodes()[own])
        if os.environ.get("HOWDAH_IS_CHIEF") == "true":
            code = start(argv, chiefs_environment()).wait()
            if code == 0:
                for node in mpi_remote.nodes():
                    if node != own:
                        mpi_remote.ask(node, {"end": 0})
        else:
            signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
            code = server.wait() if server is not None else 0
    return end(code)


def start(argv: list, env: Any = None) -> subprocess.Popen:
    """Start the user's command. Told to end, this process waits for its end: it is told as well."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: None)
    try:
        return subprocess.Popen(argv, env=env)
    except OSError as error:
        print(f"cannot start {argv[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def end(code: Any) -> int:
    """What to exit with after a child; one that a signal has ended ends this process by the same."""
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


# -- mpirun ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def shared_memory():
    """A folder for this task's shared memory: Open MPI names its files after host and local rank, which
    two tasks of one host have in common. What killed ones have left is removed."""
    if not MEMORY.is_dir():
        yield
        return
    for old in MEMORY.glob("howdah-mpi-*"):
        with contextlib.suppress(OSError, ValueError):
            if (
                old.stat().st_uid == os.getuid()
                and not Path(f"/proc/{int(old.name.split('-')[2])}").exists()
            ):
                shutil.rmtree(old)
    folder = tempfile.mkdtemp(prefix=f"howdah-mpi-{os.getpid()}-", dir=MEMORY)
    for name in ("vader", "sm"):
        os.environ.setdefault(f"OMPI_MCA_btl_{name}_backing_directory", folder)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def chiefs_environment() -> dict:
    """What tells Open MPI 4 and 5, and Hydra (MPICH, Intel MPI), of the nodes and the way to them."""
    folder = Path(os.environ["HOWDAH_CHECKPOINT_REQUEST"]).parent / "mpi"
    folder.mkdir(mode=0o700, exist_ok=True)
    slots = mpi_remote.slots()
    hostfile = folder / "hostfile"
    hostfile.write_text("".join(f"{node} slots={n}\n" for node, n in slots.items()), "utf-8")
    machines = folder / "machinefile"  # Hydra's own form
    machines.write_text("".join(f"{node}:{n}\n" for node, n in slots.items()), "utf-8")
    remote = program(folder / "remote", "mpi_remote.py")
    for name in ("mpirun", "mpiexec"):
        program(folder / name, "mpi_run.py", name)
    env = dict(os.environ)
    env["HOWDAH_MPI_HOSTFILE"] = str(hostfile)
    env["PATH"] = f"{folder}{os.pathsep}{env.get('PATH', os.defpath)}"
    for name, value in (
        ("OMPI_MCA_orte_default_hostfile", str(hostfile)),
        ("OMPI_MCA_plm", "rsh"),
        ("OMPI_MCA_plm_rsh_agent", remote),
        # A tree would have daemons start daemons, from shells whose environment is another.
        ("OMPI_MCA_plm_rsh_no_tree_spawn", "1"),
        ("PRTE_MCA_prte_default_hostfile", str(hostfile)),
        ("PRTE_MCA_plm", "ssh"),
        ("PRTE_MCA_plm_ssh_agent", remote),
        ("PRTE_MCA_plm_ssh_no_tree_spawn", "1"),
        ("HYDRA_HOST_FILE", str(machines)),
        ("I_MPI_HYDRA_HOST_FILE", str(machines)),
        # Ranks have the variables of their own task, not those of the chief's.
        ("HYDRA_ENV", "none"),
    ):
        env[name] = value
    for name in HYDRA:
        env[name] = "rsh"
        env[f"{name}_EXEC"] = remote
    # Of this task, not of the ranks that mpirun hands its environment to.
    for name in [n for n in env if n.endswith("_backing_directory")]:
        del env[name]
    return env


def program(path: Path, helper: str, *arguments: str) -> str:
    """A program of that path that runs a helper with this interpreter."""
    words = (sys.executable, Path(__file__).with_name(helper), *arguments)
    quoted = " ".join("'" + str(word).replace("'", "'\\''") + "'" for word in words)
    path.write_text(f'#!/bin/sh\nexec {quoted} "$@"\n', "utf-8")
    path.chmod(0o700)
    return str(path)


# -- no mpirun -------------------------------------------------------------------------------------


def alone(argv: list) -> int:
    """Run the program; see that it does not take part in MPI by itself."""
    child = start(argv)
    world = int(os.environ.get("HOWDAH_WORLD_SIZE", "1"))
    pause = 0.02
    while world > 1 and child.poll() is None:
        library = loaded(child.pid)
        if library:
            child.kill()
            child.wait()
            print(
                f"howdah: refused: the program has loaded {library}, and no mpirun has started it: "
                f"each of the {world} would be alone in an MPI world of its own. Start it with "
                f'mpirun, which reaches all tasks: command = "mpirun -np {world} …"; for programs '
                'that are independent use framework = "command".',
                file=sys.stderr,
                flush=True,
            )
            return 1
        time.sleep(pause)
        pause = min(pause * 1.02, 0.25)
    return end(child.wait())


def loaded(pid: int) -> str:
    """The MPI library of a process, or of one that it started, where no mpirun started that; or ""."""
    try:
        found = LIBRARY.search(Path(f"/proc/{pid}/maps").read_text("utf-8", "replace"))
        if found:
            given = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            return "" if any(v.startswith(STARTED_BY_MPIRUN) for v in given) else found.group()
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # it has ended, or this is no Linux
        return ""
    for thread in threads:
        with contextlib.suppress(OSError):  # the thread has ended
            for other in (thread / "children").read_text("utf-8").split():
                library = loaded(int(other))
                if library:
                    return library
    return ""


if __name__ == "__main__":
    sys.exit(main())
