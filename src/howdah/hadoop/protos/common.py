"""Messages and enums of ``hadoop.common``: Hadoop's RPC, credentials, delegation tokens and users' groups. Types: `common.pyi`."""

from __future__ import annotations

from typing import Any

from howdah.hadoop.protos import attribute


def __getattr__(name: str) -> Any:
    found = attribute("hadoop.common", name)
    globals()[name] = found
    return found
