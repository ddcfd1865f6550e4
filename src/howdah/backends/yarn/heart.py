"""The master's heartbeat: everything that is said to the ResourceManager, and what it answers.

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
from howdah.backends.yarn.asks import Asks, Changes
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
"""Between beats while containers are on their way: YARN's nodes beat once a second or more often."""
QUIET_S = 1.0
RETRY_S = 1.0
"""After a beat that failed."""
_RESYNC, _SHUTDOWN = 1, 2  # AMCommandProto


class Superseded(Exception):
    """This master's attempt is over for YARN: another one has the job, or nobody."""


class Listener(Protocol):
    """Who wants to know what the ResourceManager says. Called on the event loop."""

    @property
    def busy(self) -> bool:
        """Containers are about to end: their ends are waited for."""
        ...

    def beaten(self, answer: yarn.AllocateResponseProto) -> None:
        """What happened since the last beat."""
        ...

    def registered_again(self, answer: yarn.RegisterApplicationMasterResponseProto) -> None: ...

    def refused(self, role: str, reason: str) -> None:
        """What the role asks for can never be given."""
        ...


class Heart:
    """The loop, from `start` to `stop`."""

    def __init__(
        self,
        scheduler: Scheduler,
        asks: Asks,
        roles: Mapping[str, RoleResources],
        listener: Listener,
        *,
        longest_s: float,
        superseded: Callable[[str], None],
    ) -> None:
        """``longest_s`` is the longest time between beats; ``superseded`` is called with the reason
        when this master must go."""
        self._scheduler = scheduler
        self._asks = asks
        self._roles = roles
        self._listener = listener
        self._quiet_s = min(QUIET_S, longest_s)
        self._superseded = superseded
        self._woken = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._page: str | None = None
        self._tracking_url: str | None = None
        """The page's address as long as it is not said."""
        self._unsaid = Changes()
        """Of a beat that failed."""

    def start(self) -> None:
        """Begin to beat; the master is registered."""
        self._running = asyncio.create_task(self._run(), name="yarn heartbeat")

    async def stop(self) -> None:
        """Beat no more."""
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
            pause_s = BUSY_S if self._asks.outstanding or self._listener.busy else self._quiet_s
            try:
                await self._beat()
            except Superseded as error:
                log.error("%s", error)
                self._superseded(str(error))
                return
            except HadoopError as error:
                log.warning("no answer from the ResourceManager: %s", error)
                pause_s = min(RETRY_S, self._quiet_s)
            except Exception:
                # A defect must not make the ResourceManager give the master up.
                log.exception("a heartbeat failed")
                pause_s = min(RETRY_S, self._quiet_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._woken.wait()

    async def _beat(self) -> None:
        self._woken.clear()
        changes = self._merged(self._asks.take())
        try:
            await self._say(changes)
        except InvalidResourceRequest as error:
            await self._find_refused(changes, error)
        except (InvalidContainerRelease, InvalidBlacklist) as error:
            log.warning("the ResourceManager does not take what was said: %s", error)
            await self._say(msgspec.structs.replace(changes, release=(), blacklist=()))
        except (ApplicationMasterNotRegistered, ApplicationAttemptNotFound) as error:
            await self._register_again(changes, error)
        except (InvalidToken, AuthenticationError) as error:
            raise Superseded(
                f"the ResourceManager no longer accepts this master's token: {error}"
            ) from error
        except TransportError:
            # `Scheduler` says it again itself before anything new: its asks are on their way.
            raise
        except RemoteError:
            self._unsaid = changes
            raise

    def _merged(self, changes: Changes) -> Changes:
        former, self._unsaid = self._unsaid, Changes()
        if not former:
            return changes
        newest = {(ask.key, ask.place): ask for ask in (*former.asks, *changes.asks)}
        gone = set(changes.unblacklist)
        return Changes(
            asks=tuple(newest.values()),
            release=(*former.release, *changes.release),
            blacklist=(*(n for n in former.blacklist if n not in gone), *changes.blacklist),
            unblacklist=(*former.unblacklist, *changes.unblacklist),
        )

    async def _say(self, changes: Changes) -> None:
        """Ordinary and conditional asks in beats of their own: a capacity scheduler that is told
        of both at once takes only the former (``updateResourceRequests(…) ||
        updateSchedulingRequests(…)`` in ``CapacityScheduler.allocate``)."""
        conditional = tuple(ask for ask in changes.asks if ask.apart_from is not None)
        if conditional and len(conditional) < len(changes.asks):
            plain = tuple(ask for ask in changes.asks if ask.apart_from is None)
            await self._say_at_once(msgspec.structs.replace(changes, asks=plain))
            changes = Changes(asks=conditional)
        await self._say_at_once(changes)

    async def _say_at_once(self, changes: Changes) -> None:
        ask, conditional = records.requests(changes.asks, self._roles)
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
            self._asks.rejected(rejected.request.allocationRequestId)
        self._listener.beaten(answer)

    async def _find_refused(self, changes: Changes, error: InvalidResourceRequest) -> None:
        """Something asked for can never be given, and nothing was taken: say it role by role."""
        roles = list(dict.fromkeys(ask.role for ask in changes.asks))
        rest = msgspec.structs.replace(changes, asks=())
        for role in roles:
            asks = tuple(ask for ask in changes.asks if ask.role == role)
            try:
                if len(roles) == 1:
                    raise error
                await self._say(msgspec.structs.replace(rest, asks=asks))
                rest = Changes()
            except InvalidResourceRequest as problem:
                self._listener.refused(role, problem.message)
        if rest:
            await self._say(rest)

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
            self._asks.release(container_id)
        self._asks.resync()
        self._tracking_url = self._page
        self._listener.registered_again(answer)
        self.wake()
