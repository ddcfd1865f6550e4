"""Whether the client that submits a job is still at it: one that was killed hands nothing over."""

from __future__ import annotations

import os
import socket
import time

from howdah.agent.host.processes import stat
from howdah.backends.base import Lost
from howdah.storage.layout import JobMeta, Submitter

HANDED_OVER_S = 5.0
"""What is handed over shows up within this, also when its client has ended by then."""
ELSEWHERE_S = 1800.0
"""A submission by another machine, whose processes can't be seen from here, takes no longer, even where
that machine's clock is some minutes behind."""


def submitter() -> Submitter:
    """This process."""
    return Submitter(host=socket.gethostname(), pid=os.getpid(), start=_start_of(os.getpid()))


def may_go_on(meta: JobMeta) -> bool:
    """Whether a job that was not handed over yet may still be."""
    by = meta.submitter
    if by is None:
        return False
    age_s = time.time() - meta.submitted
    if by.host != socket.gethostname():
        return age_s < ELSEWHERE_S
    return age_s < HANDED_OVER_S or (by.start is not None and _start_of(by.pid) == by.start)


def under_way(meta: JobMeta) -> str:
    """That it is being submitted, in words."""
    by = meta.submitter
    return f"it is being submitted by process {by.pid} on {by.host}" if by is not None else ""


def never_handed_over(meta: JobMeta, to: str) -> Lost:
    """What became of a job whose client is gone, in words; ``to`` is where it should have run."""
    by = meta.submitter
    client = f" (process {by.pid} on {by.host})" if by is not None else ""
    return Lost(
        f"{meta.job_id} was never handed over to {to}: the client that submitted it{client} ended"
        " before. Nothing of it runs",
        f"To submit it again: howdah rerun {meta.job_id}",
    )


def _start_of(pid: int) -> int | None:
    found = stat(pid)
    return None if found is None or found.zombie else found.start
