"""`HowdahCluster` before it starts anything; tests/programs has it with workers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

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


class Handle:
    """Stands in for a worker's job."""

    def __init__(self, *answers: str | Exception | None) -> None:
        self.answers = list(answers)

    def ended(self) -> str | None:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_lost_worker_is_forgotten_when_its_job_ends_however_long_that_takes() -> None:
    from distributed.core import Status

    from howdah.integrations.dask import HowdahCluster, HowdahWorker
    from howdah.spec.model import Job, Role

    async def test() -> None:
        cluster = HowdahCluster(asynchronous=True)
        later: list[Callable[[], None]] = []
        loop = asyncio.get_running_loop()
        loop.call_later = lambda _, call: later.append(call)  # type: ignore[method-assign]
        address = "tcp://node:1"
        worker = HowdahWorker("tcp://here:1", 0, job=Job(), role=Role(), backend="local")
        worker._handle = Handle(None, None, OSError("no ResourceManager answers"), "failed")
        cluster.workers[0] = worker

        def joins() -> None:
            cluster.scheduler_info["workers"] = {address: {"name": 0}}

        def is_lost() -> None:
            cluster._update_worker_status("remove", address)

        async def some_time_passes() -> None:
            [call] = later
            later.clear()
            call()
            await asyncio.gather(*cluster._futures)

        joins()
        is_lost()
        await some_time_passes()
        joins()  # started again by its job
        await some_time_passes()
        assert not later and cluster.workers == {0: worker}
        is_lost()
        await some_time_passes()
        await some_time_passes()
        assert cluster.workers == {0: worker}
        await some_time_passes()
        assert not later and cluster.workers == {}
        cluster.workers[0] = worker
        joins()
        is_lost()
        cluster.status = Status.closing
        await some_time_passes()
        assert not later

    asyncio.run(test())


class WorkersJob:
    """Stands in for a worker's job that has ended or never does."""

    job_id = "dask-0"

    def __init__(self, outcome: str | None) -> None:
        self.outcome = outcome

    def ended(self) -> str | None:
        return self.outcome

    async def stop(self, reason: str) -> None:
        self.outcome = "stopped"


def test_workers_that_never_came_up_are_started_anew_by_the_next_scale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import dask

    from howdah.integrations.dask import HowdahCluster, aio

    jobs: list[WorkersJob | None] = []

    async def submit(job: object, backend: str) -> WorkersJob:
        jobs.append(None if not jobs else WorkersJob("failed" if len(jobs) < 3 else None))
        if jobs[-1] is None:
            raise OSError("no ResourceManager answers")
        return jobs[-1]

    monkeypatch.setattr(aio, "submit", submit)

    async def test() -> None:
        async with HowdahCluster(asynchronous=True, backend="local") as cluster:
            cluster.scale(3)
            while len(jobs) < 3:
                await asyncio.sleep(0.01)
            while len(jobs) < 6 or set(cluster.workers) != {0, 1, 2}:
                cluster.scale(3)
                await asyncio.sleep(0.01)
        assert [job.outcome for job in jobs[3:] if job] == ["stopped"] * 3

    with dask.config.set({"distributed.deploy.lost-worker-timeout": "10ms"}):
        asyncio.run(asyncio.wait_for(test(), 60))
