"""Run one node of a Ray cluster, in the foreground. Run with the user's interpreter; stdlib only.

Role ``head`` starts the cluster, every other role joins it at RAY_ADDRESS. The arguments are handed
to ``ray start``. The head serves Ray's dashboard, and with it the State API, where what it needs is installed
(``ray[default]``); the job page has its token, so it lets its owner in. Ray's sessions live in a short folder
of their own, because Unix socket paths may have 107 bytes only and a job's folder is often longer. It is removed at the end, or, if this process
was killed, by the next one on the host.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from howdah import task

AGENT_PORT = "--dashboard-agent-listen-port"
NODE_PORTS = (
    "--node-manager-port",
    "--object-manager-port",
    AGENT_PORT,
    "--dashboard-agent-grpc-port",
    "--runtime-env-agent-port",
    "--metrics-export-port",
)
HEAD_PORTS = ("--port", "--ray-client-server-port", *NODE_PORTS, "--dashboard-port")
DASHBOARD = ("aiohttp_cors", "colorful", "opencensus", "pydantic", "virtualenv")
"""What ``ray[default]`` brings beside ``ray``."""
LONGEST = 28
"""Characters of a folder that leave room for Ray's socket names."""
LAST_S = 3
"""Seconds a node has to end its processes itself."""


def main() -> int:
    head = os.environ["HOWDAH_ROLE"] == "head"
    ports = os.environ["HOWDAH_PORTS"].split(",")
    argv = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
    argv += ["--disable-usage-stats", "--node-ip-address", os.environ["HOWDAH_HOST"]]
    # Ports of the tasks' own processes: any free one, not Ray's fixed range 10002-19999.
    argv += ["--min-worker-port", "0", "--max-worker-port", "0"]
    for option, port in zip(HEAD_PORTS if head else NODE_PORTS, ports):
        argv += [option, port]
    sessions = make_folder()
    dashboard = None
    if head:
        argv += ["--head", "--temp-dir", str(sessions / "s")]
        if all(find_spec(module) for module in DASHBOARD):
            argv += ["--include-dashboard", "true", "--dashboard-host", os.environ["HOWDAH_HOST"]]
            dashboard = int(ports[HEAD_PORTS.index("--dashboard-port")])
        else:
            argv += ["--include-dashboard", "false"]
    else:
        argv += ["--address", os.environ["RAY_ADDRESS"], "--temp-dir", str(sessions / "s")]
    argv += sys.argv[1:]
    # Told to end, Ray would first wait 30 s for its work to move elsewhere: there is none left.
    os.environ.setdefault("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "0")
    try:
        return run(argv, argv[argv.index(AGENT_PORT) + 1], dashboard)
    finally:
        shutil.rmtree(str(sessions), ignore_errors=True)


def make_folder() -> Path:
    """A folder for sessions, this user's alone; those of processes that are no more are removed.

    Ray lets everybody into the folder it is given, hence one around it.
    """
    place = Path(os.environ.get("HOWDAH_TASK_SOCKET", "/tmp/none")).parent  # noqa: S108 - its parent, for a folder 0700
    if len(str(place)) > LONGEST:
        place = Path("/tmp")  # noqa: S108 - for a folder 0700
    for old in place.glob("howdah-ray-*"):
        pid = old.name.rpartition("-")[2]
        with contextlib.suppress(FileNotFoundError):  # another task has just removed it
            if pid.isdigit() and old.stat().st_uid == os.getuid() and not alive(int(pid)):
                shutil.rmtree(str(old), ignore_errors=True)
    folder = place / f"howdah-ray-{os.getpid()}"
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:  # in /tmp anybody can make it first
        folder = Path(tempfile.mkdtemp(prefix="howdah-ray-", suffix=f"-{os.getpid()}", dir=place))
    return folder


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def run(argv: list, agent_port: str, dashboard: Any = None) -> int:
    """Run Ray's node to its end; asked to end, end it within seconds. Returns what to exit with.

    Ray gets a session of its own: told to end, all its processes at once would wait for each other.
    """
    child = subprocess.Popen(argv, start_new_session=True)
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: ending.set())
    told = False
    while child.poll() is None and not ending.wait(0.2):
        told = told or tell_port(child.pid, agent_port)
        if dashboard is not None and answers(dashboard):
            token = Path(os.environ["RAY_AUTH_TOKEN_PATH"]).read_text("utf-8")
            task.announce_web("Ray", dashboard, locked=True, viewable=False, secret=token)
            dashboard = None
    if child.poll() is None:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(LAST_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    code = child.wait()
    if ending.is_set():
        return 128 + signal.SIGTERM
    return code if code >= 0 else 128 - code


def answers(port: int) -> bool:
    """Whether something listens on a port of this task."""
    with contextlib.suppress(OSError):
        socket.create_connection((os.environ["HOWDAH_HOST"], port), timeout=1).close()
        return True
    return False


def tell_port(parent: int, port: str) -> bool:
    """Tell Ray's node daemon, the raylet, on which port its agent will listen; whether it was told.

    Ray's own ``ray start`` hands it every port but this. It would wait for the agent to write it
    down, 15 s and no more, and on a busy machine die (https://github.com/ray-project/ray/issues/65983).
    """
    try:
        for thread in Path(f"/proc/{parent}/task").iterdir():
            for child in (thread / "children").read_text("utf-8").split():
                words = Path(f"/proc/{child}/cmdline").read_text("utf-8", "replace").split("\0")
                if words[0].endswith("/raylet"):
                    options = {}
                    for word in words:
                        name, _, value = word.lstrip("-").partition("=")
                        options[name] = value
                    file = f"dashboard_agent_listen_port_{options['node_id']}"
                    write_once(Path(options["session_dir"], file), port)
                    return True
    except (OSError, KeyError):  # it has ended, or this is another Ray or system
        pass
    return False


def write_once(path: Path, text: str) -> None:
    """Write a file that is there completely or not at all; one that is there stays."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(text, "utf-8")
    with contextlib.suppress(FileExistsError):
        os.link(str(temporary), str(path))
    temporary.unlink()


if __name__ == "__main__":
    sys.exit(main())
