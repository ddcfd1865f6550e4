"""What an attempt's end means: pure functions from exit statuses and evidence to an `Exit`."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence

import msgspec

from howdah.agent.ports import port_was_taken
from howdah.core.messages import Exit

_SHELL_KILLED = 128 + signal.SIGKILL
"""What a shell exits with when its program was killed."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """One of the attempt's programs, ended."""

    process: int
    """Its local rank."""
    status: int
    """Exit code, or minus the signal's number."""
    asked: bool = False
    """The agent had begun to end it when it ended."""
    tail: tuple[str, ...] = ()


def deciding(ended: Sequence[Ended]) -> Ended:
    """The program whose end is the attempt's: the first that failed by itself.

    ``ended`` is in order of time and not empty.
    """
    for program in ended:
        if program.status != 0 and not program.asked:
            return program
    for program in ended:
        if program.status != 0:
            return program
    return ended[-1]


def exit_of(
    ended: Sequence[Ended],
    *,
    ports: Sequence[int] = (),
    over_memory: str = "",
    kernel_kills: int = 0,
    timed_out: bool = False,
    run_s: float | None = None,
    told: bool = False,
) -> Exit:
    """The attempt's exit.

    Args:
        ended: all its programs in order of their ends.
        ports: those reserved for it.
        over_memory: what it used and was allowed, if the agent ended it for that.
        kernel_kills: by how much the kernel's count of out-of-memory kills grew meanwhile.
        timed_out: the agent ended it at its run time-out ``run_s``.
        told: the agent ended it because the coordinator wanted it, not for reasons of its own.
    """
    program = deciding(ended)
    code = program.status if program.status >= 0 else None
    killed = program.status in (-signal.SIGKILL, _SHELL_KILLED) and not program.asked
    by_kernel = killed and kernel_kills > 0
    details: list[str] = []
    if over_memory:
        details.append(over_memory)
    if by_kernel:
        details.append("the kernel's out-of-memory killer ended it (oom_kill of its control group)")
    if timed_out:
        details.append(f"ended at its run time-out of {run_s:g} s" if run_s else "run time-out")
    failed = program.status != 0
    own_failure = failed and not program.asked
    return Exit(
        code=code,
        signal=-program.status if program.status < 0 else None,
        out_of_memory=bool(over_memory) or by_kernel,
        port_taken=own_failure and port_was_taken(program.tail, ports),
        timed_out=timed_out,
        stopped=told and program.asked,
        process=program.process,
        detail="; ".join(details),
        tail=program.tail if failed else (),
    )


def not_started(argv: Sequence[str], cwd: str, error: Exception) -> str:
    """Why a program could not be started, and what to do."""
    name = argv[0] if argv else ""
    number = getattr(error, "errno", None)
    missing = getattr(error, "filename", None)
    if number == errno.ENOENT and missing == cwd:
        return f"the working folder {cwd} is gone; something removed it"
    if number == errno.ENOENT and os.sep not in name:
        return f"there is no program {name!r} on PATH; install it, or give its path in `command`"
    if number == errno.ENOENT:
        return (
            f"{name!r} cannot be run: it does not exist, or its first line (#!) names an "
            "interpreter that does not; paths are relative to the source folder"
        )
    if number == errno.EACCES:
        return (
            f"{name!r} cannot be run: permission denied; make it executable (chmod +x), or start "
            f"it through its interpreter, such as `python {name}`"
        )
    if number == errno.ENOEXEC:
        return (
            f"{name!r} cannot be run: it is no program for this machine and has no first line "
            "(#!) naming an interpreter"
        )
    if number == errno.E2BIG:
        return f"{name!r} cannot be run: its arguments and environment are too large together"
    if number in (errno.EAGAIN, errno.ENOMEM):
        return f"{name!r} cannot be run: the host has no room for another process ({error})"
    return f"{name!r} cannot be run: {error}"
