"""What an attempt's end means: pure functions from exit statuses and evidence to an `Exit`."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable, Sequence

import msgspec

from howdah.core.causes import KERNEL_KILL
from howdah.core.messages import Exit

_SHELL_KILLED = 128 + signal.SIGKILL
"""What a shell exits with when its program was killed."""


class EndedProgram(msgspec.Struct, frozen=True, kw_only=True):
    """One of the attempt's programs, ended."""

    process: int
    """Its local rank."""
    status: int
    """Exit code, or minus the signal's number."""
    asked: bool = False
    """The agent had begun to end it when it ended."""
    tail: tuple[str, ...] = ()


def deciding(ended: Sequence[EndedProgram]) -> EndedProgram:
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


_IN_USE = re.compile(
    r"address already in use|EADDRINUSE|only one usage of each"
    r"|failed to bind to address|could not bind to|cannot bind to|unable to bind to"
    r"|binding port \d+ failed|connection in use: "
    r"|port \S+ (?:is |was )?(?:already )?(?:in use|not available)"
    r"|no address added out of|(?:could not|failed to) start (?:the )?g?RPC server"
    r"|(?:Scheduler|Nanny|Worker) failed to start",
    re.I,
)
"""Python, Java, Go, Node, NCCL, Gloo, c10d, Ray; gRPC, TensorBoard; LightGBM; gunicorn; Flask,
Jupyter. TensorFlow, JAX and Dask do not say why their servers don't start: `taken_port` finds out."""
_ANOTHER_TAKEN = re.compile(
    r"\b(?:instead|(?:trying|using|picking) (?:another|next)|next port)", re.I
)
"""A program that goes on with another port has not failed for that one."""
_PORT = re.compile(
    r"\(\s*(?:'[^']*'|\"[^\"]*\"|\*|)\s*,\s*(\d{2,5})\b"  # ('127.0.0.1', 8765
    r"|\bport\b[^0-9\n]{0,10}(\d{2,5})\b"  # port: 29500, port=29500
    r"|(?:(?<=[.:]\d)|(?<=\.\d\d)|(?<=\.\d\d\d)|(?<=[\]*:\s])):(\d{2,5})\b"  # 0.0.0.0:80, [::]:80
    r"|(?<=\w):(\d{4,5})\b(?![:.]\d)"  # host:8765
    r"|<(\d{2,5})>",  # NCCL's 10.0.0.1<29600>
    re.I,
)
_NOT_AN_ADDRESS = re.compile(
    r"\.(?:pyx?|cc?|cpp|cxx|cuh?|h|hpp|rs|go|java|js|ts):\d+|\b\d\d:\d\d:\d\d\S*"
    r"|[\w.-]+:\d+:\d+ \[\d+\]",
    re.I,
)
"""Lines of sources, times, and the host and process of NCCL's lines."""
_NEAR_LINES = 3


class BindFailure(msgspec.Struct, frozen=True, kw_only=True):
    """What a program's last lines say of a port it could not bind."""

    ports: tuple[int, ...] = ()
    """Those named: in the same line, else in the nearest one that names any."""


def bind_failure(tail: Sequence[str]) -> BindFailure | None:
    """The last failure to bind a port among these lines; None if there is none."""
    for number in reversed(range(len(tail))):
        if not _IN_USE.search(tail[number]):
            continue
        if any(_ANOTHER_TAKEN.search(line) for line in tail[number : number + 2]):
            continue
        near = sorted(
            range(max(0, number - _NEAR_LINES), min(len(tail), number + _NEAR_LINES + 1)),
            key=lambda other: (abs(other - number), -other),
        )
        named = (_ports_in(tail[other]) for other in near)
        return BindFailure(ports=next(filter(None, named), ()))
    return None


def _ports_in(line: str) -> tuple[int, ...]:
    found = _PORT.findall(_NOT_AN_ADDRESS.sub(" ", line))
    numbers = (int(next(filter(None, groups))) for groups in found)
    return tuple(number for number in numbers if 0 < number < 65536)


def taken_port(
    tail: Sequence[str], own: Sequence[int], is_held: Callable[[int], bool]
) -> tuple[bool, int | None]:
    """Whether a failed program could not bind a port that was reserved for it, and the port it could
    not bind, where that is known.

    A port that is named must be one of ``own``: one that was not reserved is the program's
    own affair. Where none is named, a reserved one counts that another program really holds now.
    """
    failure = bind_failure(tail)
    if failure is None:
        return False, None
    if failure.ports:
        ours = [port for port in failure.ports if port in own]
        return bool(ours), (ours or failure.ports)[0]
    held = next((port for port in own if is_held(port)), None)
    return held is not None, held


def exit_of(
    ended: Sequence[EndedProgram],
    *,
    ports: Sequence[int] = (),
    is_held: Callable[[int], bool] = lambda port: False,
    over_memory: str = "",
    kernel_kills: int = 0,
    limit_mb: int | None = None,
    timed_out: bool = False,
    run_s: float | None = None,
    told: bool = False,
    folder: str = "",
    python: str = "",
    owner_of: Callable[[int], str] = lambda port: "",
    hijacked: int | None = None,
) -> Exit:
    """The attempt's exit.

    Args:
        ended: all its programs in order of their ends.
        ports: those reserved for it.
        is_held: whether another program has one of those now.
        over_memory: what it used and was allowed, if the agent ended it for that.
        kernel_kills: by how much the kernel's count of out-of-memory kills grew meanwhile.
        limit_mb: what its control group may use; None: it has no limit of its own.
        timed_out: the agent ended it at its run time-out ``run_s``.
        told: the agent ended it because the coordinator wanted it, not for reasons of its own.
        folder: its working folder.
        python: the job's interpreter.
        owner_of: which other user listens on one of those ports, in words; "" if none does.
        hijacked: one of those ports, because of whose other user the agent ended it.
    """
    program = deciding(ended)
    code = program.status if program.status >= 0 else None
    killed = program.status in (-signal.SIGKILL, _SHELL_KILLED) and not program.asked
    by_kernel = killed and kernel_kills > 0
    details: list[str] = []
    if over_memory:
        details.append(over_memory)
    if by_kernel:
        of = f", which may use {limit_mb} MB" if limit_mb is not None else ""
        details.append(f"{KERNEL_KILL}: oom_kill of its control group{of}")
    if timed_out:
        details.append(f"ended at its run time-out of {run_s:g} s" if run_s else "run time-out")
    failed = program.status != 0
    taken, port = False, None
    if failed and not program.asked:
        taken, port = taken_port(program.tail, ports, is_held)
    found = defect(program.tail, folder, python) if program.status > 0 and failed else None
    port, owner = hijacked or port, ""
    if port is not None and port in ports and (taken or hijacked):
        owner = owner_of(port)
    return Exit(
        code=code,
        port_owner=owner,
        signal=-program.status if program.status < 0 else None,
        out_of_memory=bool(over_memory) or by_kernel,
        port_taken=taken,
        port=port,
        timed_out=timed_out,
        stopped=told and program.asked,
        process=program.process,
        defect=found.text if found else "",
        defect_certain=found is not None and found.certain,
        exception=exception(program.tail, folder) if program.status == _UNCAUGHT else "",
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
            f"it through its interpreter, such as `{'python' if name.endswith('.py') else 'sh'} {name}`"
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


# -- defects of the program: facts that no restart changes ------------------------------------------

_UNCAUGHT = 1
"""Python's exit code for an exception that nothing caught; with another one it was caught, and is no reason."""
_EXCEPTION = re.compile(r"(?:[\w.]+\.)?([A-Z]\w*)(?::\s.*)?")
_LONGEST = 300
"""Characters of an exception's message that a reason repeats."""
_FRAME = re.compile(r'\s*File "([^"]+)", line (\d+)')
_NO_SCRIPT = re.compile(r".*: (can't open file '.*': \[Errno 2\] No such file or directory)")
"""``python gone.py``"""
_NO_MAIN = re.compile(r"\S*python\S*: ((?:Error while finding module|No module named) .*)")
"""``python -m gone``"""
_REFUSED = re.compile(r"howdah: refused: (.*)")
"""A helper of a framework that won't go on."""
_CERTAIN = {"ModuleNotFoundError", "SyntaxError", "IndentationError", "TabError"}
_LIKELY = {"AttributeError", "ImportError", "NameError", "TypeError", "UnboundLocalError"}


class Defect(msgspec.Struct, frozen=True):
    """A defect of the program."""

    text: str
    """The exception, and the line of the program it came from."""
    certain: bool
    """It will be the same each time; else only if it has been the same twice."""


def defect(tail: Sequence[str], folder: str, python: str) -> Defect | None:
    """The defect that the last line names; None if it names none.

    Args:
        tail: the last lines of its standard error.
        folder: the program's working folder; lines of files in it are preferred.
        python: the interpreter of the job, named where something is not found.
    """
    lines = [line for line in tail if line.strip()]
    if not lines:
        return None
    last = lines[-1]
    if found := _NO_SCRIPT.fullmatch(last) or _NO_MAIN.fullmatch(last):
        return Defect(f"{found[1]} (Python: {python})", True)
    if found := _REFUSED.fullmatch(last):
        return Defect(found[1], True)
    found = _EXCEPTION.fullmatch(last)
    if found is None or found[1] not in _CERTAIN | _LIKELY:
        return None
    text = exception(lines, folder)
    if not text:
        return None
    if found[1] == "ModuleNotFoundError":
        text += f", Python: {python}"
    return Defect(text, found[1] in _CERTAIN)


def exception(tail: Sequence[str], folder: str) -> str:
    """The exception that the last traceback among these lines ends with, and the line it came from; ``""`` if
    there is none. Lines of files in ``folder`` are preferred."""
    frames = [(at, frame) for at, line in enumerate(tail) if (frame := _FRAME.match(line))]
    if not frames:
        return ""
    after = tail[frames[-1][0] + 1 :]
    # Not the last line: a message may have several.
    head = next((line for line in after if _EXCEPTION.fullmatch(line)), "")
    if not head:
        return ""
    own = [frame for _, frame in frames if frame[1].startswith(f"{folder}/")]
    frame = (own or [frames[-1][1]])[-1]
    return f"{head[:_LONGEST].strip()} ({frame[1].removeprefix(f'{folder}/')}, line {frame[2]})"
