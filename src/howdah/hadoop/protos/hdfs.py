"""Messages and enums of ``hadoop.hdfs``: the NameNode's protocol. Types: `hdfs.pyi`."""

from __future__ import annotations

from typing import Any

from howdah.hadoop.protos import attribute


def __getattr__(name: str) -> Any:
    found = attribute("hadoop.hdfs", name)
    globals()[name] = found
    return found
