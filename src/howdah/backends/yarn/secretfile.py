"""A job's secrets inside YARN's credential files.

Containers get certificates and keys as secret keys of their credential file, which only their user
can read; environment and arguments would be copied into logs by NodeManagers.

The agent's side reads them here without `howdah.hadoop.security.credentials`, which needs protobuf: that
would be a third of an agent's memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from howdah.storage.files import write_private

PREFIX = "howdah."
CONTAINER = "howdah-container"
"""The container's own secret (`howdah.agent.launch.AgentLaunch.secret`): for its agent, and no file."""
AGENT = ("ca.pem", "agent.pem", "agent.key")
"""What an agent needs of the job's secrets; the master gets all of them."""

LOCATION = "HADOOP_TOKEN_FILE_LOCATION"


def of_folder(folder: Path, names: tuple[str, ...] | None = None) -> dict[str, bytes]:
    """Secret keys from a job's ``secrets`` folder; ``names`` are the only ones taken.

    Raises:
        OSError: one of them can't be read.
    """
    found = sorted(path.name for path in folder.iterdir()) if names is None else names
    return {PREFIX + name: (folder / name).read_bytes() for name in found}


def write(secrets: Mapping[str, bytes], folder: Path) -> None:
    """The reverse of `of_folder`; files of others' secret keys are left out.

    Raises:
        OSError: the folder can't be written.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for key, data in secrets.items():
        name = key.removeprefix(PREFIX)
        if name == key or "/" in name or name.startswith("."):
            continue
        write_private(folder / name, data)


def read(path: Path) -> dict[str, bytes]:
    """The secret keys of a credential file as NodeManagers write it (``Credentials``, format 0).

    Raises:
        ValueError: it is something else.
        OSError: it can't be read.
    """
    data = path.read_bytes()
    if data[:5] != b"HDTS\0":
        raise ValueError(f"{path} is no credential file as NodeManagers write it")
    reader = _Reader(data, 5)
    for _ in range(reader.number()):
        for _ in range(5):  # alias, identifier, password, kind, service
            reader.sized()
    found = {}
    for _ in range(reader.number()):
        name = reader.sized().decode()
        found[name] = reader.sized()
    return found


class _Reader:
    """Hadoop's Writable numbers and byte strings (``WritableUtils``)."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def number(self) -> int:
        first = int.from_bytes(self._take(1), "big", signed=True)
        if first >= -112:
            return first
        size = -112 - first
        if size > 8:
            raise ValueError("the credential file holds a negative length")
        return int.from_bytes(self._take(size), "big")

    def sized(self) -> bytes:
        return self._take(self.number())

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise ValueError("the credential file ends too early")
        taken, self._at = self._data[self._at : end], end
        return taken
