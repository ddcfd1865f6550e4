"""Where a task's processes stand: Python stacks through py-spy, else what the kernel says."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from howdah.agent.children import HelperProblem, Helpers
from howdah.agent.host.processes import Stat, command_line, program

_DUMP_S = 15.0
"""One process' dump; py-spy waits for a process that the kernel holds."""
_AT_ONCE = 4
_PROCESSES = 128
_SENT = 1024 * 1024
"""Characters of a text that are sent; the file has all."""
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|^<frozen |/lib(?:64)?/python\d")
_STANDARD = re.compile(r"^<frozen |/lib(?:64)?/python\d[^/]*/(?!(?:site|dist)-packages/)")


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as py-spy has it."""

    name: str
    filename: str
    line: int = 0


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """One thread's stack, innermost frame first."""

    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool = False
    owns_gil: bool = False
    frames: tuple[Frame, ...] = ()


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """One process."""

    pid: int
    command: str
    threads: tuple[Thread, ...] = ()
    problem: str = ""
    """Why there are no threads."""
    kernel: str = ""
    """What /proc tells instead."""


class StackDump(msgspec.Struct, frozen=True, kw_only=True):
    """All of an attempt's."""

    innermost: str
    text: str
    problem: str


async def take(
    helpers: Helpers, programs: Sequence[Sequence[int]], folders: Sequence[str]
) -> StackDump:
    """The stacks of the task's programs, each with its children: see `group`.

    ``folders`` hold the user's code: a frame in one of them is what to name.
    """
    tool = _find_tool()
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(pid: int) -> Dump:
        async with turns:
            return await _dump(helpers, tool, pid)

    living = [[pid for pid in pids if command_line(pid)] for pids in programs]
    chosen, left_out = choose(living, _PROCESSES)
    taken = iter(await asyncio.gather(*(one(pid) for pids in chosen for pid in pids)))
    return summarise([[next(taken) for _ in pids] for pids in chosen], folders, left_out)


def choose(programs: Sequence[Sequence[int]], limit: int) -> tuple[list[list[int]], int]:
    """At most ``limit`` processes of all programs, and how many others there are. Pure.

    One of each program comes first, its own; then one more of each, until the limit is reached.
    """
    order = sorted((place, n) for n, pids in enumerate(programs) for place in range(len(pids)))
    counts = Counter(n for _, n in order[:limit])
    return [list(pids[: counts[n]]) for n, pids in enumerate(programs)], len(order[limit:])


def summarise(
    programs: Sequence[Sequence[Dump]], folders: Sequence[str], left_out: int = 0
) -> StackDump:
    """One text for people, and the line to name: of each program if they differ. Pure.

    ``left_out`` more processes were not looked at. The programs' own processes come first in the
    text, then their children.
    """
    dumps = [dump for of_one in programs for dump in of_one[:1]]
    dumps += [dump for of_one in programs for dump in of_one[1:]]
    lines: dict[int, str] = {}
    for number, of_one in enumerate(programs):
        found = (innermost_line(dump, folders) for dump in of_one)
        lines[number] = next(filter(None, found), "")
    distinct = {line for line in lines.values() if line}
    if len(distinct) <= 1:
        innermost = next(iter(distinct), "")
    else:
        innermost = "; ".join(f"process {n}: {line}" for n, line in lines.items() if line)
    problem = ""
    if not dumps:
        problem = "the attempt has no process"
    elif not any(dump.threads for dump in dumps):
        problem = next((d.problem for d in dumps if d.problem), "no Python process was found")
    text = "\n".join(_text(dump) for dump in dumps)
    if left_out:
        text += f"\n{left_out} more processes were not looked at\n"
    return StackDump(innermost=innermost, text=text, problem=problem)


def shortened(text: str, path: str) -> str:
    """As much of it as is sent; ``path``, if any, is where the job directory has all of it. Pure."""
    if len(text) <= _SENT:
        return text
    whole = f"; all is in {path} in the job directory" if path else ""
    return f"{text[:_SENT]}\n… the rest is left out here{whole}\n"


def innermost_line(dump: Dump, folders: Sequence[str]) -> str:
    """The user's innermost line of a process, as ``train.py:31 in step``.

    Of the main thread if it has one, else of another; where there is no line of the user's, the
    innermost of a library, then of anything.
    """
    threads = sorted(
        dump.threads, key=lambda t: (t.os_thread_id != dump.pid, not t.owns_gil, not t.active)
    )
    tests = (
        lambda f: any(f.filename.startswith(folder) for folder in folders),
        lambda f: not _LIBRARY.search(f.filename),
        lambda f: not _STANDARD.search(f.filename),
        lambda f: True,
    )
    for is_it in tests:
        for thread in threads:
            for frame in thread.frames:
                if is_it(frame):
                    return f"{os.path.basename(frame.filename)}:{frame.line} in {frame.name}"
    return ""


def parse(pid: int, command: str, data: bytes) -> Dump:
    """py-spy's JSON of one process.

    Raises:
        ValueError: it is something else.
    """
    document: Any = json.loads(data)
    try:
        threads = msgspec.convert(document, tuple[Thread, ...])
    except msgspec.ValidationError as error:
        raise ValueError(f"py-spy printed something unexpected: {error}") from error
    return Dump(pid=pid, command=command, threads=threads)


def _text(dump: Dump) -> str:
    lines = [f"Process {dump.pid}: {dump.command}"]
    for thread in dump.threads:
        state = "active" if thread.active else "idle"
        if thread.owns_gil:
            state += ", has the interpreter lock"
        name = f' "{thread.thread_name}"' if thread.thread_name else ""
        lines.append(f"  Thread {thread.os_thread_id or '?'}{name} ({state})")
        lines += [f"    {f.name} ({f.filename}:{f.line})" for f in thread.frames]
    if dump.problem:
        lines.append(f"  No Python stack: {dump.problem}")
    if dump.kernel:
        lines += [f"  {line}" for line in dump.kernel.splitlines()]
    return "\n".join(lines) + "\n"


def _find_tool() -> str | None:
    import shutil  # brings half a megabyte of compression libraries with it

    alongside = Path(sys.executable).with_name("py-spy")
    return str(alongside) if alongside.exists() else shutil.which("py-spy")


async def _dump(helpers: Helpers, tool: str | None, pid: int) -> Dump:
    command = " ".join(command_line(pid))[:500]
    if not _is_python(pid):
        return Dump(pid=pid, command=command, problem="not Python", kernel=kernel_view(pid))
    if tool is None:
        problem = "py-spy is not installed where the agent runs"
        return Dump(pid=pid, command=command, problem=problem, kernel=kernel_view(pid))
    try:
        data = await helpers.output([tool, "dump", "--json", "--pid", str(pid)], _DUMP_S)
        return parse(pid, command, data)
    except (HelperProblem, ValueError) as error:
        problem = _explain(str(error))
        return Dump(pid=pid, command=command, problem=problem, kernel=kernel_view(pid))


def _explain(problem: str) -> str:
    if re.search(r"permission denied|EPERM|operation not permitted", problem, re.I):
        return (
            f"{problem} (this host lets no program look into another: kernel.yama.ptrace_scope "
            "must be 0, or a container needs the capability SYS_PTRACE)"
        )
    return problem


def _is_python(pid: int) -> bool:
    if "python" in os.path.basename(program(pid)).lower():
        return True
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return b"/libpython" in file.read(4 * 1024 * 1024)
    except OSError:
        return False


def kernel_view(pid: int) -> str:
    """State, number of threads and where in the kernel the process waits, as far as readable."""
    wanted = ("State:", "Threads:", "SigQ:", "VmRSS:")
    parts: list[str] = []
    for name in ("status", "wchan", "stack"):
        try:
            content = Path(f"/proc/{pid}/{name}").read_text("utf-8", "replace").strip()
        except OSError:
            continue
        if name == "status":
            parts += [line for line in content.splitlines() if line.startswith(wanted)]
        elif name == "wchan" and content not in ("", "0"):
            parts.append(f"waits in {content}")
        elif name == "stack" and content:
            parts += ["kernel stack:", *(f"  {line}" for line in content.splitlines())]
    return "\n".join(parts)


def group(processes: Mapping[int, Stat], programs: Sequence[int]) -> list[list[int]]:
    """The processes by program: its own first, then its children; strays go with the first."""
    groups: dict[int, list[int]] = {pid: [pid] if pid in processes else [] for pid in programs}
    for pid in sorted(processes):
        if pid in groups:
            continue
        owner = pid
        while owner in processes and owner not in groups:
            owner = processes[owner].parent
        if owner in groups:
            groups[owner].append(pid)
        elif programs:
            groups[programs[0]].append(pid)
    return list(groups.values())
