"""Ends a cluster when nobody uses it any more: `python -m tests.hadoop.guard <folder>`.

Who uses a cluster has a share of its lock (`users`). The guard waits for the whole of it, which the
kernel gives it when the last user has ended, also if that was killed. It has a session of its own,
so that an interrupt of the test run does not reach it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.hadoop import daemons
from tests.hadoop.locks import Lock

_ROOT = Path(__file__).resolve().parents[2]


def users(folder: Path) -> Path:
    """The file whose lock the users of that cluster share."""
    return folder.with_name(f"{folder.name}.users")


def door(folder: Path) -> Path:
    """The file whose lock is held while coming and going: nobody joins a cluster that just ends."""
    return folder.with_name(f"{folder.name}.door")


def begin(folder: Path) -> None:
    """Start a guard. The caller has its share of the lock already."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    guard = subprocess.Popen(
        [sys.executable, "-m", "tests.hadoop.guard", str(folder)],
        cwd=_ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    guard.returncode = 0  # It outlives this process; no warning that nobody waited for it.


def main(folder: Path) -> None:
    """Wait for the last user's end, then end what is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    everybody = Lock(users(folder))
    everybody.take()
    if not everybody.is_current():
        return  # an orderly end: in that folder may be the next cluster by now
    daemons.kill_marked(folder)
    shutil.rmtree(folder, ignore_errors=True)
    entrance = Lock(door(folder))
    if entrance.try_take():  # else somebody comes just now, and uses these files
        forget(folder)


def forget(folder: Path) -> None:
    """Delete the lock files. The caller holds both locks."""
    users(folder).unlink(missing_ok=True)
    door(folder).unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
