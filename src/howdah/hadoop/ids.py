"""Ids, nodes and resources as values, with the texts Hadoop writes for them.

Source: ``ApplicationId``, ``ApplicationAttemptId``, ``ContainerId`` and ``Resource`` in
``org.apache.hadoop.yarn.api.records``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Self

from howdah.hadoop.address import Address
from howdah.hadoop.protos import yarn

_APPLICATION = re.compile(r"application_(\d+)_(\d+)", re.ASCII)
_ATTEMPT = re.compile(r"appattempt_(\d+)_(\d+)_(\d+)", re.ASCII)
_CONTAINER = re.compile(r"container_(?:e(\d+)_)?(\d+)_(\d+)_(\d+)_(\d+)", re.ASCII)
_EPOCH_SHIFT = 40
_NUMBER_MASK = (1 << _EPOCH_SHIFT) - 1

MEMORY = "memory-mb"
VCORES = "vcores"
GPU = "yarn.io/gpu"

_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50}
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_UNITS = _DECIMAL | _BINARY


class ApplicationId(NamedTuple):
    """``application_<cluster time stamp>_<number>``."""

    cluster_timestamp: int
    number: int

    def __str__(self) -> str:
        return f"application_{self.cluster_timestamp}_{self.number:04d}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """From its text; `ValueError` if it is none."""
        match = _APPLICATION.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not an application id (application_<time>_<number>)")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def from_proto(cls, proto: yarn.ApplicationIdProto) -> Self:
        return cls(proto.cluster_timestamp, proto.id)

    def to_proto(self) -> yarn.ApplicationIdProto:
        return yarn.ApplicationIdProto(cluster_timestamp=self.cluster_timestamp, id=self.number)


class AttemptId(NamedTuple):
    """``appattempt_<cluster time stamp>_<application>_<attempt>``."""

    application: ApplicationId
    number: int

    def __str__(self) -> str:
        app = self.application
        return f"appattempt_{app.cluster_timestamp}_{app.number:04d}_{self.number:06d}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """From its text; `ValueError` if it is none."""
        match = _ATTEMPT.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not an application attempt's id (appattempt_…)")
        return cls(ApplicationId(int(match[1]), int(match[2])), int(match[3]))

    @classmethod
    def from_proto(cls, proto: yarn.ApplicationAttemptIdProto) -> Self:
        return cls(ApplicationId.from_proto(proto.application_id), proto.attemptId)

    def to_proto(self) -> yarn.ApplicationAttemptIdProto:
        return yarn.ApplicationAttemptIdProto(
            application_id=self.application.to_proto(), attemptId=self.number
        )


class ContainerId(NamedTuple):
    """``container_[e<epoch>_]<cluster time stamp>_<application>_<attempt>_<number>``.

    The epoch counts the RM's restarts with recovery; in the message it is the upper 24 bits.
    """

    attempt: AttemptId
    number: int
    epoch: int = 0

    @property
    def application(self) -> ApplicationId:
        return self.attempt.application

    def __str__(self) -> str:
        app = self.application
        epoch = f"e{self.epoch:02d}_" if self.epoch > 0 else ""
        return (
            f"container_{epoch}{app.cluster_timestamp}_{app.number:04d}"
            f"_{self.attempt.number:02d}_{self.number:06d}"
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """From its text; `ValueError` if it is none."""
        match = _CONTAINER.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a container's id (container_…)")
        epoch, timestamp, app, attempt, number = (int(part or 0) for part in match.groups())
        return cls(AttemptId(ApplicationId(timestamp, app), attempt), number, epoch)

    @classmethod
    def from_proto(cls, proto: yarn.ContainerIdProto) -> Self:
        attempt = AttemptId.from_proto(proto.app_attempt_id)
        return cls(attempt, proto.id & _NUMBER_MASK, proto.id >> _EPOCH_SHIFT)

    def to_proto(self) -> yarn.ContainerIdProto:
        return yarn.ContainerIdProto(
            app_attempt_id=self.attempt.to_proto(), id=self.epoch << _EPOCH_SHIFT | self.number
        )


class NodeId(NamedTuple):
    """A NodeManager: host and RPC port, as it registered."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``host:port``; `ValueError` if it is none."""
        address = Address.parse(text)
        return cls(address.host, address.port)

    @classmethod
    def from_proto(cls, proto: yarn.NodeIdProto) -> Self:
        return cls(proto.host, proto.port)

    def to_proto(self) -> yarn.NodeIdProto:
        return yarn.NodeIdProto(host=self.host, port=self.port)


@dataclasses.dataclass(frozen=True)
class Resource:
    """What a container has: memory in MiB, cores, and amounts above 0 of any other type.

    Amounts of other types are whole numbers in the type's base unit (GPUs have none; a type with
    the unit ``Gi`` is counted in bytes here).
    """

    memory_mb: int = 0
    vcores: int = 0
    others: Mapping[str, int] = dataclasses.field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        object.__setattr__(self, "others", MappingProxyType(dict(self.others)))

    def __hash__(self) -> int:
        return hash((self.memory_mb, self.vcores, frozenset(self.others.items())))

    def __reduce__(self) -> tuple[type[Resource], tuple[int, int, dict[str, int]]]:
        return Resource, (self.memory_mb, self.vcores, dict(self.others))

    def __str__(self) -> str:
        parts = [f"{self.memory_mb} MiB", f"{self.vcores} cores"]
        parts += [f"{amount} {name}" for name, amount in sorted(self.others.items())]
        return ", ".join(parts)

    def get(self, name: str) -> int:
        """The amount of a type by its YARN name; 0 if there is none."""
        return {MEMORY: self.memory_mb, VCORES: self.vcores}.get(name, self.others.get(name, 0))

    def fits(self, within: Resource) -> bool:
        """There is no more of anything than in the other."""
        return all(self.get(name) <= within.get(name) for name in (MEMORY, VCORES, *self.others))

    @classmethod
    def from_proto(cls, proto: yarn.ResourceProto) -> Self:
        others = {
            item.key: item.value * _UNITS.get(item.units, 1)
            for item in proto.resource_value_map
            if item.key not in (MEMORY, VCORES) and item.value
        }
        return cls(proto.memory, proto.virtual_cores, others)

    def to_proto(self) -> yarn.ResourceProto:
        """All three parts are in the type map too, as Hadoop's own records have them."""
        proto = yarn.ResourceProto(memory=self.memory_mb, virtual_cores=self.vcores)
        proto.resource_value_map.add(key=MEMORY, value=self.memory_mb, units="Mi")
        proto.resource_value_map.add(key=VCORES, value=self.vcores, units="")
        for name, amount in self.others.items():
            proto.resource_value_map.add(key=name, value=amount, units="")
        return proto
