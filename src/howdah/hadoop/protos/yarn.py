"""Messages and enums of ``hadoop.yarn``: YARN's protocols. Types: `yarn.pyi`."""

from __future__ import annotations

from typing import Any

from howdah.hadoop.protos import attribute


def __getattr__(name: str) -> Any:
    found = attribute("hadoop.yarn", name)
    globals()[name] = found
    return found
