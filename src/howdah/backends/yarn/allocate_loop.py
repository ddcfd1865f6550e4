"""The allocate loop: everything that is said to the ResourceManager, and what it answers.

One loop calls ``allocate``: ten times a second while something is outstanding, else once a second
(never so seldom that the ResourceManager would give the master up), and at once when there is
something to say. A ResourceManager that restarts or fails over wants the master to register again
and to say everything anew; one that knows another attempt of the application ends this master.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from howdah.backends.base import RoleResources
from howdah.backends.yarn import records
from howdah.backends.yarn.outstanding_requests import Changes, OutstandingRequests
from howdah.hadoop.errors import (
    ApplicationAttemptNotFound,
    ApplicationMasterNotRegistered,
    AuthenticationError,
    HadoopError,
    InvalidBlacklist,
    InvalidContainerRelease,
    InvalidResourceRequest,
    InvalidToken,
    RemoteError,
    TransportError,
)
from howdah.hadoop.ids import ContainerId
from howdah.hadoop.protos import yarn
from howdah.hadoop.scheduler import AnswerLost, Scheduler

log = logging.getLogger(__name__)

BUSY_S = 0.1
"""Between calls while containers are on their way: YARN's nodes send heartbeats once a second or more often."""
QUIET_S = 1.0
RETRY_S = 1.0
"""After a call that failed."""
_RESYNC, _SHUTDOWN = 1, 2  # AMCommandProto


class Superseded(Exception):
    """This master's attempt is over for YARN: another one has the job, or none."""


class Listener(Protocol):
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
        listener: Listener,
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
        self._quiet_s = min(QUIET_S, longest_s)
        self._superseded = superseded
        self._woken = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._page: str | None = None
        self._tracking_url: str | None = None
        """The page's address as long as it is not said."""
        self._unsent = Changes()
        """Of a call that failed."""

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
        self._woken.set()

    def track(self, url: str) -> None:
        """The job's page is there now."""
        self._page = self._tracking_url = url
        self.wake()

    # -- the loop --------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            pause_s = BUSY_S if self._requests.outstanding or self._listener.busy else self._quiet_s
            try:
                await self._allocate()
            except Superseded as error:
                log.error("%s", error)
                self._superseded(str(error))
                return
            except HadoopError as error:
                log.warning("no answer from the ResourceManager: %s", error)
                pause_s = min(RETRY_S, self._quiet_s)
            except Exception:
                # A defect must not make the ResourceManager give the master up.
                log.exception("an allocate call failed")
                pause_s = min(RETRY_S, self._quiet_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._woken.wait()

    async def _allocate(self) -> None:
        self._woken.clear()
        changes = self._merged(self._requests.take_changes())
        try:
            await self._send(changes)
        except InvalidResourceRequest as error:
            await self._find_refused(changes, error)
        except (InvalidContainerRelease, InvalidBlacklist) as error:
            log.warning("the ResourceManager does not take what was said: %s", error)
            await self._send(msgspec.structs.replace(changes, release=(), blacklist=()))
        except (ApplicationMasterNotRegistered, ApplicationAttemptNotFound) as error:
            await self._register_again(changes, error)
        except (InvalidToken, AuthenticationError) as error:
            raise Superseded(
                f"the ResourceManager no longer accepts this master's token: {error}"
            ) from error
        except TransportError:
            # `Scheduler` says it again itself before anything new: its requests are on their way.
            raise
        except RemoteError:
            self._unsent = changes
            raise

    def _merged(self, changes: Changes) -> Changes:
        former, self._unsent = self._unsent, Changes()
        if not former:
            return changes
        newest = {
            (request.key, request.place): request
            for request in (*former.requests, *changes.requests)
        }
        gone = set(changes.unblacklist)
        return Changes(
            requests=tuple(newest.values()),
            release=(*former.release, *changes.release),
            blacklist=(*(n for n in former.blacklist if n not in gone), *changes.blacklist),
            unblacklist=(*former.unblacklist, *changes.unblacklist),
        )

    async def _send(self, changes: Changes) -> None:
        """Ordinary and conditional requests in calls of their own: a capacity scheduler that is told
        of both at once takes only the former (``updateResourceRequests(…) ||
        updateSchedulingRequests(…)`` in ``CapacityScheduler.allocate``)."""
        conditional = tuple(
            request for request in changes.requests if request.apart_from is not None
        )
        if conditional and len(conditional) < len(changes.requests):
            plain = tuple(request for request in changes.requests if request.apart_from is None)
            await self._call(msgspec.structs.replace(changes, requests=plain))
            changes = Changes(requests=conditional)
        await self._call(changes)

    async def _call(self, changes: Changes) -> None:
        ask, conditional = records.requests(changes.requests, self._roles)
        url = self._tracking_url
        answer = await self._scheduler.allocate(
            ask=ask,
            scheduling_requests=conditional,
            release=[ContainerId.parse(each).to_proto() for each in changes.release],
            blacklist_add=changes.blacklist,
            blacklist_remove=changes.unblacklist,
            tracking_url=url,
        )
        if self._tracking_url == url:
            self._tracking_url = None
        command = answer.a_m_command if answer.HasField("a_m_command") else None
        if command == _SHUTDOWN:
            raise Superseded("the ResourceManager told this master to end")
        if command == _RESYNC:
            await self._register_again(Changes(), None)
            return
        for rejected in answer.rejected_scheduling_requests:
            log.warning("the ResourceManager rejected a request; it is made again")
            self._requests.rejected(rejected.request.allocationRequestId)
        self._listener.answered(answer)

    async def _find_refused(self, changes: Changes, error: InvalidResourceRequest) -> None:
        """Something asked for can never be given, and nothing was taken: say it role by role."""
        roles = list(dict.fromkeys(request.role for request in changes.requests))
        rest = msgspec.structs.replace(changes, requests=())
        for role in roles:
            requests = tuple(request for request in changes.requests if request.role == role)
            try:
                if len(roles) == 1:
                    raise error
                await self._send(msgspec.structs.replace(rest, requests=requests))
                rest = Changes()
            except InvalidResourceRequest as problem:
                self._listener.refused(role, problem.message)
        if rest:
            await self._send(rest)

    async def _register_again(self, changes: Changes, error: RemoteError | None) -> None:
        """The ResourceManager has forgotten this master: after its restart or fail-over."""
        log.warning("the ResourceManager wants this master to register again: %s", error or "")
        try:
            answer = await self._scheduler.register_again()
        except AnswerLost as problem:
            log.warning("%s; this master has its containers and tokens already", problem)
            answer = yarn.RegisterApplicationMasterResponseProto()
        except (ApplicationAttemptNotFound, InvalidToken, AuthenticationError) as problem:
            raise Superseded(f"this attempt of the application is over: {problem}") from problem
        for container_id in changes.release:
            self._requests.release(container_id)
        self._requests.resync()
        self._tracking_url = self._page
        self._listener.registered_again(answer)
        self.wake()
