"""What is measured of one submission, the same way for everybody who submits."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import psutil

from benchmarks.jobs import LIMIT_S, PROGRAMS, Stuck, ended, until
from tests.hadoop.cluster import Cluster
from tests.hadoop.leftovers import processes

Weigh = Callable[[psutil.Process], bool]

MASTER_MIB = 512
TASK_MIB = 256


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from the start of the submitting command."""

    first_ran: float
    """The first program ran, by its own clock (the cluster is on this machine)."""
    last_ran: float
    exit: float
    """The submitting command, which waits for the application, ended."""
    master_mib: float | None
    """Most memory resident in the application master's process; None unless asked for."""
    agent_mib: float | None = None
    """The same for the largest of the processes beside the programs, where there are such."""


class Submit(Protocol):
    """One way to run the noting program in containers; each submitter's module has its own."""

    def __call__(
        self,
        cluster: Cluster,
        there: Notes,
        containers: int,
        *,
        python: str,
        archive: Path | None = None,
        weigh: bool = False,
    ) -> Submission:
        """Submit and wait for the end.

        ``python`` is a path on the nodes; with an ``archive`` (tar.gz), which is shipped, one
        inside that. ``weigh`` asks for the master's memory, and lets the programs stay for it.
        """
        ...


class Notes:
    """A folder in which programs on the nodes note when they run (`programs/arrived.py`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def program(self, python: str, stay_s: float = 0.0) -> list[str]:
        """The command line to run in each container."""
        return [python, str(PROGRAMS / "arrived.py"), str(self.folder), f"{stay_s:g}"]

    def times(self) -> list[float]:
        """When those ran that have noted it, sorted."""
        files = self.folder.glob("container_*[0-9]")
        return sorted(float(each.read_text()) for each in files)


@contextlib.contextmanager
def notes() -> Iterator[Notes]:
    """An empty folder for them, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="hwb-") as folder:
        yield Notes(Path(folder))


def watch(
    cluster: Cluster,
    there: Notes,
    containers: int,
    line: Sequence[str],
    env: Mapping[str, str],
    *,
    folder: Path | None = None,
    weigh: Weigh | None = None,
    weigh_agent: Weigh | None = None,
) -> Submission:
    """Run a submitting command, in that folder, to its end. Nothing else may run on the cluster.

    ``weigh`` chooses the master's process among the processes of its container, the first one of
    the application, ``weigh_agent`` the agents' among the others'; the programs must then stay a
    little, for them to be seen.

    Raises:
        Stuck: not all programs ran, or the command failed.
    """
    master = agent = None
    wall, begin = time.time(), time.monotonic()
    with tempfile.TemporaryFile() as told:
        process = subprocess.Popen(
            line, env=dict(env), cwd=folder, stdin=subprocess.DEVNULL, stdout=told, stderr=told
        )
        with ended(process):
            if weigh is not None:
                until(lambda: len(there.times()) == containers or process.poll() is not None, "")
                master = _most_resident_mib(cluster, weigh, first=True)
            if weigh_agent is not None:
                agent = _most_resident_mib(cluster, weigh_agent, first=False)
            process.wait(LIMIT_S)
            over = time.monotonic() - begin
        told.seek(0)
        words = told.read().decode(errors="replace")
    times = there.times()
    if len(times) != containers or process.returncode != 0:
        raise Stuck(
            f"{len(times)} of {containers} programs, exit code {process.returncode}:\n"
            + "\n".join(words.splitlines()[-20:])
        )
    return Submission(
        first_ran=times[0] - wall,
        last_ran=times[-1] - wall,
        exit=over,
        master_mib=master,
        agent_mib=agent,
    )


def settle(cluster: Cluster) -> None:
    """Wait until the cluster has nothing to do: one measurement must not burden the next."""
    until(lambda: cluster.containers_running() == 0 and not processes(cluster), "an idle cluster")


def _most_resident_mib(cluster: Cluster, weigh: Weigh, *, first: bool) -> float | None:
    found: list[float] = []
    for process in processes(cluster):
        with contextlib.suppress(psutil.Error, OSError):
            container = process.environ().get("CONTAINER_ID", "")
            if container.endswith("_000001") is first and weigh(process):
                status = Path(f"/proc/{process.pid}/status").read_text()
                peak = next(x for x in status.splitlines() if x.startswith("VmHWM:"))
                found.append(int(peak.split()[1]) / 1024)
    return max(found, default=None)
