"""Amounts of memory, cores and other resources, as a scheduler counts them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from howdah.backends.base import RoleResources
from howdah.spec.model import Master
from howdah.spec.units import mebibytes

GPU = "yarn.io/gpu"
"""YARN's name of the resource that its GPU plug-in offers."""
DEFAULT_MEMORY_MB = 1024
"""Of a role that does not say; YARN has to be asked for some."""


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """So much of each resource."""

    memory_mb: int = 0
    cores: int = 0
    more: dict[str, int] = {}
    """By YARN's name, in the resource's own unit; what is absent is none."""

    def __add__(self, other: Amount) -> Amount:
        names = self.more.keys() | other.more.keys()
        return Amount(
            memory_mb=self.memory_mb + other.memory_mb,
            cores=self.cores + other.cores,
            more={name: self.more.get(name, 0) + other.more.get(name, 0) for name in names},
        )

    def __sub__(self, other: Amount) -> Amount:
        """What is left, of nothing less than none."""
        return Amount(
            memory_mb=max(self.memory_mb - other.memory_mb, 0),
            cores=max(self.cores - other.cores, 0),
            more={name: max(n - other.more.get(name, 0), 0) for name, n in self.more.items()},
        )

    def __mul__(self, times: int) -> Amount:
        return Amount(
            memory_mb=self.memory_mb * times,
            cores=self.cores * times,
            more={name: amount * times for name, amount in self.more.items()},
        )

    def each(self) -> Mapping[str, int]:
        """By name, memory and cores first: what is asked for at all."""
        some = {"memory": self.memory_mb, "cores": self.cores, **dict(sorted(self.more.items()))}
        return {name: amount for name, amount in some.items() if amount}

    def of(self, name: str) -> int:
        """How much of that resource, named as `each` does."""
        if name == "memory":
            return self.memory_mb
        return self.cores if name == "cores" else self.more.get(name, 0)

    def beyond(self, other: Amount) -> list[str]:
        """Names of the resources of which this is more."""
        return [name for name, amount in self.each().items() if amount > other.of(name)]

    def holds(self, other: Amount) -> int:
        """How many times the other is in this."""
        return min((self.of(name) // amount for name, amount in other.each().items()), default=0)

    def __str__(self) -> str:
        return (
            ", ".join(quantity(name, amount) for name, amount in self.each().items()) or "nothing"
        )


def quantity(name: str, amount: int) -> str:
    """``4 GiB of memory``, ``2 cores``, ``1 GPU``, ``3 of example.com/fpga``."""
    if name == "memory":
        return f"{size(amount)} of memory"
    if name == "cores":
        return f"{amount} core" if amount == 1 else f"{amount} cores"
    if name == GPU:
        return f"{amount} GPU" if amount == 1 else f"{amount} GPUs"
    return f"{amount} of {name}"


def size(mebi: int) -> str:
    """``512 MiB``, ``1.5 GiB``."""
    return f"{mebi} MiB" if mebi < 1024 else f"{mebi / 1024:.4g} GiB"


def total(amounts: Iterable[Amount]) -> Amount:
    """All together."""
    result = Amount()
    for amount in amounts:
        result += amount
    return result


def most(amounts: Iterable[Amount]) -> Amount:
    """The greatest of each resource, whichever has it."""
    result = Amount()
    for one in amounts:
        names = result.more.keys() | one.more.keys()
        result = Amount(
            memory_mb=max(result.memory_mb, one.memory_mb),
            cores=max(result.cores, one.cores),
            more={name: max(result.more.get(name, 0), one.more.get(name, 0)) for name in names},
        )
    return result


def least(amounts: Sequence[Amount]) -> Amount:
    """The least memory and the fewest cores, whichever has them; of other resources what the first has."""
    memory_mb = min(each.memory_mb for each in amounts)
    cores = min(each.cores for each in amounts)
    return Amount(memory_mb=memory_mb, cores=cores, more=amounts[0].more)


def of_role(resources: RoleResources) -> Amount:
    """What each container of a role asks YARN for."""
    more = dict(resources.resources)
    if resources.gpus:
        more[GPU] = more.get(GPU, 0) + resources.gpus
    return Amount(
        memory_mb=resources.memory_mb or DEFAULT_MEMORY_MB,
        cores=resources.cores or 1,
        more=more,
    )


def of_master(master: Master) -> Amount:
    """What the master's container asks for."""
    return Amount(memory_mb=mebibytes(master.memory), cores=master.cores)


def rounded(amount: Amount, smallest: Amount, step: Amount | None = None) -> Amount:
    """What a scheduler makes of it: memory and cores of the smallest container at least, in steps.

    The capacity scheduler's step is the smallest container (``yarn.scheduler.minimum-allocation-*``), which
    None stands for; the Fair Scheduler has one of its own.
    """
    step = step or smallest
    return Amount(
        memory_mb=_up(max(amount.memory_mb, smallest.memory_mb), step.memory_mb),
        cores=_up(max(amount.cores, smallest.cores), step.cores),
        more=amount.more,
    )


def _up(value: int, step: int) -> int:
    return value if step <= 1 else -(-value // step) * step
