"""What can begin before a job is known. Imports little, so that it begins early."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from howdah.backends.local.submit import NodeStarter

BACKENDS = ("local",)


def begin(backend: str = "local") -> NodeStarter:
    """Let the backend's processes start up while the job is being loaded.

    Nothing has happened until `howdah.client.submit.submit` uses what this gives; ``close()`` takes it back.

    Raises:
        BadInput: there is no such backend.
    """
    if backend not in BACKENDS:
        from howdah.client.errors import BadInput

        raise BadInput(f"there is no backend {backend!r}; there is: {', '.join(BACKENDS)}")
    from howdah.backends.local.spawn import Spawned

    spawned = Spawned()  # before the next import, which takes longer than all before
    from howdah.backends.local.submit import NodeStarter

    return NodeStarter(spawned)
