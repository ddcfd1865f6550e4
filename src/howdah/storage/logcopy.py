"""Copy the log of an ended attempt to the job directory, where agents cannot write it there.

Agents have a helper process do it (`howdah.storage.helper`). Copying again replaces what there is: a
copy that was cut short is made whole. A log's name carries the attempt's number, so that no attempt's
log is in another's way.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from howdah.storage import logs
from howdah.storage.destinations import open_destination

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
