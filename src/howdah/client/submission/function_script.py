"""Makes the pickled call of a function job, in one rank. Copied into the job's folder; run there.

It needs the standard library and cloudpickle, not Howdah: the task's interpreter is the user's.
"""

import os
import pickle
import sys
import traceback
from pathlib import Path

FOLDER = Path(__file__).absolute().parent


def main() -> int:
    """Call the function; its value, or its exception, is this rank's result."""
    if sys.path and Path(sys.path[0]).absolute() == FOLDER:
        del sys.path[0]
    rank = os.environ.get("HOWDAH_RANK")
    result = None if rank is None else FOLDER.parent / "results" / f"{rank}.pkl"
    if result is not None:
        result.unlink(missing_ok=True)  # an earlier attempt's
    code, content = call()
    if result is not None:
        write(result, content)
    return code


def call() -> tuple[int, bytes]:
    """Exit code and pickled result: ``(True, value)`` or ``(False, traceback, pickled exception)``."""
    try:
        # The folder is its owner's alone: what lies there is what the owner sent.
        sent = pickle.loads((FOLDER / "call.pkl").read_bytes())  # noqa: S301 - the owner's
        sys.path += [entry for entry in sent["path"] if entry not in sys.path]
        function, args, kwargs = pickle.loads(sent["call"])  # noqa: S301 - the same
        return 0, pickled((True, Pickled(function(*args, **kwargs))))
    except SystemExit as end:
        if end.code in (None, 0):
            return 0, pickled((True, None))
        return failed(end, end.code if isinstance(end.code, int) else 1)
    except BaseException as error:
        return failed(error, 1)


def failed(error: BaseException, code: int) -> tuple[int, bytes]:
    """The result of a call that raised; its traceback is printed too."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    sys.stdout.flush()
    sys.stderr.write(text)
    if isinstance(error, pickle.PicklingError):
        # It would be the same each time: nothing is to run again for it.
        sys.stderr.write(f"howdah: refused: {' '.join(str(error).split())}\n")
    try:
        # Apart: where it cannot be unpickled, the text can.
        sent = pickled(error.with_traceback(None))
    except Exception:
        sent = None  # not every exception can be pickled
    return code, pickle.dumps((False, text, sent))


class Pickled:
    """What a function returned, pickled at once; unpickled it is the value itself.

    Raises:
        pickle.PicklingError: it cannot be, which is the function's own error.
    """

    def __init__(self, value: object) -> None:
        try:
            self._content = pickled(value)
        except Exception as error:
            rank = os.environ.get("HOWDAH_RANK")
            raise pickle.PicklingError(
                f"the function returned a {type(value).__name__}{f' in rank {rank}' if rank else ''}, "
                f"which cannot be sent back: {type(error).__name__}: {error}. Return what can be "
                "pickled, such as the weights, or save it to a file and return the path"
            ) from error

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return pickle.loads, (self._content,)  # noqa: S301 - what was just pickled


def pickled(result: object) -> bytes:
    """By cloudpickle, which knows what was defined in the caller's main module."""
    import cloudpickle

    return cloudpickle.dumps(result)


def write(path: Path, content: bytes) -> None:
    """Whole or not at all, readable by its owner only."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
