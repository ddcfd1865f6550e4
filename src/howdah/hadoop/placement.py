"""Placement constraints: where containers of a scheduling request may go, relative to others.

Source: ``org.apache.hadoop.yarn.api.resource.PlacementConstraints``. The cluster must have a
placement handler (``yarn.resourcemanager.placement-constraints.handler``), or requests are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from howdah.hadoop.protos import yarn

Scope = Literal["node", "rack"]

_MANY = 0x7FFFFFFF


def cardinality(
    tags: Iterable[str], least: int, most: int, scope: Scope = "node"
) -> yarn.PlacementConstraintProto:
    """Only where between ``least`` and ``most`` containers with these tags are already."""
    kinds = yarn.PlacementConstraintTargetProto.TargetType
    constraint = yarn.PlacementConstraintProto()
    simple = constraint.simpleConstraint
    simple.scope = scope
    simple.minCardinality = least
    simple.maxCardinality = most
    simple.attributeOpCode = yarn.NodeAttributeOpCodeProto.NO_OP
    # Without a name space in front, a tag means containers of the same application.
    simple.targetExpressions.add(
        targetType=kinds.ALLOCATION_TAG, targetKey="self"
    ).targetValues.extend(tags)
    return constraint


def away_from(tags: Iterable[str], scope: Scope = "node") -> yarn.PlacementConstraintProto:
    """Never on a node (or rack) that has a container with one of these tags."""
    return cardinality(tags, 0, 0, scope)


def together_with(tags: Iterable[str], scope: Scope = "node") -> yarn.PlacementConstraintProto:
    """Only on a node (or rack) that has a container with one of these tags."""
    return cardinality(tags, 1, _MANY, scope)


def at_most(most: int, tags: Iterable[str], scope: Scope = "node") -> yarn.PlacementConstraintProto:
    """No more than so many containers with these tags on a node (or rack)."""
    return cardinality(tags, 0, most - 1, scope)


def all_of(constraints: Iterable[yarn.PlacementConstraintProto]) -> yarn.PlacementConstraintProto:
    """All constraints hold."""
    kinds = yarn.CompositePlacementConstraintProto.CompositeType
    result = yarn.PlacementConstraintProto()
    result.compositeConstraint.compositeType = kinds.AND
    result.compositeConstraint.childConstraints.extend(constraints)
    return result
