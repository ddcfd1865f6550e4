"""The allocate loop and a ResourceManager that registers a master without its hearing of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from howdah.backends.base import RoleResources
from howdah.backends.yarn.master.allocate_loop import AllocateLoop
from howdah.backends.yarn.master.outstanding_requests import OutstandingRequests
from howdah.core.messages import ContainerRequest
from howdah.hadoop import scheduler as schedulers
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import CallTimeout, remote_error
from howdah.hadoop.protos import yarn
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.scheduler import Scheduler
from howdah.hadoop.security.credentials import Token
from tests.conformance.harness import eventually

_EXCEPTIONS = "org.apache.hadoop.yarn.exceptions."


class ResourceManager:
    """Keeps the rules of ``ApplicationMasterService``, for one master."""

    retry = RetryPolicy()

    def __init__(self) -> None:
        self.response_id: int | None = None
        """None: no master is registered."""
        self.takes_s = 0.0
        """For a registration to be answered."""

    def restart(self, *, takes_s: float) -> None:
        self.response_id, self.takes_s = None, takes_s

    async def call(
        self, method: str, request: Any, response_type: type, **limits: float | None
    ) -> Any:
        if method == "registerApplicationMaster":
            return self._register(min(limits["timeout_s"] or 0.0, limits["try_timeout_s"] or 0.0))
        assert method == "allocate"
        if self.response_id is None:
            raise remote_error(f"{_EXCEPTIONS}ApplicationMasterNotRegisteredException", "resync")
        if request.response_id != self.response_id:
            raise remote_error(
                f"{_EXCEPTIONS}InvalidApplicationMasterRequestException", "Invalid responseId"
            )
        self.response_id += 1
        answer = yarn.AllocateResponseProto(response_id=self.response_id)
        for ask in request.ask:
            for _ in range(ask.num_containers):
                answer.allocated_containers.add(allocation_request_id=ask.allocation_request_id)
        return answer

    def _register(self, waits_s: float) -> yarn.RegisterApplicationMasterResponseProto:
        if self.response_id is not None:
            raise remote_error(
                f"{_EXCEPTIONS}InvalidApplicationMasterRequestException", "already registered"
            )
        self.response_id = 0
        if self.takes_s > waits_s:
            raise CallTimeout("no answer in time")
        return yarn.RegisterApplicationMasterResponseProto(queue="default")


class Listener:
    """Counts what the loop tells."""

    busy = False

    def __init__(self) -> None:
        self.granted = 0
        self.registered: list[yarn.RegisterApplicationMasterResponseProto] = []

    def answered(self, answer: yarn.AllocateResponseProto) -> None:
        self.granted += len(answer.allocated_containers)

    def registered_again(self, answer: yarn.RegisterApplicationMasterResponseProto) -> None:
        self.registered.append(answer)

    def refused(self, role: str, reason: str) -> None:
        raise AssertionError(reason)


async def _containers_come_after_a_restart(
    takes_s: float,
) -> yarn.RegisterApplicationMasterResponseProto:
    """``takes_s``: for the restarted ResourceManager to answer the registration."""
    manager = ResourceManager()
    scheduler = Scheduler(Configuration({}), "user", Token(b"", b"", "kind", "service"))
    scheduler.rpc = manager  # type: ignore[assignment]
    await scheduler.register("127.0.0.1", -1, "")
    roles = {"worker": RoleResources(memory_mb=64)}
    requests, listener, ended = OutstandingRequests(roles), Listener(), list[str]()
    loop = AllocateLoop(
        scheduler, requests, roles, listener, longest_s=0.01, superseded=ended.append
    )
    loop.start()
    await eventually(lambda: (manager.response_id or 0) >= 3, "the loop has begun")
    manager.restart(takes_s=takes_s)
    await eventually(lambda: bool(listener.registered or ended), "it has registered again")
    requests.add([ContainerRequest(request_id=1, role="worker")])
    loop.wake()
    await eventually(lambda: bool(listener.granted or ended), "a container comes")
    assert not ended
    await loop.stop()
    return listener.registered[-1]


@pytest.mark.parametrize(
    ("takes_s", "queue"),
    [pytest.param(100.0, "default", id="late"), pytest.param(float("inf"), "", id="never")],
)
def test_a_registration_that_is_answered_late_or_never_leaves_the_master_its_containers(
    monkeypatch: pytest.MonkeyPatch, takes_s: float, queue: str
) -> None:
    monkeypatch.setattr(schedulers, "_AGAIN_S", 3600.0)  # a try that fails uses up all the time
    answer = asyncio.run(_containers_come_after_a_restart(takes_s))
    assert answer.queue == queue
