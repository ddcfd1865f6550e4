"""A Dask cluster whose workers are Howdah's: `HowdahCluster`, for notebooks and programs.

    from howdah.integrations.dask import HowdahCluster

    with HowdahCluster(cores=2, memory="4g", backend="yarn") as cluster:
        cluster.adapt(minimum=1, maximum=20)
        client = cluster.get_client()

The scheduler runs in your own process, as in dask-jobqueue: it ends with it, and nodes must be able to
reach it. Each worker is a job of its own, so workers come and go by themselves, and one that dies is
started again.

Needs `distributed`, here and in the workers' environment; both must be of the same version, as ever in Dask.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

from dask.config import get as dask_setting
from dask.utils import parse_timedelta
from distributed.core import Status
from distributed.deploy.cluster import Cluster
from distributed.deploy.spec import ProcessInterface, SpecCluster
from distributed.scheduler import Scheduler
from msgspec.structs import replace

from howdah import aio
from howdah.backends import registry
from howdah.client.submission.begin import default_backend
from howdah.frameworks.dask import worker_command
from howdah.spec.model import Job, Mode, Restart, Role

log: logging.Logger = logging.getLogger(__name__)


class HowdahWorker(ProcessInterface):
    """One worker: a job of one task."""

    def __init__(
        self,
        scheduler: str,
        name: str | int | None = None,
        *,
        job: Job,
        role: Role,
        backend: str | None,
        security: Any = None,
    ) -> None:
        super().__init__(scheduler=scheduler, name=name)
        command = worker_command(role, name=f'"{name}"')
        env = {**role.env, "DASK_SCHEDULER_ADDRESS": scheduler}
        role = replace(role, command=command, env=env, instances=1, ports=2, restart=Restart.TASK)
        self._job = replace(
            job,
            name=f"{job.name}-{name}",
            framework="command",
            mode=Mode.GANG,
            command=None,
            roles={"worker": role},
        )
        self._backend = backend
        self._handle: Any = None

    async def start(self) -> None:
        try:
            self._handle = await aio.submit(self._job, backend=self._backend)
        except BaseException:
            self.status = Status.failed
            raise
        await super().start()

    def ended(self) -> bool:
        """Whether its job has ended for good, or never began."""
        return self._handle is None or self._handle.ended() is not None

    async def close(self) -> None:
        if not self.ended():
            try:
                await self._handle.stop("its Dask cluster no longer needs it")
            except Exception as error:  # the cluster goes on closing the others
                log.warning("worker %s could not be stopped: %s", self._handle.job_id, error)
        await super().close()


class HowdahCluster(SpecCluster):
    """Workers of Dask as Howdah's jobs, as many as `scale` or `adapt` asks for.

    Args:
        n_workers: how many to begin with.
        cores: threads of each worker.
        memory: of each worker, such as ``"4g"``.
        backend: where they run; as `howdah.submit` has it: None for ``HOWDAH_BACKEND``, the site file's, or
            this machine.
        host: the address of this machine that workers reach; by default that of its name, and
            ``127.0.0.1`` for workers on this machine.
        job: what all workers have in common besides: ``env``, ``environment``, ``queue``.
        role: the same for their role: ``gpus``, ``label``.
        kwargs: for Dask's `SpecCluster`: ``name``, ``asynchronous``.
    """

    def __init__(
        self,
        n_workers: int = 0,
        *,
        cores: int | None = None,
        memory: str | None = None,
        backend: str | None = None,
        host: str | None = None,
        job: Job | None = None,
        role: Role | None = None,
        **kwargs: Any,
    ) -> None:
        role = role or Role()
        if cores is not None:
            role = replace(role, cores=cores)
        if memory is not None:
            role = replace(role, memory=memory)
        if host is None:
            host = (
                "127.0.0.1"
                if registry.runs_here(backend or default_backend())
                else socket.gethostname()
            )
        options = {"job": job or Job(name="dask"), "role": role, "backend": backend}
        super().__init__(
            scheduler={
                "cls": Scheduler,
                "options": {"host": host, "dashboard_address": f"{host}:0"},
            },
            worker={"cls": HowdahWorker, "options": options},
            **kwargs,
        )
        if n_workers:
            self.scale(n_workers)

    async def _correct_state_internal(self) -> None:
        """As `SpecCluster` has it, which keeps workers that could not be started, and those that end
        before its scheduler knows them: the next `scale` would make no others."""
        before = dict(self.workers)
        try:
            await super()._correct_state_internal()
        finally:
            for name, worker in list(self.workers.items()):
                if worker.status == Status.failed:
                    del self.workers[name]
                elif before.get(name) is not worker:
                    self._watch(name)

    def _update_worker_status(self, op: str, msg: Any) -> None:
        """As `SpecCluster` has it, which closes a worker that is lost for some time: here the job of one
        that still runs starts it again."""
        if op != "remove":
            super()._update_worker_status(op, msg)
            return
        name = self.scheduler_info["workers"][msg]["name"]
        Cluster._update_worker_status(self, op, msg)
        self._watch(name)

    def _watch(self, name: str | int) -> None:
        """Until the scheduler knows the worker, look whether its job has ended, and forget it then."""
        worker = self.workers.get(name)
        delay = parse_timedelta(dask_setting("distributed.deploy.lost-worker-timeout"))
        loop = asyncio.get_running_loop()

        async def forget() -> None:
            known = any(each["name"] == name for each in self.scheduler_info["workers"].values())
            if (
                not isinstance(worker, HowdahWorker)
                or self.workers.get(name) is not worker
                or known
                or self.status in (Status.closing, Status.closed)
            ):
                return
            try:
                ended = await asyncio.to_thread(worker.ended)
            except Exception as error:  # such as a cluster that does not answer now
                log.warning("whether the job of worker %s has ended is not known: %s", name, error)
                ended = False
            if not ended:
                loop.call_later(delay, look)
            elif self.workers.get(name) is worker:
                del self.workers[name]  # the next `scale` makes another
                worker.status = Status.failed

        def look() -> None:
            task = loop.create_task(forget())
            self._futures.add(task)
            task.add_done_callback(self._futures.discard)

        loop.call_later(delay, look)
