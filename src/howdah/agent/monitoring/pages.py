"""Web pages of one attempt, published only while its own processes listen where they are.

A port that a program has announced, or only reserved, is anybody's until the program listens on it
and again after that: who listens is looked up before the coordinator is told, and again and again
afterwards. A page that demands a secret demands the attempt's: a random token in a file of the
owner's alone, which the coordinator learns with the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any

from howdah.agent.container import ContainerContext
from howdah.agent.host.processes import HAS_PROC
from howdah.agent.host.socket_owners import listeners, serves
from howdah.agent.host.tcp_table import packed
from howdah.agent.monitoring.reports import Web
from howdah.wire.messages import Start, WebAddress, WebWithdrawn

PAGE_TOKEN = "page-token"
"""The token's file, in the container's folder."""
_FIRST_LOOK_S = 0.05
_LONGEST_LOOK_S = 1.0
_PATIENCE_S = 60.0
"""For a program to listen where it has announced a page, before readers are told that it does not."""
_MOST = 16
"""Pages of one attempt; more are not published."""
_TIMES = 20
"""A page that is published so often comes and goes: it is looked at once in a long while then."""
_EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - where programs say they listen


class Pages:
    """All of one attempt's."""

    def __init__(
        self,
        container: ContainerContext,
        start: Start,
        look: Callable[[], Collection[int]],
        watch: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        """``look`` gives the attempt's processes; ``watch`` runs what ends with the attempt."""
        self._container = container
        self._start = start
        self._look = look
        self._watch = watch
        self._loop = asyncio.get_running_loop()
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._published: dict[str, WebAddress] = {}
        self._token = secrets.token_urlsafe(32)
        self.token_file: str = ""
        """Where programs find the token; empty if it could not be written."""
        with contextlib.suppress(OSError):
            self.token_file = container.write_private(PAGE_TOKEN, self._token.encode())

    @property
    def published(self) -> tuple[WebAddress, ...]:
        return tuple(self._published.values())

    def keep(self, page: Web) -> None:
        """Publish the page while it is served; a page of the same name gives way to it."""
        if (former := self._watches.get(page.name)) is not None:
            former.cancel()
            self._withdraw(page.name)
        elif len(self._watches) >= _MOST:
            return
        self._watches[page.name] = self._watch(self._keep(page))

    def close(self) -> None:
        """The attempt's programs have ended: whatever listens now is not theirs."""
        for name in list(self._published):
            self._withdraw(name)
        if self.token_file:
            Path(self.token_file).unlink(missing_ok=True)

    async def _keep(self, page: Web) -> None:
        hosts = await self._hosts(page)
        pause = _FIRST_LOOK_S
        complain_at = self._loop.time() + _PATIENCE_S
        complained = False
        missed = times = 0
        while True:
            began = time.thread_time()
            host = next((each for each in hosts if serves(self._look, each, page.port)), None)
            published = page.name in self._published
            # A process that has just been forked may not have been seen: looked at once more.
            missed = 0 if host is not None else missed + 1
            if host is not None and not published:
                self._publish(page, host)
                times += 1
            elif missed > 1 and published:
                self._withdraw(page.name)
            elif missed > 1 and page.expected and not complained:
                other_users = [row.uid for each in hosts for row in listeners(each, page.port)]
                if other_users or self._loop.time() > complain_at:
                    self._complain(page, hosts, other_users)
                    complained = True
            if missed == 1 and published:
                continue
            # On a host with a huge table of sockets a look is dear: then less often.
            cost = time.thread_time() - began
            await asyncio.sleep(max(pause, cost * 100))
            pause = min(pause * 1.2, _LONGEST_LOOK_S if times < _TIMES else _PATIENCE_S)

    async def _hosts(self, page: Web) -> list[str]:
        """Numeric addresses where it may be: those of the name that the program gave, or the task's."""
        name = self._container.host if page.host in (None, *_EVERYWHERE) else str(page.host)
        if packed(name):
            return [name]
        with contextlib.suppress(OSError, UnicodeError):
            found = await self._loop.getaddrinfo(name, page.port)
            return list(dict.fromkeys(str(address[0]) for *_, address in found))
        return []

    def _publish(self, page: Web, host: str) -> None:
        token = self._token if self.token_file else ""
        address = WebAddress(
            task=self._start.task,
            attempt=self._start.attempt,
            name=page.name,
            host=host,
            port=page.port,
            path=page.path,
            keeps_prefix=page.keeps_prefix,
            secret=page.secret or token if page.locked else "",
            viewable=page.viewable,
            uid=os.getuid() if HAS_PROC else None,
        )
        self._published[page.name] = address
        self._container.say(address)

    def _withdraw(self, name: str) -> None:
        if self._published.pop(name, None) is not None:
            task, attempt = self._start.task, self._start.attempt
            self._container.say(WebWithdrawn(task=task, attempt=attempt, name=name))

    def _complain(self, page: Web, hosts: list[str], other_users: list[int]) -> None:
        where = " or ".join(f"{host}:{page.port}" for host in hosts) or f"{page.host!r}"
        if other_users:
            users = ", ".join(str(uid) for uid in sorted(set(other_users)))
            why = (
                f"a process of user {users} that is not the task's listens there; take another port"
            )
        else:
            why = "none of its processes listens there; bind $HOWDAH_HOST and the port announced"
        self._container.note(
            self._start, f"its page {page.name} at {where} is not published: {why}"
        )
