"""A stand-in agent for backend tests: it does what the launch file's ``source`` says.

The word is not a folder here but one of

- ``wait``: do nothing until told to end
- ``exit:N``: end at once with that code
- ``stubborn``: ignore SIGTERM
- ``children``: start processes that leave session and group, ignore SIGTERM and outlive the agent
- ``hidden``: start one that also drops its environment
- ``locks``: check that the descriptors of the locks are there, and wait

It leaves its process id, and its children's, in ``pids`` in its working folder, or in a file of the
container's name in the folder ``HOWDAH_STANDIN_PIDS``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from howdah.agent.launch import AgentLaunch

_DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.setsid()
if os.fork():
    os._exit(0)
os.setsid()
with open(sys.argv[1], "a") as file:
    file.write(f"{os.getpid()}\\n")
time.sleep(300)
"""


def main(launch_file: str) -> int:
    """As `howdah.agent.main.main`."""
    launch = AgentLaunch(**json.loads(Path(launch_file).read_bytes()))
    elsewhere = os.environ.get("HOWDAH_STANDIN_PIDS")
    pids = Path(elsewhere, launch.container_id) if elsewhere else Path(launch.work_dir, "pids")
    word, _, argument = (launch.source or "wait").partition(":")
    if word == "exit":
        _say(pids)
        print("the stand-in ends as it was told")
        return int(argument)
    if word == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if word == "children":
        _start(pids, 2, None)
        _start(pids, 1, None)
    if word == "hidden":
        _start(pids, 1, {})
    if word == "locks":
        for descriptor in launch.gpu_locks:
            os.fstat(descriptor)
    _say(pids)
    while True:
        time.sleep(60)


def _start(pids: Path, count: int, env: dict[str, str] | None) -> None:
    before = _count(pids)
    for _ in range(count):
        subprocess.run([sys.executable, "-c", _DAEMON, str(pids)], env=env, check=True)
    while _count(pids) < before + count:
        time.sleep(0.01)


def _count(pids: Path) -> int:
    return len(pids.read_text().splitlines()) if pids.exists() else 0


def _say(pids: Path) -> None:
    """The last line is the agent's own, and ends with a word, so that a reader knows it is all."""
    with pids.open("a") as file:
        file.write(f"{os.getpid()} ready\n")
