"""YARN's placement constraints as TonY takes them, as far as a role's ``placement`` can say them.

Source: ``org.apache.hadoop.yarn.util.constraint.PlacementConstraintParser``: ``IN,NODE,tag`` and
``NOTIN,NODE,tag``, several tags after one another, joined as ``AND(a:b)``. All are conditions there, and so is
what `placement` makes of them: it knows nearness only as a preference, so ``IN`` is refused.
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
    for tag in words[2:]:
        meant = sorted(name for name, own in tags.items() if tag in own)
        if not meant:
            raise ValueError(
                f"no role has the allocation tag {tag!r} that {part!r} names; say which one does with "
                "tony.<type>.allocation-tags"
            )
        if kind == "in":
            wish = "pack=true" if role in meant else f'near=["{meant[0]}"]'
            raise ValueError(
                f"{part!r} is a condition with TonY, and `placement` knows nearness as a preference only; use "
                "a node label (tony.<type>.node-label), which is a condition, or leave it out; a preference is "
                f"--set 'roles.{role}.placement.{wish}'"
            )
        for other in meant:
            if other == role:
                found["spread"] = True
            elif other not in found.setdefault("apart", []):
                found["apart"].append(other)
