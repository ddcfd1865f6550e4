"""Copy the log of an ended attempt to the job directory, where agents cannot write it there.

Run by agents as a helper process::

    python -m howdah.storage.logcopy <spec.json>

with a `LogCopySpec`; it exits 0, or says on standard error why not. Copying again replaces what
there is: a copy that was cut short is made whole. A log's name carries the attempt's number, so that
no attempt's log is in another's way.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from howdah.storage import logs
from howdah.storage.destinations import open_destination
from howdah.storage.errors import in_words

_PATIENCE_S = 15.0
"""For a NameNode that restarts: an agent that is to go does not wait much longer."""


class LogCopySpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to copy where."""

    log: str
    """The log's first file, as for `howdah.storage.logs.LogWriter`."""
    url: str
    """The same of the copy: ``<job directory>/logs/<role>-<index>/<attempt>.log``, path or URL."""
    job_dir: str | None = None
    """The job directory, which is not made again if it was removed."""


def copy(spec: LogCopySpec) -> None:
    """Copy all files of the log, the first one last: with it the log is there.

    Raises:
        OSError: it can't be read, or the copy not be written.
    """
    log = Path(spec.log)
    folder, _, name = spec.url.rpartition("/")
    put = open_destination(folder, patience_s=_PATIENCE_S, within=spec.job_dir).put
    first, *later = logs.files(log)
    for path in (*later, first):
        if path == logs.index_path(log):
            put(path, logs.index_path(Path(name)).name)
        else:
            put(path, name + path.name.removeprefix(log.name))


def main(arguments: Sequence[str]) -> int:
    """Run as a process; returns its exit status."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m howdah.storage.logcopy <spec.json>\n")
        return 2
    try:
        copy(msgspec.json.decode(Path(arguments[0]).read_bytes(), type=LogCopySpec))
    except Exception as error:
        # fsspec's stores raise what they like; the agent wants words, not a traceback.
        sys.stderr.write(f"{in_words(error)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
