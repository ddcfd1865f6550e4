"""The process an agent starts for work on a store, for agents do none themselves::

    python -m howdah.storage.helper <work> <spec.json>

``restore``, ``publish`` and ``watch`` take a `howdah.storage.checkpoints.versions.CheckpointSpec`, ``push`` and
``pull`` a `howdah.storage.folder_sync.FollowSpec`, ``copy-outputs`` and ``copy-log`` an `OutputSpec` and a
`LogCopySpec` of `howdah.storage.outputs`.

What it says comes on standard output, one JSON object a line: what came of the work (``{"version": null}`` if
nothing was new to publish), and a `CheckpointProblem` for what a reader of the job's events should know. It exits 0;
where it could not do the work, it exits 1 after a last `CheckpointProblem`, and says the same on standard error.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from howdah.storage.checkpoints.versions import CheckpointProblem, CheckpointSpec, Saved
from howdah.storage.confined_paths import encoded
from howdah.storage.errors import in_words, is_transient

WORKS = ("restore", "publish", "watch", "push", "pull", "copy-outputs", "copy-log")


class SavedMeanwhile(Exception):
    """There is a newer version than when the attempt was begun, and others may have begun from an older one."""

    transient = True


def main(arguments: Sequence[str]) -> int:
    """Do one of them as a process; returns its exit status."""
    if len(arguments) != 2 or arguments[0] not in WORKS:
        sys.stderr.write(f"usage: python -m howdah.storage.helper {'|'.join(WORKS)} <spec.json>\n")
        return 2
    work, path = arguments
    try:
        _do(work, Path(path).read_bytes())
    except Exception as error:
        if isinstance(error, ImportError) and (error.name or "").startswith("howdah."):
            raise  # half of a release that is replaced by another: the agent's program tries again
        # fsspec's stores raise what they like; the agent wants words, not a traceback. Works other than
        # these two try again by themselves.
        again = work in ("restore", "publish") and is_transient(error)
        _report(CheckpointProblem(problem=in_words(error), transient=again))
        sys.stderr.write(f"{in_words(error)}\n")
        return 1
    return 0


def _do(work: str, spec: bytes) -> None:
    match work:
        case "push" | "pull":
            from howdah.storage import folder_sync

            _go_last()
            folder_sync.follow(
                work, msgspec.json.decode(spec, type=folder_sync.FollowSpec), _report
            )
        case "copy-outputs":
            from howdah.storage import outputs

            outputs.run(msgspec.json.decode(spec, type=outputs.OutputSpec), _report)
        case "copy-log":
            from howdah.storage import outputs

            outputs.copy_log(msgspec.json.decode(spec, type=outputs.LogCopySpec))
        case _:
            _checkpoints(work, msgspec.json.decode(spec, type=CheckpointSpec))


def _checkpoints(work: str, spec: CheckpointSpec) -> None:
    if work == "watch":
        from howdah.storage.checkpoints.watching import Requests, watch

        _go_last()
        requests = Requests(sys.stdin.fileno())
        requests.catch_sigterm()
        watch(spec, requests, _report)
    elif work == "publish":
        from howdah.storage.checkpoints.upload import publish

        _report(publish(spec) or {"version": None})
    else:
        from howdah.storage.checkpoints.local_fallback import take_over
        from howdah.storage.checkpoints.restoring import restore

        if (kept := take_over(spec)) is not None:
            _report(kept)
        if isinstance(kept, Saved) and spec.source != "each":
            raise SavedMeanwhile(
                f"{kept.version}, which was kept while {spec.place} was away, has just been saved, and the "
                "job goes on from that"
            )
        _report(restore(spec))


def _go_last() -> None:
    with contextlib.suppress(OSError):
        os.nice(5)  # the program goes first


def _report(document: object) -> None:
    # A dead agent reads no more; what is to be saved is saved all the same.
    with contextlib.suppress(OSError):
        sys.stdout.buffer.write(encoded(document) + b"\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
