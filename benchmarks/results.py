"""What a benchmark gives: measures with their goals, and the machine they were taken on."""

from __future__ import annotations

import enum
import os
import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from howdah import __version__


class Of(enum.Enum):
    """Which figure a goal is about."""

    OURS = "ours"
    RATIO = "ratio"
    DIFFERENCE = "ours - peer"


class Goal(msgspec.Struct, frozen=True):
    """What the figure should be."""

    of: Of
    limit: float
    at_least: bool = False
    """Larger is better; otherwise smaller is."""

    def __str__(self) -> str:
        return f"{self.of.value} {'≥' if self.at_least else '≤'} {self.limit:g}"


class Round(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run of ours, and of the peer right before or after it."""

    ours: float
    peer: float | None = None

    def figure(self, of: Of) -> float | None:
        """What a goal speaks of; None without a peer to compare with."""
        if of is Of.OURS:
            return self.ours
        if self.peer is None:
            return None
        if of is Of.DIFFERENCE:
            return self.ours - self.peer
        return self.ours / self.peer if self.peer else None


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, the median of its rounds.

    ``ratio`` and ``difference`` are medians of each round's own: what else the machine did at the
    time slowed both sides of a round alike.
    """

    name: str
    unit: str
    ours: float
    peer: float | None = None
    peer_name: str = ""
    ratio: float | None = None
    difference: float | None = None
    goal: str = ""
    met: bool | None = None
    runs: tuple[Round, ...] = ()


def measure(
    name: str,
    unit: str,
    ours: Sequence[float],
    peer: Sequence[float] = (),
    *,
    peer_name: str = "",
    goal: Goal | None = None,
) -> Measure:
    """The measure of so many rounds; ``peer`` has as many figures as ``ours``, or none."""
    pairs = peer or [None] * len(ours)
    rounds = tuple(Round(_short(o), None if p is None else _short(p)) for o, p in zip(ours, pairs))
    against = _median([r.figure(goal.of) for r in rounds]) if goal is not None else None
    met = None
    if goal is not None and against is not None:
        met = against >= goal.limit if goal.at_least else against <= goal.limit
    return Measure(
        name=name,
        unit=unit,
        ours=_short(statistics.median(ours)),
        peer=_short(statistics.median(peer)) if peer else None,
        peer_name=peer_name,
        ratio=_median([r.figure(Of.RATIO) for r in rounds]),
        difference=_median([r.figure(Of.DIFFERENCE) for r in rounds]),
        goal=str(goal) if goal is not None else "",
        met=met,
        runs=rounds,
    )


def _median(figures: Sequence[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return _short(statistics.median(known)) if known else None


def _short(figure: float) -> float:
    """Four significant digits: more are noise."""
    return float(f"{figure:.4g}")


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where and beside what the figures were taken."""

    cores: int
    processor: str
    memory_gb: float
    system: str
    python: str
    howdah: str
    scheduling: str
    """``SCHED_OTHER`` normally; ``SCHED_RR`` under ``chrt -r 1``, which other work does not slow."""
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float]
    """Processes that wanted a core, over 1, 5 and 15 minutes; this benchmark's own included."""


def machine(load_before: tuple[float, float, float]) -> Machine:
    """This machine, at the end of a benchmark that began under that load."""
    return Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _cores(),
        processor=_processor(),
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        system=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        howdah=__version__,
        scheduling=_scheduling(),
        load_before=load_before,
        load_after=load(),
    )


def load() -> tuple[float, float, float]:
    """The load averages."""
    one, five, fifteen = os.getloadavg()
    return round(one, 2), round(five, 2), round(fifteen, 2)


def _cores() -> int:
    return os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), "")


def _scheduling() -> str:
    if not hasattr(os, "sched_getscheduler"):
        return ""
    policy = os.sched_getscheduler(0)
    names = (name for name in dir(os) if name.startswith("SCHED_"))
    return next((name for name in names if getattr(os, name) == policy), str(policy))


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One benchmark's outcome, as it is printed."""

    benchmark: str
    measures: tuple[Measure, ...]
    left_out: tuple[str, ...] = ()
    """What could not be measured here, and why."""
    settings: dict[str, bool | float | int | str | tuple[int | str, ...]]
    seconds: float
    """How long all of it took."""
    machine: Machine


def table(result: Result) -> str:
    """For a reader at a terminal."""
    rows = [("", "peer", "ours", "ratio", "goal", "")]
    for m in result.measures:
        peer = f"{m.peer:g} {m.unit} ({m.peer_name})" if m.peer is not None else m.peer_name
        ratio = f"{m.ratio:.3g}" if m.ratio is not None else ""
        met = "" if m.met is None else ("met" if m.met else "MISSED")
        rows.append((m.name, peer, f"{m.ours:g} {m.unit}", ratio, m.goal, met))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)) for row in rows]
    facts = result.machine
    head = (
        f"{result.benchmark}: {result.seconds:.0f} s, {facts.cores} cores, load "
        f"{facts.load_before[0]:g} to {facts.load_after[0]:g}, {facts.python}"
    )
    notes = [f"left out: {note}" for note in result.left_out]
    return "\n".join([head, *("  " + line.rstrip() for line in [*lines, *notes])])


def progress(text: str) -> None:
    """One line for who waits."""
    print(f"  … {text}", file=sys.stderr, flush=True)
