"""The ResourceManager, as an application's master sees it (``ApplicationMasterProtocol``)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterable

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.connection import ConnectionLimits
from howdah.hadoop.errors import (
    ApplicationMasterNotRegistered,
    CallTimeout,
    ConnectionLost,
    HadoopError,
    InvalidApplicationMasterRequest,
    RemoteError,
    RetriableError,
    StandbyError,
)
from howdah.hadoop.protos import yarn
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.security.credentials import Token
from howdah.hadoop.security.identity import Identity
from howdah.hadoop.security.login import Login
from howdah.hadoop.service import Service

REGISTER_S = 120.0
"""An answer to a registration is worth more than any other: it is given only once. It is waited for
so long, then taken for lost."""
_AGAIN_S = 0.5
SUCCEEDED = "SUCCEEDED"
FAILED = "FAILED"
KILLED = "KILLED"


class AnswerLost(HadoopError):
    """The master is registered, but the answer that says with what (containers and tokens of earlier
    attempts) was lost on its way, and the RM does not repeat it."""


class Scheduler(Service):
    """Registering, the heartbeat that asks for containers and brings them, and the end.

    It keeps what the protocol needs between calls: the response id, the request whose answer was
    lost, a registration whose answer was, the newest AMRM token. It does not keep what was asked for:
    after `ApplicationMasterNotRegistered` (the RM restarted or failed over) call `register_again` and
    send all that is outstanding once more: asks, releases, the blacklist. The same holds after
    `InvalidApplicationMasterRequest`: the RM may have executed a registration that had timed out.

    One call at a time.
    """

    PROTOCOL = "org.apache.hadoop.yarn.api.ApplicationMasterProtocolPB"
    PRINCIPAL = "yarn.resourcemanager.principal"

    def __init__(
        self,
        configuration: Configuration,
        login: Login | str,
        token: Token,
        *,
        retry: RetryPolicy | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        """``token`` is the container's AMRM token (`credentials.AMRM_TOKEN`)."""
        identity = Identity.from_configuration(configuration, login, token, self.PRINCIPAL)
        addresses = configuration.rm_addresses("scheduler")
        # The heartbeat keeps the connection in use; a pause of it is no reason to begin anew.
        super().__init__(
            addresses, identity, retry=retry, limits=limits or ConnectionLimits(idle_s=None)
        )
        self._registration: yarn.RegisterApplicationMasterRequestProto | None = None
        self._lost: HadoopError | None = None
        """Why the answer to a registration has not come, if one may have been made."""
        self._response_id = 0
        self._unanswered: deque[yarn.AllocateRequestProto] = deque()
        self._arrived = yarn.AllocateResponseProto()

    async def register(
        self,
        host: str,
        rpc_port: int,
        tracking_url: str,
        *,
        placement_constraints: Iterable[yarn.PlacementConstraintMapEntryProto] = (),
        timeout_s: float | None = None,
    ) -> yarn.RegisterApplicationMasterResponseProto:
        """Say that the master is there; what the scheduler can give, and what earlier attempts left.

        ``rpc_port`` is -1 or 0 if the master serves clients in another way. The answer has the
        containers and NodeManager tokens of previous attempts.

        Raises:
            AnswerLost: it is registered now; see there.
            InvalidApplicationMasterRequest: it was registered already.
            InvalidToken: the attempt is over, another one has been started.
        """
        self._registration = yarn.RegisterApplicationMasterRequestProto(
            host=host,
            rpc_port=rpc_port,
            tracking_url=tracking_url,
            placement_constraints=placement_constraints,
        )
        return await self.register_again(timeout_s=timeout_s)

    async def register_again(
        self, *, timeout_s: float | None = None
    ) -> yarn.RegisterApplicationMasterResponseProto:
        """Register once more as before, when the RM has forgotten it.

        Raises:
            AnswerLost: as for `register`, also where the answer to an earlier call was lost.
            InvalidApplicationMasterRequest: it is registered, and by nothing that was sent here and not
                answered: another process uses the same token.
            RuntimeError: `register` was never called.
        """
        if self._registration is None:
            raise RuntimeError("register comes before register_again")
        total_s = self.rpc.retry.max_wait_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + total_s
        while True:
            left_s = max(0.001, deadline - time.monotonic())
            try:
                answer = await self._register_once(self._registration, left_s)
            except (ConnectionLost, CallTimeout) as error:
                self._lost = error
                if time.monotonic() + _AGAIN_S > deadline:
                    raise
                await asyncio.sleep(_AGAIN_S)
                continue
            except InvalidApplicationMasterRequest as error:
                if self._lost is None:
                    raise
                why = f"the answer to the registration was lost: {self._lost}"
                self._registered_anew()
                raise AnswerLost(why) from error
            self._registered_anew()
            return answer

    async def _register_once(
        self, request: yarn.RegisterApplicationMasterRequestProto, timeout_s: float
    ) -> yarn.RegisterApplicationMasterResponseProto:
        return await self.rpc.call(
            "registerApplicationMaster",
            request,
            yarn.RegisterApplicationMasterResponseProto,
            timeout_s=timeout_s,
            try_timeout_s=REGISTER_S,
            idempotent=False,
        )

    def _registered_anew(self) -> None:
        self._lost = None
        self._response_id = 0
        self._unanswered.clear()

    async def allocate(
        self,
        *,
        ask: Iterable[yarn.ResourceRequestProto] = (),
        release: Iterable[yarn.ContainerIdProto] = (),
        blacklist_add: Iterable[str] = (),
        blacklist_remove: Iterable[str] = (),
        scheduling_requests: Iterable[yarn.SchedulingRequestProto] = (),
        updates: Iterable[yarn.UpdateContainerRequestProto] = (),
        progress: float = 0.0,
        tracking_url: str | None = None,
        timeout_s: float | None = None,
    ) -> yarn.AllocateResponseProto:
        """One heartbeat: what is wanted or given back, and everything that happened meanwhile.

        An ask replaces the former one of the same priority, resource name, capability and
        allocation request id; its number is a total, not an increment, and counts down by what
        was allocated. ``tracking_url``, if given, replaces the one registered. A new AMRM token
        in the answer has been taken over.

        A heartbeat whose answer was lost (time-out, connection, cancelled) is kept and sent
        again with the next one, for the RM answers a repeated response id without looking at the
        request: don't ask again for what it asked for. What the answers brought comes as one.

        Once the RM refuses one, nothing is kept: what it asked for, and what was asked for since, has
        not been taken.

        Raises:
            ApplicationMasterNotRegistered, InvalidApplicationMasterRequest: see the class.
            ApplicationAttemptNotFound: the attempt is over for the RM.
            InvalidResourceRequest: something asked for can never be given; nothing was taken.
            InvalidContainerRelease: a container is not the application's.
        """
        request = yarn.AllocateRequestProto(
            ask=ask,
            release=release,
            scheduling_requests=scheduling_requests,
            update_requests=updates,
            progress=progress,
            tracking_url=tracking_url,
        )
        add, remove = list(blacklist_add), list(blacklist_remove)
        if add or remove:
            request.blacklist_request.blacklist_additions.extend(add)
            request.blacklist_request.blacklist_removals.extend(remove)
        if not self._unanswered or _asks_for_something(request):
            self._unanswered.append(request)
        while self._unanswered:
            answer = await self._beat(self._unanswered[0], timeout_s)
            self._unanswered.popleft()
            self._arrived.MergeFrom(answer)
        arrived, self._arrived = self._arrived, yarn.AllocateResponseProto()
        return arrived

    async def _beat(
        self, request: yarn.AllocateRequestProto, timeout_s: float | None
    ) -> yarn.AllocateResponseProto:
        request.response_id = self._response_id
        try:
            answer = await self.rpc.call(
                "allocate", request, yarn.AllocateResponseProto, timeout_s=timeout_s
            )
        except (StandbyError, RetriableError):
            raise  # it was not executed, and the time is up: it goes out with the next one
        except RemoteError:
            self._unanswered.clear()
            raise
        self._response_id = answer.response_id
        if answer.HasField("am_rm_token"):
            token = Token.from_proto(answer.am_rm_token)
            if token.identifier:
                self.rpc.use_token(token)
        return answer

    async def finish(
        self,
        status: str,
        *,
        diagnostics: str = "",
        tracking_url: str = "",
        timeout_s: float = 60.0,
    ) -> bool:
        """Say how the application ended: SUCCEEDED, FAILED or KILLED.

        True once the RM has stored it; until then the master must not exit, or YARN starts
        another attempt. False if that did not happen in time.
        """
        request = yarn.FinishApplicationMasterRequestProto(
            diagnostics=diagnostics,
            tracking_url=tracking_url,
            final_application_status=yarn.FinalApplicationStatusProto.Value(f"APP_{status}"),
        )
        deadline = time.monotonic() + timeout_s
        while True:
            left_s = max(0.001, deadline - time.monotonic())
            try:
                answer = await self.rpc.call(
                    "finishApplicationMaster",
                    request,
                    yarn.FinishApplicationMasterResponseProto,
                    timeout_s=left_s,
                )
            except ApplicationMasterNotRegistered:
                with contextlib.suppress(AnswerLost):
                    await self.register_again(timeout_s=left_s)
                continue
            if answer.isUnregistered or time.monotonic() >= deadline:
                return answer.isUnregistered
            await asyncio.sleep(0.1)


def _asks_for_something(request: yarn.AllocateRequestProto) -> bool:
    """It has more in it than a sign of life."""
    return bool(
        request.ask
        or request.release
        or request.scheduling_requests
        or request.update_requests
        or request.HasField("blacklist_request")
        or request.HasField("tracking_url")
    )
