"""`HowdahCluster` before it starts anything; tests/programs has it with workers."""

from __future__ import annotations

import asyncio
import socket

import pytest

pytest.importorskip("distributed")


@pytest.mark.parametrize("backend", ["local", "yarn"])
def test_the_scheduler_listens_where_workers_of_the_environments_backend_reach_it(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from howdah.integrations.dask import HowdahCluster

    monkeypatch.setenv("HOWDAH_BACKEND", backend)
    monkeypatch.setattr(socket, "gethostname", lambda: "edge")

    async def host() -> str:
        spec = HowdahCluster(asynchronous=True).scheduler_spec
        assert spec is not None
        return spec["options"]["host"]

    assert asyncio.run(host()) == ("127.0.0.1" if backend == "local" else "edge")
