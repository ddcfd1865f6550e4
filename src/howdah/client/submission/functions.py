"""A Python function as the program of a job: sent to every rank, its values brought back.

The function travels by cloudpickle in the job's own folder, which only its owner can read; so do
the values. Nothing is unpickled that did not lie there.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from howdah.client.errors import BadInput, JobFailed, not_saved
from howdah.core.state import Outcome
from howdah.frameworks.planning import processes
from howdah.spec.model import Job, Role
from howdah.storage import layout
from howdah.storage.files import make_private_folder, write_atomically
from howdah.storage.jobdir import JobDirectory
from howdah.wire.status import JobView, TaskView

INSIDE = f"$HOWDAH_SHARED_DIR/../{layout.FUNCTION}"
"""The call's folder as a program's shell finds it. Elsewhere than here the job directory may be
another in every container, or a copy; values that are written next to this folder are brought back."""
CALL = "call.pkl"
SCRIPT = "call.py"


def place(backend: str | None) -> str:
    """The backend of a function job: functions and their values go through the job directory, so
    the processes must see it.

    Raises:
        BadInput: they do not there.
    """
    from howdah.backends import registry
    from howdah.client.submission.begin import default_backend

    name = backend or default_backend()
    if not registry.runs_functions(name):
        raise BadInput(
            f"functions are not run by the backend {name!r}; they are on this machine "
            "(backend='local') and in Spark applications (backend='spark'). Submit a job with a "
            f"script: howdah.submit(job, backend={name!r})"
        )
    return name


def job_name(function: Callable[..., Any]) -> str:
    return (
        re.sub(r"[^A-Za-z0-9._-]+", "-", function_title(function)).strip("._-")[:100] or "function"
    )


class FunctionJob:
    """A job whose program is a call of a Python function."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        roles: Mapping[str, int | str | Role] | None = None,
        title: str = "",
        **fields: Any,
    ) -> None:
        """Pickle the call and describe the job; ``fields`` are those of `howdah.Job`, and ``title`` is what
        errors call the function.

        Raises:
            BadInput: the function or its arguments cannot be pickled, or are none.
        """
        if not callable(function):
            raise BadInput(
                f"{function!r} is no function; for a script write a howdah.Job with it as the command, and submit that"
            )
        if roles is not None and not isinstance(roles, Mapping):
            raise BadInput(f"roles: {roles!r} names no roles; write roles={{'worker': {roles!r}}}")
        call = (function, tuple(args), dict(kwargs or {}))
        self._call = _pickled(title or function_title(function), call)
        self.job: Job = Job(
            name=fields.pop("name", None) or job_name(function),
            # The shell's $HOWDAH_PYTHON is the interpreter of the job's environment.
            command=f'"$HOWDAH_PYTHON" "{INSIDE}/{SCRIPT}"',
            roles={
                name: value if isinstance(value, Role) else Role(instances=value)
                for name, value in (roles or {"worker": 1}).items()
            },
            source=fields.pop("source", None),
            **fields,
        )

    def populate(self, directory: JobDirectory) -> None:
        folder = directory.path / layout.FUNCTION
        make_private_folder(folder)
        write_atomically(folder / CALL, self._call)
        script = Path(__file__).with_name("function_script.py")
        write_atomically(folder / SCRIPT, script.read_bytes())


def carry_over(before: JobDirectory, directory: JobDirectory) -> None:
    """Give a job that runs again the call of the earlier one, if it was a function job."""
    folder = before.path / layout.FUNCTION
    if folder.is_dir():
        shutil.copytree(folder, directory.path / layout.FUNCTION)


def values(directory: JobDirectory, view: JobView) -> dict[int, Any]:
    """What the ranks returned, by rank; a rank that was stopped before it returned is absent.

    Where the job succeeded but could not save a checkpoint or an output, that is a `RuntimeWarning`:
    the values themselves are there.

    Raises:
        JobFailed: the job did not succeed; with the traceback of the rank that failed first.
        BadInput: a value cannot be unpickled here.
    """
    ranks = sorted(rank for task in view.tasks for rank in _ranks(directory, task))
    if view.outcome == Outcome.SUCCEEDED.value:
        if view.unsaved:
            warnings.warn(not_saved(view), RuntimeWarning, stacklevel=3)
        results = {rank: _result(directory, rank) for rank in ranks}
        return {rank: found[1] for rank, found in results.items() if found and found[0]}
    guilty = {failure.task for failure in view.failures[-1:]}
    suspects = [
        rank for task in view.tasks if task.task in guilty for rank in _ranks(directory, task)
    ]
    text = f"{view.job_id} {view.outcome or 'has not ended'}: {view.reason}"
    for rank in [*suspects, *ranks]:
        with contextlib.suppress(BadInput):  # a value
            found = _result(directory, rank)
            if found and not found[0]:
                _, trace, sent = found
                raise JobFailed(f"{text}\nIn rank {rank}:\n{trace}", view) from exception_of(sent)
    tail = [line for failure in view.failures[-1:] for line in failure.tail]
    raise JobFailed("\n    ".join([text, *tail]), view)


def _ranks(directory: JobDirectory, task: TaskView) -> range:
    if task.rank is None:
        return range(0)
    return range(task.rank, task.rank + processes(directory.job().roles[task.role]))


def _result(directory: JobDirectory, rank: int) -> tuple[Any, ...] | None:
    path = directory.results / f"{rank}.pkl"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return pickle.loads(content)  # noqa: S301 - from the job's folder, its owner's alone
    except Exception as error:
        raise BadInput(
            f"what rank {rank} returned cannot be unpickled here: {type(error).__name__}: {error}. Return "
            f"what this program can import, too; it is in {path}"
        ) from error


def exception_of(sent: bytes | None) -> BaseException | None:
    """What a rank raised; None where it could not be pickled there, or not unpickled here."""
    with contextlib.suppress(Exception):
        error = pickle.loads(sent) if sent else None  # noqa: S301 - as above
        return error if isinstance(error, BaseException) else None


def _pickled(title: str, sent: tuple[Any, ...]) -> bytes:
    import cloudpickle

    try:
        call = cloudpickle.dumps(sent)
    except Exception as error:
        raise BadInput(
            f"{title} or its arguments cannot be sent to the job's processes: {error}. "
            "Pass what can be pickled, and open files, sockets and locks inside the function"
        ) from error
    path = [str(Path(entry).absolute()) for entry in sys.path]
    return pickle.dumps({"path": path, "call": call})


def function_title(function: Callable[..., Any]) -> str:
    """What a function is called in texts."""
    return getattr(function, "__name__", type(function).__name__)
