"""The connection to a job's coordinator, and following a job through the death of one.

A coordinator may be killed and replaced at any time; its successor tells where it is, in the job
directory or to the cluster. A follower looks again, says what it has seen, and goes on. Where
looking takes the network (`howdah.backends.base.Site.at_hand`), it is done in threads and seldom.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from howdah.backends.base import Running, Site
from howdah.client.errors import Abandoned, Refused, Unreachable
from howdah.client.following import offline_job
from howdah.client.following.log_lines import FollowerPosition, LogId
from howdah.client.lookup.site import site_of
from howdah.core.messages import Task
from howdah.core.state import JobPhase
from howdah.storage import legacy_names
from howdah.storage.jobdir import JobDirectory, user_name
from howdah.storage.layout import CoordinatorAddress
from howdah.wire.channel import Channel, ChannelClosed, connect
from howdah.wire.messages import (
    PROTOCOL,
    UNSAID,
    ClientHello,
    LogUpdate,
    Message,
    RecordUpdate,
    Refuse,
    StatusUpdate,
    ToClient,
    Watch,
    Welcome,
)
from howdah.wire.status import JobView
from howdah.wire.tls import PeerRole, client_context

NEEDED_LATER = (
    "howdah.client.following.tunnel",
    "howdah.coordinator.driver",
    "howdah.core.machine",
    "howdah.wire.authority",
    "howdah.wire.tickets",
)
"""What only some who follow a job need, and they at its end or on the way."""
ANSWER_S = 30.0
"""For an answer of the coordinator, a fail-over included."""
CONNECT_S = 5.0
"""For one connection: a coordinator that accepts and does not greet is as good as dead."""
LOOK_S = (0.005, 0.25)
"""Pauses between two looks for a coordinator: at first, when one is about to come, and in the end."""
EAGER_S = 1.0
"""How long it is looked for eagerly."""
AWAY_LOOK_S = (0.05, 3.0)
"""The same pauses where a look asks a cluster: a full queue has many jobs, each with somebody who waits."""
AWAY_PART = 0.1
"""Of the time that it has been looked for: the coordinator is found at most so much later."""
WAITING_S = 1.0
"""Why a job waits is asked for this often, and not before it has waited this long."""
PATIENCE_S = 1.0
"""Without a coordinator this long, followers are told."""
ABANDONED_S = 5.0
"""A job without a coordinator for this long is abandoned: it may have been between two of them."""
LAST_WORDS_S = 5.0
"""A finished job's coordinator hangs up within this."""

M = TypeVar("M", bound=Message)
_A = TypeVar("_A")


class Link(msgspec.Struct, frozen=True):
    """The connection to the coordinator broke, or there is one again."""

    incarnation: int | None
    """Of the coordinator that answers now; None while none does."""


class WaitingReason(msgspec.Struct, frozen=True):
    """There is no coordinator yet, for this reason."""

    why: str


Update = RecordUpdate | LogUpdate | JobView | Link | WaitingReason


def _import_rest() -> None:
    for name in NEEDED_LATER:
        importlib.import_module(name)


class Remote:
    """One job's coordinator, whichever it is at the moment."""

    def __init__(self, directory: JobDirectory) -> None:
        self.directory = directory
        self.protocol: tuple[int, int] = UNSAID
        """What the coordinator that was greeted last speaks."""
        self.ahead_s: float = 0.0
        """How far its clock is ahead of this machine's."""
        self._context: ssl.SSLContext | None = None
        self._seen: CoordinatorAddress | None = None
        self._loading: asyncio.Future[None] | None = None

    @cached_property
    def site(self) -> Site:
        """The job as its backend finds it.

        Raises:
            BackendError: its backend is none that is installed here.
            StorageError: the job directory is damaged.
        """
        return site_of(self.directory)

    @property
    def address(self) -> CoordinatorAddress | None:
        """Where the coordinator is, or was when it was looked for last."""
        if self._seen is None or self.site.at_hand:
            self._seen = self.site.coordinator()
        return self._seen

    def _note_page(self, view: JobView) -> None:
        """The page comes up a little after the coordinator."""
        if self._seen is not None and not self._seen.http_port and view.page:
            port = urlsplit(view.page).port or 0
            self._seen = msgspec.structs.replace(self._seen, http_port=port)

    async def final(self) -> JobView | None:
        """How the job ended; None while it has not."""
        final = self.directory.final()
        if final is None and not self.site.at_hand:
            final = await asyncio.to_thread(self.site.final)
        return final

    async def running(self) -> Running:
        return await self._ask_site(self.site.running)

    async def not_begun(self) -> bool:
        """Whether it waits elsewhere, and no coordinator of it has ever been there."""
        if self.site.at_hand or await self.running() is not Running.NOT_YET:
            return False
        return await self._ask_site(self.site.coordinator) is None

    async def _ask_site(self, question: Callable[[], _A]) -> _A:
        return question() if self.site.at_hand else await asyncio.to_thread(question)

    def _load_rest(self) -> None:
        """Import what is needed at the job's end: by then an upgrade may have put another release there."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(asyncio.to_thread(_import_rest))

    async def follow(
        self, position: FollowerPosition, *, logs: bool = True, tasks: Iterable[Task] = ()
    ) -> AsyncIterator[Update]:
        """Everything after ``position`` as it happens, until the job has ended.

        Records come once and in order, log bytes once and in order within each attempt; the last
        item is the final `JobView`. Not guaranteed: the order between records and logs.

        Raises:
            Unreachable: the job has no coordinator any more.
            Refused: the coordinator does not speak to us.
        """
        wanted = tuple(tasks)
        met, away = False, False
        while True:
            told: asyncio.Queue[str] = asyncio.Queue()
            reaching = asyncio.ensure_future(self._reach(told.put_nowait))
            try:
                async for text in _told_meanwhile(reaching, told, PATIENCE_S):
                    if text is not None:
                        self._load_rest()
                        yield WaitingReason(text)
                    elif met and not away:
                        away = True
                        yield Link(None)
                channel = await reaching
            finally:
                reaching.cancel()
            if channel is None:
                break
            try:
                welcome = await self._greet(channel)
                met = True
                self._load_rest()
                if away:
                    away = False
                    yield Link(welcome.incarnation)
                channel.send(_watch(position, logs, wanted))
                async for update in _updates(channel, position):
                    if isinstance(update, JobView):
                        self._note_page(update)
                    yield update
            except OSError:
                pass  # it died while we spoke: its successor is looked for
            finally:
                channel.abort()
        for update in offline_job.rest(self.directory, position, logs=logs, tasks=wanted):
            yield update
        yield offline_job.view(self.directory)

    async def records_so_far(self, after: int) -> list[RecordUpdate]:
        """The event log of a job that runs elsewhere up to now, after that record.

        Raises:
            Unreachable: the job has no coordinator any more, or it does not answer.
            Refused: the coordinator does not speak to us.
        """
        found: dict[int, RecordUpdate] = {}

        def take(message: ToClient) -> bool:
            if isinstance(message, RecordUpdate):
                found[message.seq] = message
            return isinstance(message, StatusUpdate)

        request = Watch(after_seq=after, until_now=True)
        if await self._ask(request, take, within_s=ANSWER_S) is None:
            return list(offline_job.records(self.directory, after))
        return [found[seq] for seq in sorted(found)]

    async def ask(
        self, request: Message, reply: type[M], *, within_s: float = ANSWER_S
    ) -> M | None:
        """Send one request and wait for its answer; None if the job has ended instead.

        A coordinator that dies meanwhile is asked again in its successor: requests may be repeated.

        Raises:
            Unreachable: no answer came within ``within_s``.
            Refused: the coordinator does not speak to us.
        """
        answer = await self._ask(request, lambda told: isinstance(told, reply), within_s=within_s)
        assert answer is None or isinstance(answer, reply)
        return answer

    async def _ask(
        self, request: Message, is_answer: Callable[[ToClient], bool], *, within_s: float
    ) -> ToClient | None:
        """As `ask`; ``is_answer`` is shown every message until it takes one for the answer."""
        try:
            async with asyncio.timeout(within_s):
                while (channel := await self._reach()) is not None:
                    try:
                        await self._greet(channel)
                        channel.send(request)
                        while (message := await _receive(channel)) is not None:
                            if is_answer(message):
                                return message
                    except OSError:
                        pass  # asked again
                    finally:
                        channel.abort()
                return None
        except TimeoutError:
            raise Unreachable(
                f"the coordinator of {self.directory.job_id} did not answer within {within_s:g}s; "
                "try again, and look into "
                f"{self.directory.logs / 'coordinator.log'} if it stays silent{self._replaceable()}"
            ) from None

    def _replaceable(self) -> str:
        """How a coordinator that hangs or is stopped is got rid of."""
        address = self.directory.coordinator()
        if address is None:
            return ""
        return (
            f". If its process hangs ({address.pid} on {address.host}), kill it: another one takes "
            "the job over, and its programs run on"
        )

    async def open(self) -> Channel[ToClient] | None:
        """A greeted connection for the caller alone to use and close; None once the job has ended.

        Raises:
            Unreachable: the job has no coordinator any more.
            Refused: the coordinator does not speak to us.
            OSError: the connection broke.
        """
        channel = await self._reach()
        if channel is not None:
            try:
                await self._greet(channel)
            except BaseException:
                channel.abort()
                raise
        return channel

    async def _reach(
        self, waits: Callable[[str], object] = lambda why: None
    ) -> Channel[ToClient] | None:
        """A connection to the present coordinator, or None once the job has ended.

        ``waits`` is told why there is none yet, whenever that changes.
        """
        pauses = _Pauses(self.site.at_hand)
        abandoned_since: float | None = None
        why = ""
        while await self.final() is None:
            address = self._seen = await self._ask_site(self.site.coordinator)
            if address is not None:
                with contextlib.suppress(OSError):
                    return await self._connect(address)
            state = await self.running()
            if state is not Running.NO:
                abandoned_since = None
            elif abandoned_since is None:
                abandoned_since = time.monotonic()
            elif time.monotonic() - abandoned_since > ABANDONED_S:
                raise Abandoned(str(self.site.lost()))
            if state is Running.NOT_YET and pauses.may_ask_why():
                before, why = why, await self._ask_site(self.site.waiting)
                if why != before:
                    waits(why)
            await asyncio.sleep(pauses.next(hurry=state is Running.YES))
        return None

    async def _connect(self, address: CoordinatorAddress) -> Channel[ToClient]:
        if self._context is None:
            self._context = client_context(self.directory.secrets, PeerRole.CLIENT)
        return await connect(
            address.host,
            address.port,
            self._context,
            job_id=self.directory.job_id,
            receives=ToClient,
            timeout_s=CONNECT_S,
        )

    async def _greet(self, channel: Channel[ToClient]) -> Welcome:
        """Introduce ourselves; the coordinator's answer."""
        channel.send(ClientHello(protocol=PROTOCOL, job_id=self.directory.job_id, user=user_name()))
        answer = await channel.receive(CONNECT_S)
        if isinstance(answer, Refuse):
            raise Refused(f"the coordinator of {self.directory.job_id} says: {answer.reason}")
        if not isinstance(answer, Welcome):
            raise ChannelClosed(channel.problem or "the coordinator did not greet")
        self.protocol = answer.protocol
        self.ahead_s = answer.time - time.time() if answer.time is not None else 0.0
        return answer


def _watch(position: FollowerPosition, logs: bool, tasks: tuple[Task, ...]) -> Watch:
    offsets = tuple((s.task, s.attempt, offset) for s, offset in position.offsets.items())
    return Watch(after_seq=position.seq, logs=logs, tasks=tasks, offsets=offsets)


async def _updates(channel: Channel[ToClient], position: FollowerPosition) -> AsyncIterator[Update]:
    """What the coordinator sends until it hangs up, without what has been seen."""
    limit_s = None
    while (message := await _receive(channel, limit_s)) is not None:
        if isinstance(message, RecordUpdate):
            if position.is_new_record(message.seq):
                yield message
        elif isinstance(message, LogUpdate):
            stream = LogId(message.task, message.attempt)
            offset, data = position.new_bytes(stream, message.offset, message.data)
            if data:
                yield msgspec.structs.replace(message, offset=offset, data=data)
        elif isinstance(message, StatusUpdate):
            view = legacy_names.view(message.status)
            if view.phase == JobPhase.FINISHED.value:
                limit_s = LAST_WORDS_S  # and the last word is the job directory's
            else:
                yield view


async def _receive(channel: Channel[ToClient], limit_s: float | None = None) -> ToClient | None:
    """The next message; a refusal is raised."""
    message = await channel.receive(limit_s)
    if isinstance(message, Refuse):
        raise Refused(f"the coordinator says: {message.reason}")
    return message


async def _told_meanwhile(
    work: asyncio.Future[Any], told: asyncio.Queue[str], patience_s: float
) -> AsyncIterator[str | None]:
    """What is told until the work is done; None once when patience is at its end."""
    limit_s: float | None = patience_s
    while not work.done():
        next_one = asyncio.ensure_future(told.get())
        try:
            await asyncio.wait(
                {work, next_one}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            if next_one.done():
                yield next_one.result()
            elif not work.done():
                limit_s = None
                yield None
        finally:
            next_one.cancel()


class _Pauses:
    """How long to wait between two looks for a coordinator."""

    def __init__(self, at_hand: bool) -> None:
        self._at_hand = at_hand
        self._began = self._asked = time.monotonic()

    def next(self, *, hurry: bool) -> float:
        """The next pause. ``hurry``: the coordinator is about to come."""
        age_s = time.monotonic() - self._began
        if self._at_hand:
            return LOOK_S[age_s > EAGER_S]
        shortest_s, longest_s = AWAY_LOOK_S
        return min(max(shortest_s, age_s * AWAY_PART), longest_s / 4 if hurry else longest_s)

    def may_ask_why(self) -> bool:
        """Whether it is time to ask again why the job waits."""
        if self._at_hand or time.monotonic() - self._asked < WAITING_S:
            return False
        self._asked = time.monotonic()
        return True
