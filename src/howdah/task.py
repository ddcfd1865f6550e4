"""What a training script may import: who it is, and how to tell Howdah how it is doing.

Optional: no script needs it. Standard library only, Python 3.8 or newer, one file, so that it
works in whatever environment the script runs in. Outside Howdah everything works too: `context`
describes a single process, and what is told goes nowhere.

    from howdah import task

    me = task.context()
    for step in range(start, steps):
        loss = train_step()
        task.report(step=step, loss=loss)
        if task.checkpoint_requested():
            save(me.checkpoint_dir)
            task.checkpoint_saved(step)
"""

from __future__ import annotations

import atexit
import collections
import errno
import json
import os
import socket
import threading
from pathlib import Path
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

__all__ = [
    "Context",
    "announce_web",
    "checkpoint_requested",
    "checkpoint_saved",
    "context",
    "joined",
    "page_token",
    "report",
]

_LAST_TRY_S = 0.5
_MOST_WAITING = 10000
"""Reports that wait for a busy agent. What comes then is merged."""
"""At the end of the process what could not be sent before is tried for so long."""


class Context(NamedTuple):
    """Who this process is. Folders are absolute paths and exist."""

    role: str
    """Name of the role, such as ``worker``."""
    index: int
    """Index of the task in its role, from 0."""
    rank: Optional[int]
    """Rank of this process in the job's world; None for a role that has no ranks."""
    world_size: int
    """Number of ranks in the world."""
    local_rank: int
    """Which of its task's processes this is, from 0."""
    local_world_size: int
    """How many processes its task has."""
    is_chief: bool
    """Whether this is rank 0."""
    generation: int
    """How often the gang has been formed; grows with each restart of all."""
    attempt: int
    """How often this task was started."""
    job_id: str
    """Empty outside Howdah."""
    host: str
    """The address peers reach this task at."""
    ports: Tuple[int, ...]
    """Ports reserved for this task."""
    cluster: Dict[str, List[str]]
    """``host:port`` of every task, by role and index; empty for one of mode each that this task does
    not wait for. No entries at all in gangs of thousands, whose addresses no variable can hold."""
    checkpoint_dir: Path
    """What is written here is saved and brought back, if the job has a `[checkpoint]` table."""
    restored: Optional[str]
    """The checkpoint that was brought back into `checkpoint_dir` before the start, if any."""
    output_dir: Path
    """What is written here is copied to the job's outputs, if the job has an `[outputs]` table."""
    tensorboard_dir: str
    """Where to write summaries: a path, or a URL if the job says so."""
    log_dir: Path
    """Folder of this task's logs."""
    shared_dir: Path
    """A folder all tasks of the job see."""


def context() -> Context:
    """Who this process is.

    Outside Howdah: ``worker:0`` of a world of one, with its folders in ``howdah-local`` below the
    current one.
    """
    env = os.environ
    local = Path.cwd() / "howdah-local"
    inside = "HOWDAH_JOB_ID" in env
    rank = _integer("HOWDAH_RANK", None if inside else 0)
    found = Context(
        role=env.get("HOWDAH_ROLE", "worker"),
        index=_integer("HOWDAH_INDEX", 0) or 0,
        rank=rank,
        world_size=_integer("HOWDAH_WORLD_SIZE", 1) or 0,
        local_rank=_integer("HOWDAH_LOCAL_RANK", 0) or 0,
        local_world_size=_integer("HOWDAH_LOCAL_WORLD_SIZE", 1) or 1,
        is_chief=env.get("HOWDAH_IS_CHIEF", "false" if inside else "true") == "true",
        generation=_integer("HOWDAH_GENERATION", 1) or 1,
        attempt=_integer("HOWDAH_ATTEMPT", 1) or 1,
        job_id=env.get("HOWDAH_JOB_ID", ""),
        host=env.get("HOWDAH_HOST", "127.0.0.1"),
        ports=tuple(int(port) for port in env.get("HOWDAH_PORTS", "").split(",") if port),
        cluster=_cluster(env.get("HOWDAH_CLUSTER", "")),
        checkpoint_dir=Path(env.get("HOWDAH_CHECKPOINT_DIR") or local / "checkpoints"),
        restored=env.get("HOWDAH_RESTORED"),
        output_dir=Path(env.get("HOWDAH_OUTPUT_DIR") or local / "outputs"),
        tensorboard_dir=env.get("HOWDAH_TENSORBOARD_DIR") or str(local / "tensorboard"),
        log_dir=Path(env.get("HOWDAH_LOG_DIR") or local / "logs"),
        shared_dir=Path(env.get("HOWDAH_SHARED_DIR") or local / "shared"),
    )
    for folder in (found.checkpoint_dir, found.output_dir, found.log_dir, found.shared_dir):
        folder.mkdir(parents=True, exist_ok=True)
    return found


def report(step: Optional[float] = None, total: Optional[float] = None, **values: Any) -> None:
    """Tell how training goes: a step, how many there are in ``total``, and any numbers (``loss=0.3``).

    They are shown on the job's page and kept as time series; a step is also proof of progress, and with
    ``total`` the page and the terminal show how much is done and how long the rest takes at this pace.
    It costs some 10 µs, never waits and never raises: values that are no numbers are left out,
    and each report is kept, up to some 10,000 a second of a job.
    """
    document: Dict[str, Any] = {}
    if step is not None:
        document["step"] = step
    if total is not None:
        document["total"] = total
    document.update(values)
    _told.send(document)


def joined() -> None:
    """Tell that this process has found its peers, where its ports and connections do not show it."""
    _told.send({"joined": True})


def checkpoint_requested() -> bool:
    """Whether Howdah asks for a checkpoint now: the container will be taken away, for example.

    True from the request on until this process calls `checkpoint_saved`. Cheap enough for every
    step. Where all ranks must save together let one of them ask, and tell the others.
    """
    return _requests.pending()


def checkpoint_saved(step: Optional[float] = None) -> None:
    """Tell that a checkpoint is complete: it is copied at once rather than when files settle."""
    _requests.answered()
    document: Dict[str, Any] = {"checkpoint": True}
    if step is not None:
        document["step"] = step
    _told.send(document)


def announce_web(
    name: str,
    port: int,
    path: str = "/",
    host: Optional[str] = None,
    keeps_prefix: bool = False,
    locked: bool = False,
    viewable: bool = True,
    secret: Optional[str] = None,
) -> None:
    """Tell that this process serves a web page, to be linked and reached through the job's page.

    It is linked once a process of this task listens on the port, and for as long as one does.

    ``keeps_prefix``: the server expects the whole path it is asked for through the job's page,
    with the prefix that page puts before it. ``locked``: the server answers only requests that
    carry `page_token`, as ``Authorization: Bearer`` (the job's page adds it) or as the query's
    ``token`` (``howdah tunnel`` prints such an address). ``secret``: what it demands in place of
    `page_token`. ``viewable``: people who may only look at
    the job may look at this page.
    """
    web: Dict[str, Any] = {
        "name": name,
        "port": int(port),
        "path": path,
        "keeps_prefix": bool(keeps_prefix),
        "locked": bool(locked),
        "viewable": bool(viewable),
    }
    if host is not None:
        web["host"] = host
    if secret is not None:
        web["secret"] = secret
    _told.send({"web": web})


def page_token() -> Optional[str]:
    """The secret that this task's pages may demand: fresh for each attempt, known to Howdah alone.

    None outside Howdah.
    """
    path = os.environ.get("HOWDAH_PAGE_TOKEN_FILE")
    if not path:
        return None
    with open(path, encoding="utf-8") as file:
        return file.read()


# -- inside --------------------------------------------------------------------------------------


class _Teller:
    """Sends datagrams to the agent without ever waiting for it."""

    def __init__(self) -> None:
        self.forked()

    def forked(self) -> None:
        """Begin anew: a child does not repeat what its parent had to tell."""
        # Re-entrant: a signal handler may report while its own thread does.
        self._lock = threading.RLock()
        self._socket: Optional[socket.socket] = None
        self._waiting: Deque[Dict[str, Any]] = collections.deque()
        """What could not be sent yet."""

    def send(self, document: Dict[str, Any]) -> None:
        address = os.environ.get("HOWDAH_TASK_SOCKET")
        if not address:
            return
        try:
            with self._lock:
                self._add(document)
                self._flush(address)
        except Exception:  # noqa: S110 - training goes on whatever becomes of a report
            pass

    def last_try(self) -> None:
        address = os.environ.get("HOWDAH_TASK_SOCKET")
        if not address or not self._waiting:
            return
        try:
            with self._lock:
                self._own_socket().settimeout(_LAST_TRY_S)
                self._flush(address)
        except Exception:  # noqa: S110 - training goes on whatever becomes of a report
            pass

    def _add(self, document: Dict[str, Any]) -> None:
        clean = {key: _plain(value) for key, value in document.items()}
        clean = {key: value for key, value in clean.items() if value is not None}
        numbers = "web" not in clean and "checkpoint" not in clean
        last = self._waiting[-1] if self._waiting else {}
        if len(self._waiting) < _MOST_WAITING:
            self._waiting.append(clean)
        elif numbers and "web" not in last and "checkpoint" not in last:
            last.update(clean)

    def _flush(self, address: str) -> None:
        connection = self._own_socket()
        while self._waiting:
            data = json.dumps(self._waiting[0], allow_nan=True).encode()
            try:
                connection.sendto(data, address)
            except socket.timeout:
                return
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS):
                    self._waiting.clear()  # too large, or nobody listens any more
                return  # the agent is busy: with the next report
            self._waiting.popleft()

    def _own_socket(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        return self._socket


class _Requests:
    """The agent's request is a file that is there, or is newer than the one already answered."""

    def __init__(self) -> None:
        self._answered: Optional[int] = None

    def pending(self) -> bool:
        stamp = self._stamp()
        return stamp is not None and stamp != self._answered

    def answered(self) -> None:
        self._answered = self._stamp()

    def _stamp(self) -> Optional[int]:
        path = os.environ.get("HOWDAH_CHECKPOINT_REQUEST")
        if not path:
            return None
        try:
            return os.stat(path).st_mtime_ns  # noqa: PTH116 - asked at every step
        except OSError:
            return None


def _plain(value: Any) -> Any:
    """A number as Python has it; numpy's, torch's and TensorFlow's scalars too. None if it is none."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, dict):
        return value
    try:
        return float(value)
    except Exception:
        return None


def _integer(name: str, default: Optional[int]) -> Optional[int]:
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return default


def _cluster(text: str) -> Dict[str, List[str]]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


_told = _Teller()
_requests = _Requests()
atexit.register(_told.last_try)
os.register_at_fork(after_in_child=_told.forked)
