"""What a container's first process is told: one environment variable, base64 of JSON.

NodeManagers write exports into a shell script without escaping, and copy that script into logs: so
nothing in it needs quotes, and nothing is secret.
"""

from __future__ import annotations

import base64

import msgspec

from howdah.agent.launch import AgentLaunch

VARIABLE = "HOWDAH_LAUNCH"


class ContainerLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's launch, and what to prepare before it begins."""

    launch: AgentLaunch
    """Paths in it are names below the container's folder; `howdah.backends.yarn.boot` knows the
    folder."""
    python: str
    """The programs' interpreter, with `howdah.agent.launch.HERE` where it was shipped."""
    files: tuple[str, ...] = ()
    """Names in the container's folder that are put into the programs' working folder."""
    gpus: int = 0
    classpath: bool = False
    env: dict[str, str] = {}
    """Environment of the agent and of programs, any characters."""
    agent: str = "howdah.agent.main:main"
    """``module:function`` that is given the launch file; another one only in tests."""


def encode(launch: ContainerLaunch) -> str:
    """Letters, digits, ``+/=``."""
    return base64.b64encode(msgspec.json.encode(launch)).decode()


def decode(text: str) -> ContainerLaunch:
    """The reverse of `encode`.

    Raises:
        ValueError: it is something else (`msgspec.DecodeError` and `binascii.Error` are such).
    """
    return msgspec.json.decode(base64.b64decode(text, validate=True), type=ContainerLaunch)
