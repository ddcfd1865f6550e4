"""Tokens of file systems are prolonged while a job runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pytest

from howdah.backends.yarn.master import renewal
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import ConnectFailed, InvalidToken
from howdah.hadoop.namenode import NameNode
from howdah.hadoop.security import kms
from howdah.hadoop.security.credentials import HDFS_TOKEN, RM_TOKEN, Credentials, Token
from howdah.hadoop.security.login import Login
from howdah.hadoop.security.providers import TokenRequest
from tests.conformance.harness import eventually
from tests.hadoop.cluster import Cluster


def test_a_token_names_its_file_system() -> None:
    assert renewal.url("10.0.0.1:8020") == "hdfs://10.0.0.1:8020"
    assert renewal.url("ha-hdfs:Main") == "hdfs://Main"


def test_a_token_is_prolonged_and_a_cancelled_one_given_up(hadoop: Cluster) -> None:
    configuration = Configuration.load(hadoop.conf_dir)
    user = hadoop.site.user

    async def test() -> None:
        async with NameNode(configuration, user) as name_node:
            token = await name_node.delegation_token(user)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await renewal.keep(configuration, user, [token])
                    raise AssertionError("it goes on as long as the job")
            await name_node.cancel_token(token)
            async with asyncio.timeout(60.0):
                await renewal.keep(configuration, user, [token])
            try:
                await name_node.renew_token(token)
            except InvalidToken:
                return
            raise AssertionError("it was cancelled")

    asyncio.run(test())


class Services:
    """Two NameNodes, a ResourceManager and the first NameNode's KMS, whose tokens are good for a day."""

    KMS = "kms://http@keys:9600/kms"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dead: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.minted: Counter[str] = Counter()
        self.given: dict[str, Token] = {}
        """What the job has been given."""
        monkeypatch.setattr(renewal, "RETRY_S", 0.0)
        monkeypatch.setattr(renewal, "NameNode", self._client(HDFS_TOKEN))
        monkeypatch.setattr(renewal, "ResourceManager", self._client(RM_TOKEN))
        monkeypatch.setattr(kms, "tokens", self._of_kms)

    def mint(self, kind: str, service: str) -> Token:
        self.asked[service] += 1
        if service in self.dead:
            raise ConnectFailed(f"{service} is away")
        self.minted[service] += 1
        return Token(b"", b"", kind, service)

    def _of_kms(self, request: TokenRequest, providers: Iterable[str]) -> dict[str, Token]:
        return {each: self.mint(kms.KIND, each) for each in providers if each}

    def _client(self, kind: str) -> Callable[..., Any]:
        services = self

        class Client:
            def __init__(self, configuration: object, login: object, *, url: str = "") -> None:
                self.service = url.removeprefix("hdfs://") or "manager:8032"

            async def __aenter__(self) -> Self:
                return self

            async def __aexit__(self, *_: object) -> None:
                pass

            async def delegation_token(self, renewer: str) -> Token:
                return services.mint(kind, self.service)

            async def renew_token(self, token: Token) -> datetime:
                return datetime.now(UTC) + timedelta(days=1)

            async def key_provider(self) -> str:
                return services.KMS if self.service == "one:8020" else ""

        return Client

    async def replace(self, until: Callable[[], bool]) -> None:
        """Have the tokens of both NameNodes replaced until something is so."""

        def replaced(fresh: Credentials) -> None:
            self.given |= fresh.tokens

        tokens = [Token(b"", b"", HDFS_TOKEN, service) for service in ("one:8020", "two:8020")]
        replacing = asyncio.create_task(
            renewal.replace(Configuration({}), Login("ann"), tokens, replaced)
        )
        await eventually(lambda: until() or replacing.done(), "tokens are replaced", 10.0)
        replacing.cancel()
        await asyncio.gather(replacing, return_exceptions=True)


ALL = {"one:8020", "two:8020", "manager:8032", Services.KMS}


@pytest.mark.parametrize("dead", sorted(ALL))
def test_a_service_that_is_away_takes_no_other_s_token(
    monkeypatch: pytest.MonkeyPatch, dead: str
) -> None:
    services = Services(monkeypatch)
    services.dead = {dead}
    rest = ALL - {dead} - ({services.KMS} if dead == "one:8020" else set())

    asyncio.run(
        services.replace(lambda: services.asked[dead] >= 5 and services.given.keys() == rest)
    )

    assert services.minted == dict.fromkeys(rest, 1)


@pytest.mark.parametrize("dead", sorted(ALL))
def test_a_service_that_was_away_gives_its_token_as_soon_as_it_is_back(
    monkeypatch: pytest.MonkeyPatch, dead: str
) -> None:
    services = Services(monkeypatch)
    services.dead = {dead}

    def back() -> bool:
        if services.asked[dead] >= 3:
            services.dead.clear()
        return services.given.keys() == ALL

    asyncio.run(services.replace(back))

    assert services.minted == dict.fromkeys(ALL, 1)
