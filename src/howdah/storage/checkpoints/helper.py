"""Checkpoints that follow a job: folders of a task, saved as versions, brought back before a start.

Agents do no store I/O themselves; they start this module as a helper process::

    python -m howdah.storage.checkpoints.helper publish|restore|watch <spec.json>

with a `CheckpointSpec`, and read one JSON object a line from its standard output: a `Saved` for
each version published (``{"version": null}`` if nothing was new), a `Restored` for a restore, a
`CheckpointProblem` for what a reader of the job's events should know. ``watch`` goes on after a problem, the
others exit 1; see `howdah.storage.checkpoints.watching` for how it is told to save and to end.

What is saved is not half-written, as far as files can tell: all of the folder has been left alone
for ``settle_s``, nobody has a file of it open for writing, none changed while they were copied,
and each copy was compared with its original.

Not guaranteed: that files a program writes one after the other with pauses longer than
``settle_s`` between them belong to the same step. Such a program writes into a folder with an
ignored name and renames it, or the job sets a longer ``settle``.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

import msgspec

from howdah.storage.checkpoints.local_fallback import take_over
from howdah.storage.checkpoints.restoring import restore
from howdah.storage.checkpoints.upload import publish
from howdah.storage.checkpoints.versions import CheckpointProblem, CheckpointSpec
from howdah.storage.errors import in_words, is_transient

_USAGE = "usage: python -m howdah.storage.checkpoints.helper publish|restore|watch <spec.json>"


def main(arguments: Sequence[str]) -> int:
    """Run one of the three as a process; returns its exit status."""
    if len(arguments) != 2 or arguments[0] not in ("publish", "restore", "watch"):
        sys.stderr.write(_USAGE + "\n")
        return 2
    what, path = arguments
    try:
        with open(path, "rb") as file:
            spec = msgspec.json.decode(file.read(), type=CheckpointSpec)
        if what == "restore":
            if (kept := take_over(spec)) is not None:
                _report(kept)
            _report(restore(spec))
        elif what == "publish":
            saved = publish(spec)
            _report(saved if saved is not None else {"version": None})
        else:
            _watch(spec)
    except Exception as error:
        # fsspec's stores raise what they like; the agent wants words, not a traceback.
        _report(CheckpointProblem(problem=in_words(error), transient=is_transient(error)))
        return 1
    return 0


def _watch(spec: CheckpointSpec) -> None:
    from howdah.storage.checkpoints.watching import Requests, watch

    with contextlib.suppress(OSError):
        os.nice(5)  # the program goes first
    requests = Requests(sys.stdin.fileno())
    requests.catch_sigterm()
    watch(spec, requests, _report)


def _report(document: object) -> None:
    # A dead agent reads no more; what is to be saved is saved all the same.
    with contextlib.suppress(OSError):
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
