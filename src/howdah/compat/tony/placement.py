"""YARN's placement constraints as TonY takes them, as far as a role's ``placement`` can say them.

Source: ``org.apache.hadoop.yarn.util.constraint.PlacementConstraintParser``: ``IN,NODE,tag`` and
``NOTIN,NODE,tag``, several tags after one another, joined as ``AND(a:b)``. All are conditions there, and so is
what `placement` makes of them. Of several tags that ``IN`` names one is enough
(``PlacementConstraintsUtil``), as of several roles in ``together``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_JOINED = re.compile(r"and\((.*)\)", re.IGNORECASE)


def placement(spec: str, role: str, tags: Mapping[str, frozenset[str]]) -> dict[str, Any]:
    """The ``placement`` table of a role.

    ``tags`` are the allocation tags of every role.

    Raises:
        ValueError: it says what no placement can; in words.
    """
    found: dict[str, Any] = {}
    joined = _JOINED.fullmatch(spec.strip())
    for part in (joined[1] if joined else spec).split(":"):
        _add(part.strip(), role, tags, found)
    return found


def _add(part: str, role: str, tags: Mapping[str, frozenset[str]], found: dict[str, Any]) -> None:
    words = [word.strip() for word in part.split(",")]
    kind = words[0].lower()
    if kind not in ("in", "notin") or len(words) < 3:
        raise ValueError(
            f"{part!r} has no counterpart in `placement`; say a node attribute or a cardinality with a "
            "node label (tony.<type>.node-label), or leave it out"
        )
    if words[1].lower() != "node":
        raise ValueError(
            f"{part!r} speaks of {words[1]}; only NODE can be said here, so use a node label or leave it "
            "out"
        )
    meant: list[str] = []
    for tag in words[2:]:
        roles = sorted(name for name, own in tags.items() if tag in own)
        if not roles:
            raise ValueError(
                f"no role has the allocation tag {tag!r} that {part!r} names; say which one does with "
                "tony.<type>.allocation-tags"
            )
        meant += [name for name in roles if name not in meant]
    if kind == "in":
        if role in meant:
            raise ValueError(
                f"{part!r} keeps the first container of {role} waiting for one beside it, with TonY too; leave "
                f"it out, and prefer few nodes with --set 'roles.{role}.placement.pack=true'"
            )
        if "together" in found:
            raise ValueError(
                f"{part!r} is a second condition of nearness, and `placement` has one; keep one IN, which may "
                "name several tags of which one is enough"
            )
        found["together"] = meant
        return
    for other in meant:
        if other == role:
            found["spread"] = True
        elif other not in found.setdefault("apart", []):
            found["apart"].append(other)
