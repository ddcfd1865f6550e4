"""The journal on HDFS: what makes an entry durable when a job's master may die with its machine.

Segments are files ``events-NNNN.jsonl`` of the job directory, written by append and hsync. There is
one writer, and who that is is decided by who *creates* a segment:

1. A new master creates the segment after the last one, which is its claim. Of two only one can.
2. It recovers the leases of all segments before. From then on no `hsync` of a former master
   succeeds: what that master has been promised is in the files, and nothing is added to them.
3. It reads them, and writes to its own.

A master whose writing fails (a DataNode or the NameNode restarts, HDFS is full) begins another
segment, the same way as a new master does, and writes again what was not promised: so a reader skips
entries it has had, and cuts torn ends of segments. If nothing was promised in its segment yet, it
recovers that one, appends to it again, and looks *then* whether there is a claim after its own: if
so it has lost the job. Otherwise whoever claims later also takes this lease, as in 2.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from howdah.storage.files import PRIVATE_FILE
from howdah.storage.hdfs.calls import Appender
from howdah.storage.hdfs.errors import (
    AlreadyThere,
    HdfsError,
    NoPermission,
    NotClosedInTime,
    NotFound,
)
from howdah.storage.hdfs.files import Hdfs
from howdah.storage.journal import SEGMENT_BYTES, Fenced, JournalError, segment_name, segment_number

log: logging.Logger = logging.getLogger(__name__)

START_WAIT_S = 300.0
"""A new master waits so long for HDFS before it leaves the job to another."""
RECOVER_S = 120.0
"""For the leases of a dead master. DataNodes take their heartbeat (3 s by default), those that have
just started longer."""
REOPEN_S = (2.0, 60.0)
"""For one's own segment with nothing in it; then another is begun. The first time, and at most: it
doubles, so that long troubles do not leave many."""
_CLOSE_AGAIN_S = 2.0
_LAST_S = 10.0
"""For each segment that could not be closed yet, when the journal is closed."""
_QUIET_S = 1.0
"""A shorter trouble is not worth a line."""
_REMIND_S = 60.0

_HEAD = re.compile(rb'\{"crc":"([0-9a-f]{8})",("is":"\w+","seq":(\d+).*)\n', re.DOTALL)


class _Entry(msgspec.Struct):
    now: float


class HdfsJournal:
    """The replica of one master; see `howdah.storage.journal.Replica`. Used by one thread."""

    def __init__(
        self, url: str, *, hdfs: Hdfs | None = None, segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        self._url = url.rstrip("/")
        self._hdfs = hdfs or Hdfs(url)
        self._segment_bytes = segment_bytes
        self._number = 0
        self._durable = 0
        """Bytes of the present segment that were promised."""
        self._appender: Appender | None = None
        self._left_open: list[int] = []
        self._close_next = 0.0
        self._reopen_s = REOPEN_S[0]
        self._give_up_at: float | None = None
        self._hurried = threading.Event()
        self.trouble: str = ""
        """Why it waits, in words; empty while all is well."""

    def take_over(self, folder: Path) -> float | None:
        """Become the writer, and copy what former masters wrote into the local folder.

        See `howdah.storage.journal.Replica.take_over` for what it returns: the masters' hosts have clocks
        of their own, but the NameNode's tells how long ago each segment was begun.

        Raises:
            Fenced: another master claims the job again and again.
            JournalError: HDFS could not be read or written within `START_WAIT_S`.
        """
        try:
            former = self._claim()
            claimed_at = time.monotonic()
            # Before the leases are recovered, which changes the times.
            begun = self._ages_s(former)
            contents = read_segments(self._hdfs.patient(START_WAIT_S), self._url, former)
        except HdfsError as error:
            raise JournalError(f"The job's journal can't be taken over: {error}") from error
        times: list[float] = []
        for number, content in zip(former, sound(contents), strict=True):
            path = folder / segment_name(number)
            path.touch(mode=PRIVATE_FILE)
            path.write_bytes(content)
            if (first := first_time(content)) is not None and number in begun:
                times.append(first + begun[number])
        return max(times) + time.monotonic() - claimed_at if times else None

    def store(self, data: bytes) -> None:
        """Return once the data is on the DataNodes' disks, however long that takes.

        Raises:
            Fenced: another master has taken over.
            JournalError: it can never succeed (no permission, the job directory is gone), or
                `hurry` has set an end to the patience.
        """
        if self._durable and self._durable + len(data) > self._segment_bytes:
            self._patiently(data, self._rotate)
        self._patiently(data, lambda: self._write(data))
        self._close_left_open()

    def hurry(self, timeout_s: float) -> None:
        """Wait no longer than that from now on."""
        self._give_up_at = time.monotonic() + timeout_s
        self._hurried.set()

    def close(self) -> None:
        """End the files, so that readers see all of them. Never raises: what was promised is
        there, and a reader can recover the lease."""
        numbers = [*self._left_open]
        if self._appender is not None:
            try:
                self._appender.close()
            except HdfsError as error:
                log.warning("the journal's last segment was not closed: %s", error)
                numbers.append(self._number)
            self._appender = None
        for number in numbers:
            with contextlib.suppress(HdfsError):
                self._hdfs.recover_lease(self._path(number), _LAST_S)

    # -- inside ----------------------------------------------------------------------------------

    def _claim(self) -> range:
        """Create our segment; numbers of those before it."""
        patient = self._hdfs.patient(START_WAIT_S)
        for _ in range(100):
            last = max(segment_numbers(patient, self._url), default=0)
            try:
                self._appender = patient.create(self._path(last + 1))
            except AlreadyThere:
                continue
            self._number, self._durable = last + 1, 0
            return range(1, last + 1)
        raise Fenced(f"Other masters claim the journal in {self._url} all the time")

    def _ages_s(self, former: range) -> dict[int, float]:
        """How long ago each of them was begun, at least (one that was closed: how long ago that was)."""
        if not former:
            return {}
        changed = segments(self._hdfs.patient(START_WAIT_S), self._url)
        return {n: changed[self._number] - changed[n] for n in former if n in changed}

    def _path(self, number: int) -> str:
        return f"{self._url}/{segment_name(number)}"

    def _patiently(self, data: bytes, work: Callable[[], None]) -> None:
        """Do it until it succeeds; after a failure with the segment open again."""
        began, pause_s, reminder = 0.0, 0.05, 0.0
        while True:
            try:
                if self._appender is None:
                    self._open_again(data)
                work()
            except (NoPermission, NotFound) as error:
                raise JournalError(f"The job's journal can't be written: {error}") from error
            except HdfsError as error:
                self._appender = None
                now = time.monotonic()
                began = began or now
                over = self._give_up_at is not None and now > self._give_up_at
                if over or not threading.main_thread().is_alive():
                    raise JournalError(f"The job's journal can't be written: {error}") from error
                self.trouble = str(error)
                if now >= max(reminder, began + _QUIET_S):
                    log.warning("the journal waits, programs go on, nothing is lost: %s", error)
                    reminder = now + _REMIND_S
                self._hurried.wait(pause_s)
                if self._hurried.is_set():
                    time.sleep(0.05)
                pause_s = min(pause_s * 1.5, 1.0)
            else:
                if reminder:
                    log.warning("the journal goes on after %.1f s", time.monotonic() - began)
                self.trouble = ""
                return

    def _write(self, data: bytes) -> None:
        assert self._appender is not None
        rest = data[self._appender.size - self._durable :]
        if rest:
            self._appender.write_durably(rest)
        self._durable += len(data)
        self._reopen_s = REOPEN_S[0]

    def _rotate(self) -> None:
        assert self._appender is not None
        self._appender.close()
        self._begin(self._number + 1)

    def _begin(self, number: int) -> None:
        try:
            self._appender = self._hdfs.create(self._path(number))
        except AlreadyThere as error:
            raise self._fenced() from error
        self._number, self._durable = number, 0

    def _open_again(self, data: bytes) -> None:
        """Go on in another segment; in ours if nothing is in it but what of ``data`` came there."""
        if self._durable:
            self._begin_another()
            return
        self._check_claims()
        path = self._path(self._number)
        try:
            self._hdfs.recover_lease(path, self._reopen_s)
        except NotClosedInTime:
            self._reopen_s = min(2 * self._reopen_s, REOPEN_S[1])
            self._begin_another()
            return
        there = self._hdfs.read(path)
        if not data.startswith(there):
            raise JournalError(
                f"{path} holds what this master did not write; see `hdfs fsck {path}`"
            )
        appender = self._hdfs.append(path)
        try:
            self._check_claims()
        except BaseException:
            # Left open, its end could not be read.
            with contextlib.suppress(HdfsError):
                appender.close()
            raise
        self._appender = appender

    def _begin_another(self) -> None:
        former = self._number
        self._begin(former + 1)
        self._left_open.append(former)
        self._close_next = time.monotonic() + _CLOSE_AGAIN_S

    def _close_left_open(self) -> None:
        """Have former segments closed as soon as their DataNodes can, without waiting."""
        if not self._left_open or time.monotonic() < self._close_next:
            return
        self._close_next = time.monotonic() + _CLOSE_AGAIN_S
        with contextlib.suppress(HdfsError):
            if self._hdfs.recover_lease(self._path(self._left_open[0])):
                del self._left_open[0]

    def _check_claims(self) -> None:
        if self._hdfs.exists(self._path(self._number + 1)):
            raise self._fenced()

    def _fenced(self) -> Fenced:
        return Fenced(
            f"Another master has taken over the journal in {self._url}"
            f" (there is {segment_name(self._number + 1)}): this one ends, the job goes on"
        )


def segments(hdfs: Hdfs, url: str) -> dict[int, float]:
    """Which segments there are, and when each was begun or closed, by the NameNode's clock."""
    found = ((segment_number(stat.name), stat.mtime_ms / 1000) for stat in hdfs.list(url))
    return {number: changed for number, changed in found if number}


def segment_numbers(hdfs: Hdfs, url: str) -> list[int]:
    """Which segments there are, ascending."""
    return sorted(segments(hdfs, url))


def first_time(content: bytes) -> float | None:
    """When the first entry of a segment was written, by its writer's clock; None if there is none."""
    try:
        return msgspec.json.decode(content.partition(b"\n")[0], type=_Entry).now
    except msgspec.DecodeError:
        return None


def read_segments(
    hdfs: Hdfs, url: str, numbers: Iterable[int], *, recover: bool = True
) -> list[bytes]:
    """The segments' contents; with ``recover`` they are closed before, whoever writes them."""

    def read(number: int) -> bytes:
        path = f"{url}/{segment_name(number)}"
        if recover:
            hdfs.recover_lease(path, RECOVER_S)
        return hdfs.read(path)

    with ThreadPoolExecutor(4, thread_name_prefix="journal") as pool:
        return list(pool.map(read, numbers))


def bring_journal(
    url: str, local: Path, *, nobody_writes: bool = False, hdfs: Hdfs | None = None
) -> None:
    """Copy the journal into the local job directory, sound and whole.

    While a master writes it, the newest entries are not seen.

    Args:
        nobody_writes: close what a dead master left open, so that all is seen. A living master
            would have to open it again.

    Raises:
        OSError: it can't be read.
    """
    hdfs = hdfs or Hdfs(url)
    numbers = segment_numbers(hdfs, url)
    contents = sound(read_segments(hdfs, url, numbers, recover=nobody_writes))
    for number, content in zip(numbers, contents, strict=True):
        path = local / segment_name(number)
        if not path.exists() or path.stat().st_size != len(content):
            path.touch(mode=PRIVATE_FILE)
            path.write_bytes(content)


def sound(contents: Iterable[bytes]) -> list[bytes]:
    """The segments without torn ends, and without entries that an earlier segment has. Pure.

    What is damaged otherwise is kept for `howdah.storage.journal.read` to complain about.
    """
    last = 0
    result: list[bytes] = []
    for content in contents:
        kept: list[bytes] = []
        for line in content.splitlines(keepends=True):
            match = _HEAD.fullmatch(line)
            if match is None or zlib.crc32(b"{" + match[2]) != int(match[1], 16):
                if line.endswith(b"\n"):
                    kept.append(line)
                continue
            if int(match[3]) <= last:
                continue
            last = int(match[3])
            kept.append(line)
        result.append(b"".join(kept))
    return result
