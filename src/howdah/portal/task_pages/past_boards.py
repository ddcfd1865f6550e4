"""TensorBoard of jobs that have ended: started when somebody looks, and stopped when nobody does any more.

It runs as the job's owner, who may put anything into the folder of summaries: so it reads what they can
read. Summaries on HDFS are copied first, into a folder that goes when it ends. Where the kernel runs out of
memory, it ends before the portal.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from howdah.backends.base import BackendError
from howdah.client.following.tunnel import LOCAL
from howdah.client.lookup.site import site_of
from howdah.coordinator.clients.task_pages import prefix_of
from howdah.coordinator.web.security import Refusal
from howdah.core.messages import Task
from howdah.frameworks.programs import HELPERS
from howdah.frameworks.sidecars import TENSORBOARD
from howdah.packing.archives import quantity
from howdah.portal.as_owner import NoAccount, as_owner, ids_of, kill, last_line, may_be
from howdah.storage import layout
from howdah.storage.copies.local_copy import SCHEME, CopyOrigin, account, origin_of
from howdah.storage.jobdir import JobDirectory, StorageError
from howdah.wire.messages import WebAddress

IDLE_S = 600.0
"""One that nobody has asked for this long is stopped."""
MOST = 4
"""At the same time. The one that was asked longest ago makes room."""
BEGIN_S = 60.0
LARGEST = 256 << 20
"""Bytes of a job's summaries that are copied from HDFS."""
TASK = Task(TENSORBOARD, 0)

_AT = re.compile(rb" at http://[^/]*:(\d+)/")


class _Board(NamedTuple):
    """A TensorBoard that runs."""

    process: asyncio.subprocess.Process
    address: WebAddress
    copy: Path | None
    """Of what it shows, where that is not here."""


class PastBoards:
    """The TensorBoards of ended jobs that a portal has started.

    Args:
        idle_s: see `IDLE_S`.
    """

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._running: dict[str, asyncio.Task[_Board]] = {}
        """By job, the one that was asked longest ago first."""
        self._asked: dict[str, float] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._folder: Path | None = None

    def has(self, directory: JobDirectory) -> bool | None:
        """Whether there are summaries of the job that can be shown; None where that is not known now.

        It may take as long as HDFS takes to answer.
        """
        if _summaries(directory) is not None:
            return True
        try:
            return _is_remote(directory) and site_of(directory).has_remote_summaries()
        except (OSError, StorageError, BackendError):
            return None

    def may_have(self, directory: JobDirectory) -> bool:
        """The same as far as it can be told without asking HDFS."""
        return _summaries(directory) is not None or _is_remote(directory)

    async def address(self, directory: JobDirectory) -> WebAddress:
        """Where the job's answers; it is started if it does not run.

        Raises:
            Refusal: it can't be.
        """
        job_id = directory.job_id
        starting = self._running.pop(job_id, None)
        if starting is not None and _is_over(starting):
            starting = None
        if starting is None:
            while len(self._running) >= MOST:
                self._stop(next(iter(self._running)))
            starting = asyncio.ensure_future(_start(directory, self._copies))
            watch = asyncio.ensure_future(self._watch(job_id, starting))
            self._watches.add(watch)
            watch.add_done_callback(self._watches.discard)
        self._running[job_id] = starting
        self._asked[job_id] = time.monotonic()
        await asyncio.wait({starting})
        if starting.cancelled():
            raise Refusal(503, "TensorBoards of other jobs took its room; load the page again")
        return starting.result().address

    def close(self) -> None:
        """Stop them all."""
        for job_id in list(self._running):
            self._stop(job_id)
        # What is still being copied there fails.
        _remove(self._folder)

    def _copies(self) -> Path:
        """The folder of what is copied. Owners reach what is theirs in it, and see nothing else."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="howdah-board-"))
            self._folder.chmod(0o711)
        return self._folder

    def _stop(self, job_id: str) -> None:
        starting = self._running.pop(job_id)
        del self._asked[job_id]
        if not starting.cancel() and not _is_over(starting):
            kill(starting.result().process)

    async def _watch(self, job_id: str, starting: asyncio.Task[_Board]) -> None:
        """Stop it when nobody asks any more."""
        await asyncio.wait({starting})
        if not starting.cancelled() and starting.exception() is None:
            board = starting.result()
            try:
                await self._until_idle(job_id, board.process)
            finally:
                _remove(board.copy)
        if self._running.get(job_id) is starting:
            del self._running[job_id], self._asked[job_id]

    async def _until_idle(self, job_id: str, process: asyncio.subprocess.Process) -> None:
        ending = asyncio.ensure_future(_heard_out(process))
        try:
            while not ending.done():
                rest_s = self._asked.get(job_id, float("-inf")) + self._idle_s - time.monotonic()
                if rest_s <= 0:
                    # Whoever asks from now on gets another one.
                    self._running.pop(job_id, None)
                    self._asked.pop(job_id, None)
                    break
                await asyncio.wait({ending}, timeout=rest_s)
        finally:
            if process.returncode is None:
                kill(process)
            await ending


class _Summaries(NamedTuple):
    """Where a job's summaries are, and whose they are."""

    folder: Path
    owner: str
    uid: int
    gid: int
    copy: Path | None = None
    """The folder, if it was made for this."""


def _summaries(directory: JobDirectory) -> _Summaries | None:
    """None if there are none that can be shown."""
    try:
        origin = _origin(directory)
        if origin.uid is None or not may_be(origin.uid):
            return None
        folder = Path(origin.folder) / layout.TENSORBOARD
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != origin.uid:
            return None
        with os.scandir(folder) as entries:
            if next(entries, None) is None:
                return None
        return _Summaries(folder, origin.owner, origin.uid, found.st_gid)
    except (OSError, StorageError):
        return None


def _is_remote(directory: JobDirectory) -> bool:
    """Whether its directory is on HDFS."""
    try:
        url = directory.meta().url
    except StorageError:
        return False
    return url is not None and not url.startswith(SCHEME)


def _copied(directory: JobDirectory, copies: Path) -> _Summaries | None:
    """The same of a job on HDFS, once they are copied; None if there are none.

    Raises:
        Refusal: they cannot be.
    """
    if not _is_remote(directory):
        return None
    by_hand = (
        f"copy them with `hdfs dfs -get {directory.meta().url}/{layout.TENSORBOARD} .` and look at them with "
        f"`tensorboard --logdir {layout.TENSORBOARD}`"
    )
    owner = _origin(directory).owner
    try:
        uid, gid = ids_of(owner)
    except NoAccount as problem:
        text = f"TensorBoard would run as the job's owner, but {problem}; {by_hand}"
        raise Refusal(409, text) from None
    folder = Path(tempfile.mkdtemp(dir=copies))
    try:
        size = site_of(directory).bring_summaries(folder, LARGEST)
        # The folder last: until then its owner cannot get in and put a link in the place of what is
        # given to them next.
        for path in reversed([folder, *folder.rglob("*")]):
            os.chown(path, uid, gid, follow_symlinks=False)
    except (OSError, BackendError) as error:
        _remove(folder)
        text = f"the summaries of {directory.job_id} on HDFS cannot be copied ({error}); load the page again"
        raise Refusal(503, text) from None
    if 0 < size <= LARGEST:
        return _Summaries(folder, owner, uid, gid, copy=folder)
    _remove(folder)
    if not size:
        return None
    raise Refusal(
        409,
        f"the summaries of {directory.job_id} on HDFS take {quantity(size)}, and the portal copies "
        f"{quantity(LARGEST)} at most: {by_hand}",
    )


def _remove(copy: Path | None) -> None:
    if copy is not None:
        shutil.rmtree(copy, ignore_errors=True)


def _origin(directory: JobDirectory) -> CopyOrigin:
    """Where the portal has the job from. In a portal of one's own that is the job directory itself."""
    try:
        return origin_of(directory.path)
    except StorageError:
        uid = directory.path.stat().st_uid
        return CopyOrigin(folder=os.fspath(directory.path), owner=account(uid), uid=uid)


async def _start(directory: JobDirectory, copies: Callable[[], Path]) -> _Board:
    found = await asyncio.to_thread(_summaries, directory)
    if found is None:
        # To its end, for the copy to be removed.
        copying = asyncio.ensure_future(asyncio.to_thread(_copied, directory, copies()))
        try:
            found = await asyncio.shield(copying)
        except asyncio.CancelledError:
            copying.add_done_callback(_not_needed)
            raise
    if found is None:
        raise Refusal(404, f"there are no summaries of {directory.job_id} that can be shown")
    try:
        return await _begin(found)
    except BaseException:
        _remove(found.copy)
        raise


def _not_needed(copying: asyncio.Future[_Summaries | None]) -> None:
    if not copying.cancelled() and copying.exception() is None and (found := copying.result()):
        _remove(found.copy)


async def _begin(found: _Summaries) -> _Board:
    secret = secrets.token_urlsafe(24)
    options = await asyncio.to_thread(as_owner, found.owner, found.uid, found.gid)
    # Read from its standard input: no other process of its user learns it from a file or a list.
    options["env"] |= {"HOME": "/nonexistent", "HOWDAH_PAGE_TOKEN_FILE": "-"}
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", os.path.join(HELPERS, "tensorboard_main.py")),
            *("--logdir", os.fspath(found.folder), "--host", LOCAL),
            *("--port", "0", "--path_prefix", prefix_of(TASK), "--load_fast", "false"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            **options,
        )
    except OSError as error:
        raise Refusal(
            503, f"{found.owner} cannot run {sys.executable}: {error.strerror or error}"
        ) from None
    try:
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000", encoding="utf-8")
        async with asyncio.timeout(BEGIN_S):
            port = await _port(process, secret)
    except BaseException as problem:
        if process.returncode is None:
            kill(process)
        await _heard_out(process)
        if isinstance(problem, TimeoutError):
            text = f"TensorBoard was not up within {BEGIN_S:.0f} s; load the page again"
            raise Refusal(503, text) from None
        raise
    return _Board(
        process,
        WebAddress(
            task=TASK, attempt=0, name="TensorBoard", host=LOCAL, port=port, keeps_prefix=True,
            secret=secret, uid=found.uid,
        ),
        found.copy,
    )  # fmt: skip


async def _port(process: asyncio.subprocess.Process, secret: str) -> int:
    """Where it listens, once it does."""
    assert process.stdin is not None
    assert process.stderr is not None
    with contextlib.suppress(OSError):
        process.stdin.write(f"{secret}\n".encode())
    said = b""
    while part := await process.stderr.read(4096):
        said = (said + part)[-65536:]
        if (found := _AT.search(said)) is not None and int(found[1]) < 65536:
            return int(found[1])
    why = last_line(said) or "it said nothing"
    raise Refusal(503, f"TensorBoard could not be started on the portal's machine: {why}")


async def _heard_out(process: asyncio.subprocess.Process) -> None:
    """Wait for its end, whatever it says meanwhile."""
    assert process.stdin is not None
    assert process.stderr is not None
    while await process.stderr.read(65536):
        pass
    process.stdin.close()
    await process.wait()


def _is_over(starting: asyncio.Task[_Board]) -> bool:
    """Whether one that was started is not there any more, or never was."""
    if not starting.done():
        return False
    failed = starting.cancelled() or starting.exception() is not None
    return failed or starting.result().process.returncode is not None
