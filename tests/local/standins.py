"""Stand-in coordinators and agents for tests of the node daemon."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from howdah.agent.host.processes import become_subreaper
from tests.conformance import standin


def begun(job_dir: Path) -> list[int]:
    """Process ids of all coordinators that have begun, in order."""
    file = job_dir / "begun"
    if not file.exists():
        return []
    lines = file.read_text().split("\n")
    return [int(line) for line in lines[:-1]]


def _begin(job_dir: str) -> int:
    """Note it down; returns how many had begun before."""
    file = Path(job_dir) / "begun"
    with file.open("a") as lines:
        lines.write(f"{os.getpid()}\n")
    return len(file.read_text().splitlines()) - 1


def finishing(job_dir: str) -> int:
    """The job is over at once."""
    _begin(job_dir)
    return 0


def waiting(job_dir: str) -> int:
    """Coordinates until it is killed; ends well once there is a file ``done``."""
    _begin(job_dir)
    while not (Path(job_dir) / "done").exists():
        time.sleep(0.01)
    return 0


def finished_and_failing(job_dir: str) -> int:
    """Dies when the job is over already."""
    _begin(job_dir)
    (Path(job_dir) / "final.json").write_text("{}")
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def reporting(launch_file: str) -> int:
    """An agent that notes what it has inherited, and waits."""
    become_subreaper()
    folder = Path(launch_file).parent
    descriptors = sorted(int(name) for name in os.listdir("/proc/self/fd"))  # noqa: PTH208
    kinds = {number: _target(number) for number in descriptors}
    handled = [s.name for s in signal.Signals if callable(_handler(s)) and s != signal.SIGINT]
    text = {
        "descriptors": {k: v for k, v in kinds.items() if v},
        "handlers": handled,
        "blocked": sorted(int(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "umask": _umask(),
        "session": os.getsid(0) == os.getpid(),
        "cwd": str(Path.cwd()),
        "marker": os.environ.get("HOWDAH_CONTAINER"),
        "stdin": os.read(0, 1) == b"",
        "mode": (Path(launch_file).stat().st_mode & 0o777),
    }
    (folder / "report").write_text(repr(text))
    return standin.main(launch_file)


def _target(number: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{number}").readlink())
    except OSError:
        return ""  # the listing's own


def _handler(number: signal.Signals) -> object:
    try:
        return signal.getsignal(number)
    except ValueError:
        return None


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def failing(job_dir: str) -> int:
    """Never gets anywhere."""
    _begin(job_dir)
    raise RuntimeError("the journal is damaged")
