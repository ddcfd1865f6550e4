"""The allocate loop: everything that is said to the ResourceManager, and what it answers.

One loop calls ``allocate``: at once when there is something to say, ten times a second while
containers come and go, ever more seldom down to once in three seconds while they are waited for, and
once a second while there is nothing to wait for (never so seldom that the ResourceManager would give
the master up). A ResourceManager that restarts or fails over wants the master to register again
and to say everything anew; one that knows another attempt of the application ends this master.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from howdah.backends.base import RoleResources
from howdah.backends.yarn import records
from howdah.backends.yarn.master.outstanding_requests import (
    OutstandingRequests,
    RequestChanges,
    RoleRequest,
)
from howdah.hadoop.errors import (
    ApplicationAttemptNotFound,
    ApplicationMasterNotRegistered,
    AuthenticationError,
    HadoopError,
    InvalidApplicationMasterRequest,
    InvalidBlacklist,
    InvalidContainerRelease,
    InvalidResourceRequest,
    InvalidToken,
    RemoteError,
    RetriableError,
    StandbyError,
    TransportError,
)
from howdah.hadoop.ids import ContainerId
from howdah.hadoop.protos import yarn
from howdah.hadoop.scheduler import REGISTER_S, AnswerLost, Scheduler

log: logging.Logger = logging.getLogger(__name__)

BUSY_S = 0.1
"""Between calls while containers are on their way: YARN's nodes send heartbeats once a second or more often."""
WAITING_S = 3.0
"""Between calls at most while containers are waited for: a full queue has many who wait."""
WAITED_PART = 0.1
"""Of the time since the last news of a container: it comes at most so much later."""
QUIET_S = 1.0
RETRY_S = 1.0
"""After a call that failed."""
_RESYNC, _SHUTDOWN = 1, 2  # AMCommandProto


class AttemptSuperseded(Exception):
    """This master's attempt is over for YARN: another one has the job, or none."""


class AllocateListener(Protocol):
    """What is told what the ResourceManager says. Called on the event loop."""

    @property
    def busy(self) -> bool:
        """Containers are about to end: their ends are waited for."""
        ...

    def answered(self, answer: yarn.AllocateResponseProto) -> None:
        """What happened since the last call."""
        ...

    def registered_again(self, answer: yarn.RegisterApplicationMasterResponseProto) -> None: ...

    def refused(self, role: str, reason: str) -> None:
        """What the role asks for can never be given."""
        ...


class AllocateLoop:
    """The loop, from `start` to `stop`."""

    def __init__(
        self,
        scheduler: Scheduler,
        requests: OutstandingRequests,
        roles: Mapping[str, RoleResources],
        listener: AllocateListener,
        *,
        longest_s: float,
        superseded: Callable[[str], None],
    ) -> None:
        """``longest_s`` is the longest time between calls; ``superseded`` is called with the reason
        when this master must go."""
        self._scheduler = scheduler
        self._requests = requests
        self._roles = roles
        self._listener = listener
        self._longest_s = longest_s
        self._superseded = superseded
        self._woken = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._page: str | None = None
        self._tracking_url: str | None = None
        """The page's address as long as it is not said."""
        self._unsent = RequestChanges()
        """What the ResourceManager is still to be told."""
        self._on_the_way = RequestChanges()
        """What it was told and has not answered."""
        self._news = time.monotonic()
        """When a container was asked for, came or ended last."""

    def start(self) -> None:
        """Begin; the master is registered."""
        self._running = asyncio.create_task(self._run(), name="allocate loop")

    async def stop(self) -> None:
        """End."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def wake(self) -> None:
        """There is something to say."""
        self._news = time.monotonic()
        self._woken.set()

    def track(self, url: str) -> None:
        """The job's page is there now."""
        self._page = self._tracking_url = url
        self.wake()

    # -- the loop --------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            pause_s = RETRY_S
            try:
                await self._allocate()
                pause_s = self._pause_s()
            except AttemptSuperseded as error:
                log.error("%s", error)
                self._superseded(str(error))
                return
            except HadoopError as error:
                log.warning("no answer from the ResourceManager: %s", error)
            except Exception:
                # A defect must not make the ResourceManager give the master up.
                log.exception("an allocate call failed")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(pause_s, self._longest_s)):
                    await self._woken.wait()

    def _pause_s(self) -> float:
        if not self._requests.outstanding and not self._listener.busy:
            return QUIET_S
        waited_s = time.monotonic() - self._news
        return min(max(BUSY_S, waited_s * WAITED_PART), WAITING_S)

    async def _allocate(self) -> None:
        self._woken.clear()
        self._unsent = _both(self._unsent, self._requests.take_changes())
        try:
            await self._send(self._unsent)
        except InvalidResourceRequest as error:
            await self._find_refused(error)
        except (InvalidContainerRelease, InvalidBlacklist) as error:
            log.warning("the ResourceManager does not take what was said: %s", error)
            self._unsent = msgspec.structs.replace(self._unsent, release=(), blacklist=())
            await self._send(self._unsent)
        except (
            ApplicationMasterNotRegistered,
            ApplicationAttemptNotFound,
            InvalidApplicationMasterRequest,
        ) as error:
            await self._register_again(error)
        except (InvalidToken, AuthenticationError) as error:
            raise AttemptSuperseded(
                f"the ResourceManager no longer accepts this master's token: {error}"
            ) from error

    async def _send(self, changes: RequestChanges) -> None:
        """Ordinary and conditional requests in calls of their own: a capacity scheduler that is told
        of both at once takes only the former (``updateResourceRequests(…) ||
        updateSchedulingRequests(…)`` in ``CapacityScheduler.allocate``)."""
        conditional = tuple(
            request for request in changes.requests if request.apart_from is not None
        )
        if conditional and len(conditional) < len(changes.requests):
            plain = tuple(request for request in changes.requests if request.apart_from is None)
            await self._call(msgspec.structs.replace(changes, requests=plain))
            changes = RequestChanges(requests=conditional)
        await self._call(changes)

    async def _call(self, part: RequestChanges) -> None:
        """One call, with some of what is unsent, or nothing."""
        ask, conditional = records.requests(part.requests, self._roles)
        url = self._tracking_url
        self._unsent = _without(self._unsent, part)
        self._on_the_way = _both(self._on_the_way, part)
        try:
            answer = await self._scheduler.allocate(
                ask=ask,
                scheduling_requests=conditional,
                release=[ContainerId.parse(each).to_proto() for each in part.release],
                blacklist_add=part.blacklist,
                blacklist_remove=part.unblacklist,
                tracking_url=url,
            )
        except (TransportError, StandbyError, RetriableError):
            raise  # `Scheduler` says it again itself before anything new
        except RemoteError:
            self._unsent = _both(self._on_the_way, self._unsent)
            self._on_the_way = RequestChanges()
            raise
        self._on_the_way = RequestChanges()
        if self._tracking_url == url:
            self._tracking_url = None
        command = answer.a_m_command if answer.HasField("a_m_command") else None
        if command == _SHUTDOWN:
            raise AttemptSuperseded("the ResourceManager told this master to end")
        if command == _RESYNC:
            await self._register_again(None)
            return
        for rejected in answer.rejected_scheduling_requests:
            log.warning("the ResourceManager rejected a request; it is made again")
            self._requests.rejected(rejected.request.allocationRequestId)
        if answer.allocated_containers or answer.completed_container_statuses:
            self._news = time.monotonic()
        self._listener.answered(answer)

    async def _find_refused(self, error: InvalidResourceRequest) -> None:
        """Something asked for can never be given, and nothing was taken: say it role by role."""
        by_role: dict[str, tuple[RoleRequest, ...]] = {}
        for request in self._unsent.requests:
            by_role[request.role] = (*by_role.get(request.role, ()), request)
        if rest := msgspec.structs.replace(self._unsent, requests=()):
            await self._send(rest)
        for role, requests in by_role.items():
            part = RequestChanges(requests=requests)
            try:
                if len(by_role) == 1:
                    raise error
                await self._send(part)
            except InvalidResourceRequest as problem:
                self._unsent = _without(self._unsent, part)
                self._listener.refused(role, problem.message)

    async def _register_again(self, error: RemoteError | None) -> None:
        """The ResourceManager has forgotten this master: after its restart or fail-over."""
        log.warning("the ResourceManager wants this master to register again: %s", error or "")
        try:
            answer = await self._scheduler.register_again(timeout_s=REGISTER_S + RETRY_S)
        except AnswerLost as problem:
            log.warning("%s; this master has its containers and tokens already", problem)
            answer = yarn.RegisterApplicationMasterResponseProto()
        except (ApplicationAttemptNotFound, InvalidToken, AuthenticationError) as problem:
            raise AttemptSuperseded(
                f"this attempt of the application is over: {problem}"
            ) from problem
        for container_id in self._unsent.release:
            self._requests.release(container_id)
        self._unsent = RequestChanges()
        self._requests.resync()
        self._tracking_url = self._page
        self._listener.registered_again(answer)
        self.wake()


def _both(former: RequestChanges, newer: RequestChanges) -> RequestChanges:
    """What has to be said after the one and the other."""
    if not former or not newer:
        return former or newer
    requests = {
        (request.key, request.place): request for request in (*former.requests, *newer.requests)
    }
    gone = set(newer.unblacklist)
    return RequestChanges(
        requests=tuple(requests.values()),
        release=(*former.release, *newer.release),
        blacklist=(*(node for node in former.blacklist if node not in gone), *newer.blacklist),
        unblacklist=(*former.unblacklist, *newer.unblacklist),
    )


def _without(all_of_it: RequestChanges, part: RequestChanges) -> RequestChanges:
    """What is left to say; a part has all or nothing of what are no requests."""
    said = set(part.requests)
    return RequestChanges(
        requests=tuple(request for request in all_of_it.requests if request not in said),
        release=() if part.release else all_of_it.release,
        blacklist=() if part.blacklist else all_of_it.blacklist,
        unblacklist=() if part.unblacklist else all_of_it.unblacklist,
    )
