"""The job directory: the truth about one job. `howdah.storage.layout` has the names inside.

Everything in it belongs to the submitter alone: folders 0700, files 0600.
"""

from __future__ import annotations

import getpass
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from howdah.core.messages import Task
from howdah.core.state import JobPhase, Outcome
from howdah.spec.model import Checkpoint, Job
from howdah.spec.problems import closest
from howdah.storage import layout, legacy_names, ownership
from howdah.storage.files import make_private_folder, read_regular, write_atomically, write_private
from howdah.storage.layout import CoordinatorAddress, JobMeta
from howdah.wire.decoders import document_decoder
from howdah.wire.status import EXIT_CODES, JobView

T = TypeVar("T")

_SUFFIX_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""No letters that look like others."""

_NAME_LENGTH = 30
"""With time and suffix a job id stays well under the 63 characters of a DNS label."""

_STAMP = re.compile(r"-(\d{8}-\d{6})-[a-z0-9]+$")


class StorageError(Exception):
    """A job directory can't be used; the message is for the user."""


class NotYours(StorageError):
    """A job directory that somebody else has made, or could have put there."""

    job_id = ""
    """Empty: none in that folder can be trusted."""


class NoSuchJob(StorageError, LookupError):
    """No job, or more than one, answers to what was asked for."""

    several: tuple[JobDirectory, ...] = ()
    """The jobs, newest first, where more than one answers. One that has ended on a cluster may have no
    directory here, unless it is the newest."""


def new_job_id(name: str, now: float | None = None) -> str:
    """A fresh id such as ``digits-20261121-143502-k3f9``: name, UTC time, four random letters.

    It sorts by time within a name and is a valid DNS label.
    """
    slug = _as_in_ids(name)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    suffix = "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(4))
    return f"{slug or 'job'}-{stamp}-{suffix}"


def user_name() -> str:
    """The account's name, or ``uid-1000`` where it has none (containers)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def base_folder(store: str | None = None, env: Mapping[str, str] = os.environ) -> Path:
    """The folder of the user's job directories: ``<store>/<user>``.

    ``store`` is the job file's; without it ``$HOWDAH_HOME/jobs``, else ``~/.howdah/jobs``.

    Raises:
        StorageError: the store is a URL of something that is no local folder.
    """
    if store is None:
        home = env.get("HOWDAH_HOME")
        base = Path(home).expanduser() if home else Path.home() / ".howdah"
        return base.absolute() / "jobs" / user_name()
    if store.startswith("file://"):
        store = store.removeprefix("file://")
    elif "://" in store:
        raise StorageError(
            f"The store {store!r} is no local folder; the local backend keeps job directories on"
            " this machine: give a path, or leave store out"
        )
    return Path(store).expanduser().absolute() / user_name()


class JobDirectory:
    """One job's directory. Nothing is read or written before it is asked for."""

    def __init__(self, path: Path | str) -> None:
        self.path: Path = Path(path)

    def __repr__(self) -> str:
        return f"JobDirectory({str(self.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobDirectory) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    @property
    def job_id(self) -> str:
        return self.path.name

    @property
    def secrets(self) -> Path:
        """Folder of certificates, keys and token; see `howdah.wire.authority`."""
        return self.path / layout.SECRETS

    @property
    def logs(self) -> Path:
        return self.path / layout.LOGS

    @property
    def checkpoints(self) -> Path:
        return self.path / layout.CHECKPOINTS

    @property
    def shared(self) -> Path:
        return self.path / layout.SHARED

    @property
    def tensorboard(self) -> Path:
        return self.path / layout.TENSORBOARD

    @property
    def containers(self) -> Path:
        return self.path / layout.CONTAINERS

    @property
    def results(self) -> Path:
        return self.path / layout.RESULTS

    @property
    def stacks(self) -> Path:
        return self.path / layout.STACKS

    def log_path(self, task: Task, attempt: int) -> Path:
        """The attempt's log; see `howdah.storage.logs`."""
        _check_role(task)
        return self.path / layout.task_log(task.role, task.index, attempt)

    def checkpoint_store(self, table: Checkpoint, home: str | None = None) -> str:
        """The place of the job's checkpoints, a path or URL.

        ``home`` is the job directory as its tasks see it, where that is not this folder.

        A store the job file names is shared by its runs: each has a folder of its own there, so that
        a new run begins from nothing unless it is told to resume an old one.
        """
        if table.store is None:
            return f"{home or self.path}/{layout.CHECKPOINTS}"
        return f"{table.store.rstrip('/')}/{self.job_id}"

    def log_attempts(self, task: Task) -> list[int]:
        """Attempts of the task that have a log, ascending."""
        _check_role(task)
        folder = self.path / layout.LOGS / f"{task.role}-{task.index}"
        return sorted(int(p.stem) for p in folder.glob("*.log") if p.stem.isdecimal())

    def stacks_path(self, task: Task, attempt: int) -> Path:
        _check_role(task)
        return self.path / layout.STACKS / f"{task.role}-{task.index}-{attempt}.txt"

    def container_path(self, container_id: str) -> Path:
        return self.path / layout.CONTAINERS / container_id

    # -- documents -------------------------------------------------------------------------------

    def create(self, job: Job, meta: JobMeta) -> None:
        """Make the directory with its folders, the resolved job file and the meta data.

        Raises:
            FileExistsError: there is such a job already.
            NotYours: others could replace the folder of jobs.
        """
        make_private_folder(self.path.parent)
        check_folder_of_jobs(self.path.parent)
        make_private_folder(self.path, exist_ok=False)
        for name in (
            layout.SECRETS,
            layout.LOGS,
            layout.STACKS,
            layout.CHECKPOINTS,
            layout.OUTPUTS,
            layout.TENSORBOARD,
            layout.SHARED,
            layout.CONTAINERS,
            layout.RESULTS,
        ):
            make_private_folder(self.path / name)
        self._write(layout.JOB, job)
        self._write(layout.META, meta)

    def job(self) -> Job:
        """The resolved job file.

        Raises:
            StorageError: it is missing or damaged.
        """
        return self._read(layout.JOB, Job)

    def meta(self) -> JobMeta:
        """What was known at submission.

        Raises:
            StorageError: it is missing or damaged.
        """
        return self._read(layout.META, JobMeta)

    @property
    def is_whole(self) -> bool:
        """Whether what was known at submission, and of the end if it has ended, can be read."""
        try:
            self.meta()
            self.job()
            self.final()
        except StorageError:
            return False
        return True

    def submitted(self) -> float:
        """When, in seconds since the epoch; 0 where its documents are missing or damaged."""
        try:
            return self.meta().submitted
        except StorageError:
            return 0.0

    def write_meta(self, meta: JobMeta) -> None:
        """Say more of a job that is being submitted: where on a cluster it is."""
        self._write(layout.META, meta)

    def token(self) -> str:
        """The secret of the job's HTTP port.

        Raises:
            StorageError: there is none (no authority was made), it is not this user's, or this is no
                job directory.
        """
        # Not for those who only list jobs: it brings ssl.
        from howdah.wire import authority

        try:
            return read_regular(self.secrets / authority.TOKEN_FILE).decode("utf-8").strip()
        except OSError as error:
            self.meta()  # says so where the whole directory is gone
            raise StorageError(f"The token of job {self.job_id} can't be read: {error}") from error

    def containers_key(self) -> bytes | None:
        """What the secrets of the job's containers are made of; None in one of an older release.

        Raises:
            OSError: it can't be read.
        """
        from howdah.wire import authority  # as above

        try:
            return read_regular(self.secrets / authority.CONTAINERS_FILE)
        except FileNotFoundError:
            return None

    def secret_variables(self) -> dict[str, str]:
        """Values of the job file's ``[secrets]``.

        Raises:
            StorageError: they can't be read.
        """
        name = f"{layout.SECRETS}/{layout.VARIABLES}"
        return self._read_if_there(name, document_decoder(dict[str, str])) or {}

    def write_secret_variables(self, values: Mapping[str, str]) -> None:
        """Keep them; no file without any.

        Raises:
            OSError: it can't be written.
        """
        if values:
            write_private(self.secrets / layout.VARIABLES, msgspec.json.encode(values))

    def coordinator(self) -> CoordinatorAddress | None:
        """Where the coordinator is, as the last one wrote it; None if none lives.

        After a crash the address of the dead one is still there until its successor's.
        """
        return self._read_if_there(layout.COORDINATOR, document_decoder(CoordinatorAddress))

    def write_coordinator(self, address: CoordinatorAddress) -> None:
        self._write(layout.COORDINATOR, address)

    def remove_coordinator(self) -> None:
        """Take the address back; harmless if there is none."""
        (self.path / layout.COORDINATOR).unlink(missing_ok=True)

    def final(self) -> JobView | None:
        """The job as it ended; None while it has not.

        Raises:
            StorageError: the document is damaged.
        """
        return self._read_if_there(layout.FINAL, legacy_names.view)

    def write_final(self, view: JobView) -> None:
        self._write(layout.FINAL, view)

    def unsaved(self) -> list[Path]:
        """Folders of what its stores have not taken; see `howdah.storage.layout`."""
        return sorted((self.path / layout.UNSAVED).glob("*/*/*"))

    def fail(self, reason: str, advice: str = "") -> JobView:
        """Write the end of a job that has no coordinator to write it: it failed."""
        job, meta = self.job(), self.meta()
        view = JobView(
            job_id=meta.job_id,
            name=job.name,
            framework=job.framework,
            user=meta.user,
            backend=meta.backend,
            phase=JobPhase.FINISHED.value,
            outcome=Outcome.FAILED.value,
            exit_code=EXIT_CODES[Outcome.FAILED],
            reason=reason,
            advice=advice,
            submitted=meta.submitted,
            finished=time.time(),
            unsaved=tuple(f"{path.parts[-3]}: kept in {path}" for path in self.unsaved()),
            directory=str(self.path),
        )
        self.write_final(view)
        return view

    def _write(self, name: str, document: msgspec.Struct) -> None:
        write_atomically(
            self.path / name, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
        )

    def _read(self, name: str, type: type[T]) -> T:
        document = self._read_if_there(name, document_decoder(type))
        if document is None:
            raise StorageError(
                f"{self.path} has no {name}: it is no job directory, or its job was never started"
            )
        return document

    def _read_if_there(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        path = self.path / name
        try:
            return decode(read_regular(path))
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise StorageError(f"{path} can't be read: {error}") from error


def _check_role(task: Task) -> None:
    """Journals and final documents may be somebody else's: a role of theirs must lead to no other job."""
    if "/" in task.role or "\0" in task.role:
        raise StorageError(f"{task.role!r} is no name of a role")


def may_be_made(base: Path) -> bool:
    """Whether the user may make job directories in ``base``, and it where it is not there."""
    existing = next(folder for folder in (base, *base.parents) if folder.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def check_folder_of_jobs(base: Path) -> None:
    """Refuse a folder of job directories that others could replace, or put jobs into.

    Raises:
        NotYours: with what to do.
    """
    if why := ownership.exposed(base):
        raise NotYours(
            f"The job directories in {base} can't be trusted: {why}, so that somebody else could put "
            f"jobs there that run commands of theirs as you. Keep jobs elsewhere (HOWDAH_HOME, or `store` "
            f"in the job file), or make the folder yours and {ownership.REMEDY}"
        )


def own(directory: JobDirectory) -> JobDirectory:
    """That job directory, if it is the user's own.

    Raises:
        NotYours: somebody else may have made it.
    """
    if why := ownership.owner_problem(directory.path):
        error = NotYours(
            f"The job {directory.job_id} can't be trusted: {why}. Its commands would run as you. If "
            "you know it for your own, correct that (chown, chmod go-w); else remove it"
        )
        error.job_id = directory.job_id
        raise error
    return directory


def list_jobs(
    base: Path, passed_over: Callable[[NotYours], None] = lambda problem: None
) -> list[JobDirectory]:
    """The user's jobs below ``base``, newest first; ``passed_over`` is told of what is not theirs.

    Raises:
        NotYours: others could put jobs there.
    """
    check_folder_of_jobs(base)
    try:
        entries = [entry for entry in os.scandir(base) if entry.is_dir()]
    except FileNotFoundError:
        return []
    jobs: list[JobDirectory] = []
    for entry in entries:
        try:
            directory = own(JobDirectory(entry.path))
        except NotYours as problem:
            passed_over(problem)
            continue
        if os.path.exists(f"{entry.path}/{layout.META}"):
            jobs.append(directory)
    return sorted(jobs, key=lambda job: order(job.job_id), reverse=True)


def name_of(job_id: str) -> str:
    """The part of a job id that was made of the job's name."""
    stamp = _STAMP.search(job_id)
    return job_id[: stamp.start()] if stamp else job_id


def _as_in_ids(name: str) -> str:
    """A name as it stands in a job id."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_NAME_LENGTH].strip("-")


def is_called(job_id: str, name: str) -> bool:
    """Whether the job has that name, as far as its id tells."""
    return bool(name) and name_of(job_id) == _as_in_ids(name)


def answering(job_ids: Iterable[str], wanted: str) -> set[str]:
    """Those that ``wanted`` is the id or the whole name of; if there are none, those whose id or name begins so."""
    ids = set(job_ids)
    if wanted in ids:
        return {wanted}
    begins = re.sub(r"[^a-z0-9]+", "-", wanted.lower()).lstrip("-")
    if not begins:
        return set()
    return {each for each in ids if is_called(each, wanted)} or {
        each for each in ids if each.startswith((wanted, begins))
    }


def find(base: Path, wanted: str) -> JobDirectory:
    """The job of that id or name, or whose id or name begins so.

    Raises:
        NoSuchJob: none or several; the text says which there are.
        NotYours: it, or the folder of jobs, may be somebody else's.
    """
    if wanted and "/" not in wanted and os.path.exists(base / wanted):
        check_folder_of_jobs(base)
        directory = own(JobDirectory(base / wanted))
        if os.path.exists(directory.path / layout.META):
            return directory
    not_ours: list[NotYours] = []
    jobs = list_jobs(base, not_ours.append)
    found = answering((job.job_id for job in jobs), wanted)
    matching = [job for job in jobs if job.job_id in found]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise ambiguous(wanted, matching)
    for problem in not_ours:
        if wanted and problem.job_id.startswith(wanted):
            raise problem
    if not jobs:
        raise NoSuchJob(f"There is no job {wanted!r}: {base} has no jobs yet")
    near = closest(_as_in_ids(name_of(wanted)), {name_of(job.job_id) for job in jobs})
    meant = [job for job in jobs if name_of(job.job_id) == near]
    newest = f"the newest {'is' if len(jobs) == 1 else 'are'} {_some(jobs)};"
    hint = f"did you mean {_some(meant)}?" if meant else newest
    raise NoSuchJob(f"There is no job {wanted!r} in {base}; {hint} `howdah list` shows all")


def ambiguous(wanted: str, jobs: list[JobDirectory], which: str = "") -> NoSuchJob:
    """Several jobs, newest first, answer to what was asked for; ``which`` says more of them."""
    error = NoSuchJob(
        f"{wanted!r} is the name or the beginning of {len(jobs)}{which} job ids"
        f" ({_some(jobs)}); give more of the one you mean"
    )
    error.several = tuple(jobs)
    return error


def _some(jobs: list[JobDirectory]) -> str:
    return ", ".join(job.job_id for job in jobs[:3]) + (", …" if len(jobs) > 3 else "")


def order(job_id: str) -> tuple[str, str]:
    """By what job ids are sorted in the order of their submission."""
    stamp = _STAMP.search(job_id)
    return (stamp.group(1) if stamp else "", job_id)
