"""Save a task's folder whenever its program has completed something, while it runs.

The watcher is told by lines on its standard input:

``publish <moment>``
    the program said then that it had completed a checkpoint: save without waiting for quiet;
``finish <seconds> <moment>``
    the programs ended by themselves then: save what is there, and end;
``killed <moment>...``
    programs were killed then, while others of the task still run: files that had not been quiet for
    ``settle_s`` before one of these moments may be torn, so save nothing while there are any;
``end <seconds> <moment> <moment>...``
    programs were killed, at each of these moments but the first, when the last of their processes had
    ended: a file they had just been writing may be torn, so save only what had been quiet for
    ``settle_s`` before each of the moments, or what is kept of an earlier sound state, and end;
end of file, or SIGTERM
    the agent died: the same, with one try.

Moments are seconds since the epoch, for a line may lie in the pipe as long as an upload takes. Agents
that began before an upgrade leave them out.

A store that is away is tried again and again: while the programs run without end, then for so many
seconds. What it does not take meanwhile is kept beside the folder (`howdah.storage.checkpoints.local_fallback`),
and so is what a program would have written over before it was uploaded.
"""

from __future__ import annotations

import contextlib
import enum
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from howdah.storage.checkpoints import local_fallback
from howdah.storage.checkpoints.unsaved_files import UnsavedFiles
from howdah.storage.checkpoints.upload import CheckpointUploader
from howdah.storage.checkpoints.versions import CheckpointProblem, CheckpointSpec, Note
from howdah.storage.errors import Outdated, is_transient, lacks_room, not_written
from howdah.storage.folders import FolderChanged, Tree, last_change, written_now

OPEN_FACTOR = 20
"""A file that stays open for writing, unchanged, delays saving by so many times ``settle_s``."""

HURRY_FACTOR = 2
"""A folder that has not been quiet for so many times ``settle_s`` is saved in a shorter quiet."""

TURN_S = 2.0
"""A task of a higher rank than others that share its place waits so long for one of theirs to say that
it has something to save."""

RESTLESS_S = 60.0
"""A folder that is never quiet for so long is reported."""

_BACKOFF_S = (1.0, 30.0)
"""After a store refused: first and longest pause while the programs run."""
_LAST_BACKOFF_S = (0.25, 5.0)
"""The same after their end."""
_PATIENCE_S = 5.0
"""For each call to HDFS: the watcher itself tries again."""
_TURN_POLL_S = 0.1
_READ_BYTES = 64 * 1024
FULL_S = 10.0
"""So long what a full store refuses at the end is tried again: then it is put aside, and the job does not keep its
containers for it."""
_CHANGING = 3
"""A folder that still changes after its programs' end is tried so often."""

Report = Callable[[msgspec.Struct], None]


class RequestKind(enum.Enum):
    """What the watcher is asked for."""

    PUBLISH = "publish"
    KILLED = "killed"
    FINISH = "finish"
    END = "end"


class WatchRequest(NamedTuple):
    """One of the agent's lines."""

    kind: RequestKind
    limit_s: float = 0.0
    """For `RequestKind.FINISH` and `RequestKind.END`: how long saving may be tried."""
    at: float = 0.0
    """For `RequestKind.END`: when the programs were killed, or the earliest that may have been. For
    `RequestKind.PUBLISH`: when the program said so; 0: just now."""
    complete_at: float = 0.0
    """For `RequestKind.END`: the moment of a ``publish`` that was read with it; 0: there was none."""


class Requests:
    """Requests from a pipe and SIGTERM, waited for with a time limit."""

    def __init__(self, source: int) -> None:
        self.kills: tuple[float, ...] = ()
        """When programs were killed, as far as was read."""
        self._source = source
        self._rest = b""
        self._publish: float | None = None
        """The moment of the newest ``publish`` that was read."""
        self._last: WatchRequest | None = None
        """The first ``finish`` or ``end`` that was read."""
        self._empty_at = 0.0
        """When there was last nothing to read."""
        self._signals, self._signalled = os.pipe()
        os.set_blocking(self._signalled, False)

    def catch_sigterm(self) -> None:
        """Take SIGTERM as `RequestKind.END`; leave a terminal's signals to the programs."""
        signal.signal(signal.SIGTERM, lambda *_: os.write(self._signalled, b"x"))
        for other in (signal.SIGINT, signal.SIGHUP):
            signal.signal(other, signal.SIG_IGN)

    def wait(self, seconds: float) -> WatchRequest | None:
        """The next request; None when there is none within that time.

        The end comes before all else, and of several ``publish`` there is only the newest.
        """
        waited_for = not self._read(0.0)
        if waited_for:
            self._read(seconds)
        came_after = time.time() if waited_for else self._empty_at
        self._empty_at = time.time()
        publish, self._publish = self._publish, None
        if (last := self._last) is not None:
            at = last.at or came_after or self._empty_at
            return last._replace(at=at, complete_at=publish or 0.0)
        if publish is None:
            return None
        just_now = waited_for and not self.kills
        return WatchRequest(RequestKind.PUBLISH, at=0.0 if just_now else publish)

    def close(self) -> None:
        os.close(self._signals)
        os.close(self._signalled)

    def _read(self, seconds: float) -> bool:
        """Read all there is, and wait for so long if there is nothing; False if there was nothing."""
        ready = found = select.select([self._source, self._signals], [], [], seconds)[0]
        while self._source in ready and self._last is None:
            self._take(os.read(self._source, _READ_BYTES))
            ready = select.select([self._source], [], [], 0.0)[0]
        if self._signals in found and self._last is None:
            self._last = WatchRequest(RequestKind.END)
        return bool(found)

    def _take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                word, *rest = line.decode().split()
                kind, numbers = RequestKind(word), [float(each) for each in rest]
                if kind is RequestKind.PUBLISH:
                    self._publish = numbers[0] if numbers else 0.0
                elif kind is RequestKind.KILLED:
                    self.kills = tuple(numbers)
                elif self._last is None:
                    self._last = WatchRequest(kind, *numbers[:2])
                    self.kills = tuple(
                        numbers[2:]
                    )  # all of them, for a watcher that began later, too
        if not data and self._last is None:
            self._last = WatchRequest(RequestKind.END)


def watch(spec: CheckpointSpec, requests: Requests, report: Report) -> None:
    """Save versions until told to end; each `Saved`, and each new `CheckpointProblem`, goes to ``report``.

    Never raises for what the store or the folder does: a program trains meanwhile.
    """
    _Watch(spec, requests, report).run()


class _Watch:
    def __init__(self, spec: CheckpointSpec, requests: Requests, report: Report) -> None:
        self._spec = spec
        self._folder = Path(spec.folder)
        self._requests = requests
        self._report = report
        self._uploader: CheckpointUploader | None = None
        self._tree: Tree = {}
        self._quiet_since = time.monotonic()
        self._restless_since: float | None = None
        self._restless_told = False
        self._not_before = 0.0
        self._backoff_s = _BACKOFF_S[0]
        self._refusing = False
        """The store has not taken the last version it was given."""
        self._kept: Tree | None = None
        """What is kept because of that."""
        self._outdated = False
        """This folder is not saved any more."""
        self._left_out: UnsavedFiles | None = None
        """Since another task's folder is the one that is saved."""
        self._left_out_told = ""
        self._links_told = ""
        self._outpaced = False
        """The program saved again before the last upload was over."""
        self._turn_at: float | None = None
        """When it is this task's turn, unless one of a lower rank says so before."""
        self._open_file: str | None = None
        """A file of `_tree` that was open for writing when last looked, or less than ``settle_s`` before."""
        self._closed_at: float | None = None
        """When it was first seen closed."""

    def run(self) -> None:
        pause_s = 0.0
        while True:
            request = self._requests.wait(pause_s)
            began = time.monotonic()
            if request is not None and request.kind is not RequestKind.PUBLISH:
                self._last(request)
                return
            tree = self._spec.look()
            # A folder with very many files takes long to scan: stay below a twentieth of a core.
            spent = time.monotonic() - began
            pause_s = max(min(self._needed_s(began) / 4, 1.0), 0.02, 20 * spent)
            # The program may have begun the next one since it said that one was complete.
            prompt = request is not None and (not request.at or last_change(tree) <= request.at)
            self._look(tree, began, prompt=prompt)
            if self._open_file is not None:
                pause_s = max(pause_s, self._spec.settle_s)  # looking for it is not cheap either

    def _look(self, tree: Tree, now: float, *, prompt: bool) -> None:
        if tree != self._tree:
            self._tree, self._quiet_since = tree, now
            self._open_file = self._closed_at = None
        uploader = self._open(now)
        changed = uploader.changed(tree) if uploader is not None else bool(tree)
        if self._outdated or not changed:
            self._restless_since = None
            if self._left_out is not None and self._settled(now):
                self._look_what_is_left_out(self._left_out)
            return
        if self._restless_since is None:
            self._restless_since = now
        due = uploader is not None and (prompt or now >= self._not_before)
        if uploader is not None and due and not self._has_turn(uploader, now):
            return
        if (due or (self._refusing and tree != self._kept)) and (prompt or self._settled(now)):
            if uploader is not None and due:
                self._try(uploader)
            if self._refusing and tree != self._kept and local_fallback.keep(self._spec, tree):
                self._kept = tree
        waits = self._restless_since is not None and not self._refusing and not self._requests.kills
        if waits and not self._restless_told and now - self._restless_since > RESTLESS_S:
            self._restless_told = True
            self._report(
                CheckpointProblem(
                    problem=f"nothing in {self._folder} could be saved for {RESTLESS_S:g} s: its"
                    " files change all the time or are open for writing"
                    f" ({self._restless_file()}). Write logs elsewhere, or name them in"
                    " [checkpoint] ignore"
                )
            )

    def _needed_s(self, now: float) -> float:
        """How long the folder must be quiet.

        A program that saves more often than ``settle_s`` would never be saved: after a while half of
        it will do, which is still long for files that are closed.
        """
        waited_s = 0.0 if self._restless_since is None else now - self._restless_since
        hurry = waited_s > HURRY_FACTOR * self._spec.settle_s
        return self._spec.settle_s / 2 if hurry else self._spec.settle_s

    def _settled(self, now: float) -> bool:
        quiet_s = now - self._quiet_since
        if quiet_s < self._needed_s(now) or self._torn_by_a_kill(self._tree):
            return False
        if quiet_s >= OPEN_FACTOR * self._spec.settle_s:
            return True
        if (file := written_now(self._folder, self._tree)) is not None:
            self._open_file, self._closed_at = file, None
        elif self._open_file is not None:
            # A kill may have closed it, which the agent says a moment later if it has not said so yet.
            self._closed_at = self._closed_at or now
            if now - self._closed_at >= self._spec.settle_s and not self._requests.kills:
                self._open_file = self._closed_at = None
        return self._open_file is None

    def _torn_by_a_kill(self, tree: Tree) -> bool:
        """Whether a program was killed so soon after a change of a file that it may have been writing it.

        Each file counts: what programs that lived on wrote later says nothing of the others.
        """
        changes = [signature.ctime_ns / 1e9 for signature in tree.values()]
        kills, settle_s = self._requests.kills, self._spec.settle_s
        return any(0 <= kill - change < settle_s for kill in kills for change in changes)

    def _restless_file(self) -> str:
        return max(self._tree, key=lambda name: self._tree[name].ctime_ns, default="")

    def _has_turn(self, uploader: CheckpointUploader, now: float) -> bool:
        try:
            if not uploader.claim():
                self._outdated, self._uploader = True, None
                self._left_out = UnsavedFiles(self._spec, _PATIENCE_S)
                return False
        except Exception as error:
            self._refused(error)
            return False
        if self._turn_at is None:
            self._turn_at = now + (TURN_S if self._spec.rank else 0.0)
        return now >= self._turn_at

    def _look_what_is_left_out(self, left_out: UnsavedFiles) -> None:
        if self._left_out_told:
            return
        # A store that can't be read: its own task says so.
        with contextlib.suppress(Exception):
            self._left_out_told = left_out.look(self._tree)
        if self._left_out_told:
            self._report(CheckpointProblem(problem=self._left_out_told))

    # -- the store -------------------------------------------------------------------------------

    def _open(self, now: float) -> CheckpointUploader | None:
        """The uploader, once the store can be read and written."""
        if self._uploader is None and not self._outdated and now >= self._not_before:
            try:
                uploader = CheckpointUploader(self._spec, _PATIENCE_S)
                uploader.begin()
                self._uploader = uploader
            except Outdated as error:
                self._has_gone_on(error)
            except Exception as error:
                self._refused(error)
        return self._uploader

    def _try(self, uploader: CheckpointUploader) -> None:
        tree: Tree | None = self._tree
        try:
            # A local copy takes far less time than an upload does.
            if self._outpaced and (copy := local_fallback.keep(self._spec, self._tree)):
                uploader, tree = CheckpointUploader(copy, _PATIENCE_S), None
            self._upload(uploader, tree)
            self._outpaced = False
        except FolderChanged:
            self._quiet_since, self._outpaced = time.monotonic(), True
        except Outdated as error:
            self._has_gone_on(error)
        except Exception as error:
            # fsspec's stores raise what they like; the program must not notice.
            self._refused(error)

    def _upload(self, uploader: CheckpointUploader, tree: Tree | None) -> None:
        saved = uploader.publish(tree)
        self._backoff_s, self._restless_since, self._refusing = _BACKOFF_S[0], None, False
        self._kept = None
        local_fallback.forget(self._spec)
        if saved is not None:
            self._report(saved)
        note = self._spec.links_left_out()
        if note and note != self._links_told:
            self._links_told = note
            self._report(Note(note=note))

    def _has_gone_on(self, error: Outdated) -> None:
        self._report(CheckpointProblem(problem=str(error)))
        self._outdated, self._uploader = True, None

    def _refused(self, error: Exception) -> None:
        self._not_before = time.monotonic() + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, _BACKOFF_S[1])
        if not self._refusing:
            self._refusing = True
            self._report(
                CheckpointProblem(problem=self._words(error), transient=is_transient(error))
            )

    def _words(self, error: Exception) -> str:
        if isinstance(error, FolderChanged):
            return f"its files still change: {error}"
        return not_written(self._spec.place, error)

    # -- the end ---------------------------------------------------------------------------------

    def _last(self, request: WatchRequest) -> None:
        """The programs have ended. Nobody else writes the folder now, if all went well."""
        self._save_last(request)
        if self._left_out is not None:
            with contextlib.suppress(Exception):
                self._last_look(self._left_out, request)
        elif self._uploader is not None:
            with contextlib.suppress(Exception):
                self._uploader.is_over()

    def _last_look(self, left_out: UnsavedFiles, request: WatchRequest) -> None:
        text = self._left_out_told
        if request.kind is RequestKind.FINISH:
            text = left_out.last(self._spec.look(), time.monotonic() + request.limit_s)
        if text:
            self._report(CheckpointProblem(problem=text, unsaved=True))

    def _save_last(self, request: WatchRequest) -> None:
        if self._outdated:
            return
        spec = self._spec
        if request.kind is RequestKind.END and self._perhaps_torn(spec.look(), request):
            if (kept := local_fallback.kept(spec)) is None:
                return
            spec, self._uploader = kept, None
        began = time.monotonic()
        deadline = began + request.limit_s
        pause_s, changing = _LAST_BACKOFF_S[0], 0
        while True:
            try:
                self._uploader = self._uploader or CheckpointUploader(spec, _PATIENCE_S)
                if self._uploader.changed(spec.look()) and not self._waits_for_turn(deadline):
                    self._left_out = UnsavedFiles(spec, _PATIENCE_S)
                    return
                self._upload(self._uploader, None)
                return
            except Outdated as error:
                self._has_gone_on(error)
                return
            except Exception as error:
                if lacks_room(error):
                    deadline = min(deadline, began + FULL_S)
                changing += isinstance(error, FolderChanged)
                again = changing < _CHANGING and (bool(changing) or is_transient(error))
                if again and not changing:
                    self._keep_last(spec)
                if not again or time.monotonic() + pause_s > deadline:
                    problem, place = self._words(error), local_fallback.rescue(spec)
                    problem += f"; it is kept in {place}" if place else ""
                    self._report(CheckpointProblem(problem=problem, unsaved=True))
                    return
                if not changing:
                    self._refused(error)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_BACKOFF_S[1])

    def _waits_for_turn(self, deadline: float) -> bool:
        """Whether this folder is the one that is saved."""
        assert self._uploader is not None
        while self._uploader.claim():
            now = time.monotonic()
            if self._turn_at is None:
                self._turn_at = now + (TURN_S if self._spec.rank else 0.0)
            if now >= min(self._turn_at, deadline):
                return True
            time.sleep(_TURN_POLL_S)
        return False

    def _keep_last(self, spec: CheckpointSpec) -> None:
        """For the next attempt here, should the store be away until the time is up."""
        if spec is self._spec and (tree := spec.look()) != self._kept:
            if local_fallback.keep(spec, tree):
                self._kept = tree

    def _perhaps_torn(self, tree: Tree, end: WatchRequest) -> bool:
        """Whether a program that was killed may have been writing one of the files."""
        changed = last_change(tree)
        if changed <= end.complete_at:
            return False
        if changed > end.at - self._spec.settle_s or self._torn_by_a_kill(tree):
            return True
        return self._open_file is not None and tree == self._tree
