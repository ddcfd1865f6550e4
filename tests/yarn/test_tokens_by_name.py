"""A NameNode's token is in a job's credentials by its address and by the name that URLs give it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Self

import pytest

from howdah.backends.yarn.master import renewal
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.namenode import by_authority
from howdah.hadoop.security.credentials import HDFS_TOKEN, Credentials, Token
from howdah.hadoop.security.login import Login

CONFIGURATION = Configuration(
    {
        "fs.defaultFS": "hdfs://Head.example:9000",
        "dfs.nameservices": "main",
        "dfs.ha.namenodes.main": "a",
        "dfs.namenode.rpc-address.main.a": "10.0.0.1:8020",
    }
)


@pytest.mark.parametrize(
    ("url", "service", "expected"),
    [
        (None, "10.0.0.9:9000", "Head.example:9000"),
        ("hdfs://other.example/jobs", "10.0.0.8:8020", "other.example:8020"),
        ("hdfs://main/jobs", "ha-hdfs:main", "ha-hdfs:main"),
    ],
)
def test_a_token_is_known_by_what_the_url_says(
    url: str | None, service: str, expected: str
) -> None:
    token = Token(b"id", b"password", HDFS_TOKEN, service)
    assert by_authority(CONFIGURATION, token, url) == Token(
        b"id", b"password", HDFS_TOKEN, expected
    )


def test_a_new_token_replaces_the_old_one_by_both_names(monkeypatch: pytest.MonkeyPatch) -> None:
    class NameNode:
        def __init__(self, configuration: object, login: object, *, url: str) -> None:
            assert url == "hdfs://head.example:9000"

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def delegation_token(self, renewer: str) -> Token:
            return Token(b"new", b"", HDFS_TOKEN, "10.0.0.9:9000")

        async def renew_token(self, token: Token) -> datetime:
            return datetime.now(UTC) + timedelta(days=1)

        async def key_provider(self) -> str:
            return ""

    class NoManager(NameNode):
        def __init__(self, configuration: object, login: object) -> None:
            pass

    monkeypatch.setattr(renewal, "NameNode", NameNode)
    monkeypatch.setattr(renewal, "ResourceManager", NoManager)

    async def replaced_by(old: Token) -> dict[str, Token]:
        given: dict[str, Token] = {}
        both = asyncio.Event()

        def replaced(fresh: Credentials) -> None:
            given.update(fresh.tokens)
            if old.service in given:
                both.set()

        replacing = asyncio.create_task(
            renewal.replace(Configuration({}), Login("ann"), [old], replaced)
        )
        async with asyncio.timeout(60):
            await both.wait()
        replacing.cancel()
        await asyncio.gather(replacing, return_exceptions=True)
        return given

    given = asyncio.run(replaced_by(Token(b"old", b"", HDFS_TOKEN, "head.example:9000")))
    assert given["head.example:9000"].identifier == b"new"
    assert given["head.example:9000"].service == "head.example:9000"
