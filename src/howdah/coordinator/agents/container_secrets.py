"""Secrets of containers: each tells its agent from the others, whose certificate it shares.

They are made of one key, which coordinators alone have, so that a new coordinator knows those that an
earlier one gave out, and nothing of them is written.
"""

from __future__ import annotations

import hashlib
import hmac

from howdah.wire.messages import SECRET_PROTOCOL, AgentHello


class ContainerSecrets:
    """Of one job's containers.

    Args:
        key: the job's; None where it was submitted by a release before secrets of containers. Its agents
            have none then, and none is asked for.
    """

    def __init__(self, key: bytes | None) -> None:
        self._key = key

    def of(self, container_id: str) -> str:
        """What its agent is given with its launch; empty where the job has no key."""
        if self._key is None:
            return ""
        return hmac.new(self._key, container_id.encode(), hashlib.sha256).hexdigest()

    def refusal(self, hello: AgentHello) -> str:
        """Why that is not taken for the container's agent; empty if it is."""
        shown, own = hello.secret.encode(), self.of(hello.container_id).encode()
        if self._key is None or hmac.compare_digest(shown, own):
            return ""
        if hello.protocol < SECRET_PROTOCOL:
            return (
                f"the agent of {hello.container_id} is of an older Howdah, which cannot show its "
                "container's secret; install the same Howdah on both sides"
            )
        return (
            f"this is not the agent of {hello.container_id}: it does not show the secret that was given "
            "to that container with its launch"
        )
