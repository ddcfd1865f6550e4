"""What a container holds and others want, copied by helper processes: outputs, event files, logs."""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from pathlib import Path, PurePath

import msgspec

from howdah.agent import checkpoints, workfolder
from howdah.agent.children import Helper, HelperProblem, module
from howdah.agent.container import ContainerContext
from howdah.core.messages import Made, Task
from howdah.storage import layout
from howdah.storage.confined_paths import shown, to_text
from howdah.storage.folders import has_files, scan, set_aside
from howdah.wire.messages import Mirror, Prepare, Start

log: logging.Logger = logging.getLogger(__name__)

UNSAVED = "outputs"
"""Where a job without an `[outputs]` table has its folder: below the container's own."""

_NAMED = 5
"""Of the files that were made, in what is said of them."""
_LOOK_S = 2.0
_AGAIN_S = 5.0
_LOG_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)
"""Between tries: a NameNode that restarts is back in a minute or two."""
_LAST_LOG_PAUSES_S = (0.5, 1.0)
"""The same once the agent is to go. The helper itself waits a while for a NameNode."""
_LOG_TRY_S = 300.0


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a helper: of `howdah.storage.outputs` or `howdah.storage.folder_sync`."""

    problem: str = ""
    transient: bool = False
    problems: tuple[str, ...] | None = None
    note: str = ""
    files: int = 0
    kept: int = 0


class OutputCopies:
    """What of one attempt's working folder is copied to the job's store at its end: the folders that
    [outputs] names, and of what else is new there what its `keep` fits.

    A helper process does it (`howdah.storage.outputs`).
    """

    def __init__(
        self, container: ContainerContext, prepare: Prepare, troubled: Callable[[], object]
    ) -> None:
        """``troubled`` is called when there is a new `trouble`."""
        self._container = container
        self._prepare = prepare
        self._troubled = troubled
        wanted = prepare.outputs or {}
        self._store = str(wanted.get("store", ""))
        self.folders: tuple[str, ...] = tuple(map(str, wanted.get("folders", ())))
        """What is copied: paths inside the working folder."""
        self._keep: tuple[str, ...] = tuple(map(str, wanted.get("keep", ())))
        self._keep_saved: bool = wanted.get("keep_saved", True)
        """Whether files that fit are kept though they are in a checkpoint."""
        self._news: dict[str, int] = {}
        """What else the programs have made there: sizes by path."""
        self._kept: dict[str, str] = {}
        """What of it is to be copied: paths relative to the working folder, by name in the store."""
        self._copied_news = 0
        self._lost: tuple[str, ...] | None = None
        """What could not be copied, once the helper is done."""
        self.copied: int = 0
        """Files that were copied."""
        self.trouble: str = ""
        """Why the store has not taken them; empty where nothing kept it from that."""

    @property
    def folder(self) -> Path:
        """The folder programs are told to write to: the first of those, if it is one."""
        folders = (self._path(folder) for folder in self.folders if _is_folder(folder))
        return next(folders, self._container.work / UNSAVED)

    def make(self) -> None:
        """Make the folders, so that programs need not.

        Raises:
            OSError: one can't be made.
        """
        for folder in self.folders:
            path = self._path(folder)
            (path if _is_folder(folder) else path.parent).mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)

    def look(self, without: Iterable[str], saved: Collection[str]) -> None:
        """See what the programs have made, now that they have ended; in which folders of the working
        folder it is somebody else's affair is ``without``, and ``saved`` which files are in a checkpoint."""
        container = self._container
        if self._prepare.outputs is None or container.launch.in_place:
            return
        found = workfolder.changed(container.task, container.given, [*self.folders, *without])
        paths: dict[str, str] = {}
        for name, signature in found.items():
            if self._is_users_own(name):
                continue  # it was too large to be copied, and is at home
            if name not in saved or (self._keep_saved and _fits(name, self._keep)):
                self._news[name], paths[name] = signature.size, name
        for folder in self._others():
            for inside, signature in workfolder.changed(container.work / folder, {}).items():
                name = f"{folder}/{inside}"
                while name in paths:
                    name += "~"
                self._news[name], paths[name] = signature.size, f"../{folder}/{inside}"
        self._kept = {name: path for name, path in paths.items() if _fits(name, self._keep)}

    def _is_users_own(self, name: str) -> bool:
        """Whether a file of the working folder is the very one of the user's source folder."""
        origin = self._container.launch.origin
        try:
            return origin is not None and (self._container.task / name).samefile(Path(origin, name))
        except OSError:
            return False

    def _others(self) -> Iterator[str]:
        """Folders beside the working folder that programs are told to write to where the job file
        names none."""
        if not self.folders:
            yield UNSAVED
        if self._prepare.checkpoint is None:
            yield checkpoints.UNSAVED

    @property
    def made(self) -> Made | None:
        """What `look` has found; None if there is nothing."""
        if not self._news:
            return None
        largest = sorted(self._news, key=lambda name: (-self._news[name], name))
        return Made(
            files=len(self._news),
            size=sum(self._news.values()),
            names=tuple(map(shown, largest[:_NAMED])),
            kept=self._copied_news,
            place=self._store if self._copied_news else "",
        )

    @property
    def wanted(self) -> bool:
        """Whether there is something to copy."""
        return bool(self._kept) or any(self._has_files(folder) for folder in self.folders)

    async def save(self, limit_s: float) -> None:
        """Copy what is there, for so long; to be cancelled when there is less time."""
        document = {
            "base": str(self._container.task),
            "folders": self.folders,
            "files": {to_text(name): to_text(path) for name, path in self._kept.items()},
            "store": self._store,
            "job_dir": self._container.job_dir_of(self._store),
            "attempt": self._prepare.attempt,
            "limit_s": limit_s,
        }
        problem = ""
        try:
            file = self._container.write_private("outputs.json", msgspec.json.encode(document))
            argv = module("howdah.storage.helper", "copy-outputs", file)
            async with self._container.helpers.running(argv) as helper:
                while (line := await helper.line()) is not None:
                    said = msgspec.json.decode(line, type=_Said)
                    if said.note:
                        self._container.note(self._prepare, f"its outputs: {said.note}")
                        continue
                    self._lost = said.problems
                    self.copied, self._copied_news = said.files, said.kept
                    if said.problem:
                        self.trouble = said.problem
                        again = "; it is tried again" if said.transient else ""
                        text = f"its outputs are not copied: {said.problem}{again}"
                        self._container.note(self._prepare, text)
                        self._troubled()
                if await helper.wait() == 0:
                    self._lost = self._lost or ()
                else:
                    problem = self.trouble or helper.problem or "its process ended early"
        except (HelperProblem, OSError, msgspec.DecodeError) as error:
            problem = str(error)
        if problem:
            self._lost = tuple(f"{name}: {problem}" for name in self._names())

    def unsaved(self, limit_s: float) -> tuple[str, ...]:
        """What could not be saved in ``limit_s`` seconds, why, and where it is kept; a line for each folder."""
        lost = self._lost
        if lost is None:
            why = self.trouble or f"not copied to {self._store}"
            no_time = f"no more time than {limit_s:g} s was left"
            lost = tuple(f"{name}: {why}; {no_time}" for name in self._names())
        if lost and (place := self._rescue()):
            return tuple(f"{line}; kept in {place}" for line in lost)
        return lost

    def _rescue(self) -> str:
        """Put the files where they outlive the container; returns where that is."""
        task, place = self._container.task, self._container.unsaved(self._prepare, layout.OUTPUTS)
        files = dict(self._kept)
        for folder in self.folders:
            path = self._path(folder)
            inside = [folder] if path.is_file() else [f"{folder}/{name}" for name in scan(path)]
            files |= {name: name for name in inside}
        return str((place and set_aside(task, files, place)) or "")

    def _names(self) -> Iterator[str]:
        """What there is to copy, in words."""
        yield from (folder for folder in self.folders if self._has_files(folder))
        if self._kept:
            yield "its working folder"

    def _has_files(self, folder: str) -> bool:
        path = self._path(folder)
        return path.is_file() or has_files(path)

    def _path(self, folder: str) -> Path:
        return workfolder.place(self._container.task, folder)


def _fits(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns is for the file, for a folder it is in, or for its name alone."""
    parts = name.split("/")
    above = {"/".join(parts[:end]) for end in range(1, len(parts) + 1)}
    return any(
        fnmatch.fnmatchcase(each, pattern.strip("/"))
        for pattern in patterns
        for each in (*above, parts[-1])
    )


def _is_folder(name: str) -> bool:
    """Whether a path that may not exist yet is meant to be a folder: files have a suffix."""
    return not PurePath(name).suffix


class FolderMirror:
    """A folder of the container kept like one elsewhere while one attempt runs: TensorBoard's.

    Programs write event files into a local folder; a helper process (`howdah.storage.folder_sync`) pushes
    them to the job directory, and beside TensorBoard another pulls those of all tasks. The pushing one
    is started only once there is something to push.
    """

    def __init__(self, container: ContainerContext, start: Start) -> None:
        self._container = container
        self._start = start
        self._over = asyncio.Event()
        self._limit_s = 0.0
        self._helper: Helper | None = None
        self._work: asyncio.Task[None] | None = None
        self._trouble = ""
        """Why the folder elsewhere is not up to date; empty where nothing keeps it from that."""
        self._lost = ""
        """Why the last push was not whole."""

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the folders alike in the block."""
        mirror = self._start.mirror
        if mirror is None:
            yield
            return
        folder = Path(mirror.folder)
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._work = asyncio.get_running_loop().create_task(self._keep(mirror, folder))
        try:
            yield
        finally:
            self._work.cancel()
            await asyncio.wait({self._work})

    @property
    def wanted(self) -> bool:
        """Whether there may be something to push at the end."""
        mirror = self._start.mirror
        return mirror is not None and mirror.way == "push" and has_files(mirror.folder)

    async def save(self, limit_s: float) -> None:
        """Push what came last, for so long; to be cancelled when there is less time."""
        assert self._work is not None
        self._limit_s = limit_s
        self._over.set()
        self._tell_last()
        await asyncio.wait({self._work})

    def unsaved(self, limit_s: float) -> tuple[str, ...]:
        """What could not be pushed in ``limit_s`` seconds, and why; a line, or none."""
        mirror = self._start.mirror
        if mirror is None or mirror.way != "push" or self._work is None:
            return ()
        why = self._lost
        if not why and not self._work.done():
            why = self._trouble
            if self._over.is_set():
                what = why or f"{mirror.place} has not taken all of them"
                why = f"{what}; no more time than {limit_s:g} s was left"
        return (f"TensorBoard files: {why}",) if why else ()

    def _tell_last(self) -> None:
        if self._helper is not None and self._over.is_set():
            self._helper.tell(f"finish {self._limit_s:.3f}")
            self._helper.finish()

    async def _keep(self, mirror: Mirror, folder: Path) -> None:
        pushes = mirror.way == "push"
        while pushes and not has_files(folder) and not self._over.is_set():
            await self._sleep(_LOOK_S)
        spec = {"folder": mirror.folder, "place": mirror.place}
        spec |= {"job_dir": self._container.job_dir_of(mirror.place)}
        spec |= {"attempt": self._start.attempt if pushes else 0}
        while True:
            try:
                file = self._container.write_private("mirror.json", msgspec.json.encode(spec))
                argv = module("howdah.storage.helper", mirror.way, file)
                async with self._container.helpers.running(argv) as helper:
                    self._helper = helper
                    self._tell_last()
                    while (line := await helper.line()) is not None:
                        self._heard(line)
                    status = await helper.wait()
                    problem = helper.problem or f"it ended with status {status}"
                    if status == 0:
                        return  # at its end, or because a later attempt writes there
            except (HelperProblem, OSError) as error:
                problem = str(error)
            finally:
                self._helper = None
            if self._over.is_set():
                self._lost = problem
                return
            log.warning("the helper for %s ended: %s", folder, problem)
            await self._sleep(_AGAIN_S)

    async def _sleep(self, pause_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._over.wait()

    def _heard(self, line: bytes) -> None:
        with contextlib.suppress(msgspec.DecodeError):
            before, self._trouble = self._trouble, msgspec.json.decode(line, type=_Said).problem
            if self._trouble and self._trouble != before:
                text = f"its TensorBoard folder is not up to date elsewhere: {self._trouble}"
                self._container.note(self._start, text)


class LogCopies:
    """Logs of ended attempts of one container, on their way to a job directory that is elsewhere.

    A helper process does it (`howdah.storage.outputs`) while the container already does something
    else; the agent only has to live until it is done.
    """

    def __init__(self, container: ContainerContext) -> None:
        self._container = container
        self._store = container.launch.log_store
        self._under_way: set[asyncio.Task[None]] = set()
        self._leaving = asyncio.Event()

    def begin(self, task: Task, attempt: int) -> None:
        """Copy the log of an attempt that has ended, if logs are to be copied and it has one."""
        path = self._container.log_path(task, attempt)
        if self._store is None or not path.exists():
            return
        url = f"{self._store}/{layout.task_log(task.role, task.index, attempt)}"
        copying = asyncio.get_running_loop().create_task(self._copy(task, attempt, path, url))
        self._under_way.add(copying)
        copying.add_done_callback(self._under_way.discard)

    async def done(self, within_s: float) -> None:
        """Wait until all is copied, or until so much time has passed."""
        self._leaving.set()
        if not self._under_way:
            return
        _, unfinished = await asyncio.wait(self._under_way, timeout=within_s)
        for copying in unfinished:
            copying.cancel()
        if unfinished:
            await asyncio.wait(unfinished)

    async def _copy(self, task: Task, attempt: int, path: Path, url: str) -> None:
        problem = "the agent was ended before it was done"
        pauses, last_pauses = iter(_LOG_PAUSES_S), iter(_LAST_LOG_PAUSES_S)
        try:
            while problem := await self._try(path, url):
                leaving = self._leaving.is_set()
                pause = next(last_pauses if leaving else pauses, None)
                if pause is None:
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        # A pause is cut short when the agent begins to leave.
                        await (asyncio.sleep(pause) if leaving else self._leaving.wait())
        finally:
            if problem:
                text = f"its log could not be copied to {url}: {problem}; it is in {path}"
                self._container.note_about(task, attempt, text)

    async def _try(self, path: Path, url: str) -> str:
        """Copy it once; returns what went wrong."""
        spec = msgspec.json.encode({"log": str(path), "url": url, "job_dir": self._store})
        try:
            file = self._container.write_private(f"copy-{path.stem}.json", spec)
            argv = module("howdah.storage.helper", "copy-log", file)
            await self._container.helpers.output(argv, _LOG_TRY_S)
        except (HelperProblem, OSError) as error:
            return str(error)
        return ""
