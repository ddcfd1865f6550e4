"""What a seed decides: the data, the programs, and what goes wrong when."""

from __future__ import annotations

import enum
import random

import msgspec

from howdah.spark.feed.messages import Align, Options

TROUBLES = (
    "task killed",
    "task lost",
    "task run twice",
    "rows cut",
    "control cut",
    "question cut",
)


class Ends(enum.Enum):
    """When a program has had enough."""

    WHOLE = "reads all"
    STOPS = "calls feed.stop()"
    RETURNS = "returns"
    LEAVES = "leaves each epoch"


class Program(msgspec.Struct, frozen=True):
    """What one rank does."""

    size: int
    drop_last: bool
    by_epoch: bool
    reads: bool = True
    ends: Ends = Ends.WHOLE
    after: int = 0
    """Batches, where it does not read all."""
    pace: float = 0.0
    """How often it takes its time."""


class Fault(msgspec.Struct, frozen=True):
    """Something goes wrong."""

    step: int
    kind: str


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    seed: int
    partitions: list[list[tuple[int, int]]]
    """Of each the record batches: offset and rows."""
    hosts: list[str]
    runs: list[Options]
    programs: list[Program]
    readers: list[int] | None
    slots: int
    segment: int
    pipe: int
    kept: int
    """`howdah.spark.feed.tasks.feeder.KEPT_BYTES`."""
    lost: int
    """Connections a task may lose."""
    faults: list[Fault]
    restarts: int = 0
    ordered: bool = True
    """Whether Spark gives the rows in the same order again."""

    @property
    def ranks(self) -> int:
        return len(self.programs)

    @property
    def rows(self) -> int:
        return sum(size for batches in self.partitions for _, size in batches)


def schedule(seed: int) -> Schedule:
    """The one of that seed."""
    chance = random.Random(f"feed {seed}")
    ranks = chance.choice((1, 2, 2, 3, 4))
    size = chance.randint(1, 5)
    drop_last = chance.random() < 0.3
    by_epoch = chance.random() < 0.5
    # Four, so that seeds keep the schedules that showed defects.
    align = chance.choice((Align.DROP, Align.DROP, Align.NONE, Align.DROP))
    cache = chance.random() < 0.3
    exchange = not cache and random.Random(f"exchange {seed}").random() < 0.5
    options = Options(
        feed="train",
        epochs=chance.choice((1, 1, 2, 3)),
        align=align,
        cache=cache,
        cache_memory=chance.choice((0, 300, 1 << 20)),
        spill=1 << 30,
        shuffle=chance.randint(0, 9) if cache and chance.random() < 0.5 else None,
        buffer=chance.choice((1, 300, 600, 1 << 20)),
        exchange=exchange,
    )
    programs = [
        Program(size, drop_last, by_epoch, pace=chance.choice((0.0, 0.0, 0.1, 0.5)))
        for _ in range(ranks)
    ]
    readers = None
    if ranks > 1 and chance.random() < 0.1:
        readers = [0]
        ends = chance.choice((Ends.WHOLE, Ends.RETURNS))
        programs[1:] = [
            msgspec.structs.replace(each, reads=False, ends=ends) for each in programs[1:]
        ]
    elif chance.random() < 0.3:
        ends = chance.choice((Ends.STOPS, Ends.RETURNS, Ends.LEAVES if by_epoch else Ends.RETURNS))
        after = chance.randint(1, 5)
        for rank in range(ranks):
            if ends is Ends.LEAVES or chance.random() < 0.5:
                programs[rank] = msgspec.structs.replace(programs[rank], ends=ends, after=after)
    kinds = [chance.choice(TROUBLES) for _ in range(chance.choice((0, 0, 1, 2, 3)))]
    broken = random.Random(f"broken {seed}")
    plain = readers is None and all(program.ends is Ends.WHOLE for program in programs)
    restarts = chance.choice((1, 1, 2)) if plain and chance.random() < 0.2 else 0
    kinds += ["process killed"] * restarts
    return Schedule(
        seed=seed,
        partitions=[_batches(chance) for _ in range(chance.choice((0, 1, 2, 2, 3, 4)))],
        hosts=[chance.choice("ab") for _ in range(4)],
        runs=[options] * (2 if plain and not restarts and chance.random() < 0.15 else 1),
        programs=programs,
        readers=readers,
        slots=chance.randint(1, 3),
        segment=chance.choice((8, 32, 1 << 20)),
        pipe=chance.choice((1, 300, 1 << 20)),
        kept=broken.choice((1, 1 << 20)),
        lost=broken.choice((0, 1, 5)),
        faults=[Fault(chance.randint(0, 250), kind) for kind in kinds],
        restarts=restarts,
        ordered=random.Random(f"ordered {seed}").random() < 0.8,
    )


def left_early(seed: int) -> Schedule | None:
    """The one of that seed, if programs of it leave early: others go on, and tasks are sent again and
    again."""
    found = schedule(seed)
    early = any(program.ends is not Ends.WHOLE for program in found.programs)
    if not early or found.ranks < 2:
        return None
    chance = random.Random(f"early {seed}")
    kinds = ("task killed", "task killed", "task lost", "question cut", "task run twice")
    return msgspec.structs.replace(
        found,
        runs=[msgspec.structs.replace(each, align=Align.NONE) for each in found.runs],
        pipe=1 << 20,
        faults=[Fault(chance.randint(0, 400), chance.choice(kinds)) for _ in range(6)],
    )


def left_early_and_cut(seed: int) -> Schedule | None:
    """The same, where connections break that rows are sent again over."""
    found = left_early(seed)
    if found is None:
        return None
    chance = random.Random(f"cut {seed}")
    kinds = ("task killed", "task killed", "rows cut", "rows cut", "rows cut", "task run twice")
    faults = [Fault(chance.randint(0, 400), chance.choice(kinds)) for _ in range(8)]
    return msgspec.structs.replace(found, lost=5, faults=faults)


def _batches(chance: random.Random) -> list[tuple[int, int]]:
    sizes = [chance.randint(1, 4) for _ in range(chance.choice((0, 1, 2, 3, 4)))]
    return [(sum(sizes[:at]), size) for at, size in enumerate(sizes)]
