"""The containers a master holds, and what becomes of them."""

from __future__ import annotations

import enum

import msgspec

from howdah.hadoop.ids import ContainerId, NodeId


class Phase(enum.Enum):
    """How far a container is."""

    GRANTED = "granted"
    LAUNCHED = "launched"
    """Handed to its node; it may still be localising."""
    ENDING = "ending"
    """Its node was told to end it."""
    RETURNED = "returned"
    """Given back to the ResourceManager."""
    UNCONFIRMED = "unconfirmed"
    """The ResourceManager has given it up; its node is asked whether its processes have ended."""


class Container(msgspec.Struct, kw_only=True, eq=False):
    """One container this master holds."""

    id: ContainerId
    node: NodeId
    node_name: str
    role: str
    token: bytes | None = None
    """Its container token, serialised; None for one of an earlier attempt, which runs."""
    phase: Phase = Phase.GRANTED
    since: float = 0.0
    """When the phase began, on the loop's clock."""
    launched: bool = False
    """Its node was told to start it: something may run in it."""
    noticed: bool = False
    """Its preemption was announced."""

    @property
    def releasing(self) -> bool:
        """We gave it back."""
        return self.phase in (Phase.ENDING, Phase.RETURNED)

    @property
    def ending(self) -> bool:
        """It will be gone soon; nothing more is to be done about it."""
        return self.releasing or self.phase is Phase.UNCONFIRMED
