"""The YARN backend, in the application's master: containers of a Hadoop cluster.

Not guaranteed beyond `howdah.backends.base`: a container that was granted and not launched when its
master died is gone (YARN takes it back), and its request, asked for again, is granted anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from howdah.agent.launch import AgentLaunch, LogNames
from howdah.backends.base import (
    Backend,
    BackendAway,
    BackendError,
    PageReaders,
    Places,
    RoleResources,
)
from howdah.backends.yarn import container_paths, launch_context, records, secretfile
from howdah.backends.yarn.client import application_end, cluster_report
from howdah.backends.yarn.container_launch import ContainerLaunch
from howdah.backends.yarn.local_resources import FILE, KEYTAB, LocalResources
from howdah.backends.yarn.master import pending_containers, renewal
from howdah.backends.yarn.master.allocate_loop import AllocateLoop
from howdah.backends.yarn.master.container_table import Container, ContainerTable, Phase
from howdah.backends.yarn.master.nodes import LaunchFailed, Nodes
from howdah.backends.yarn.master.outstanding_requests import OutstandingRequests
from howdah.backends.yarn.master.pending_containers import PendingContainers
from howdah.backends.yarn.master.remote_directory import RemoteDirectory
from howdah.backends.yarn.master.view_acls import Groups, readers
from howdah.core.messages import (
    ContainerEndKind,
    ContainerGranted,
    ContainerRequest,
    Event,
    RequestRefused,
)
from howdah.core.state import Outcome
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import (
    ApplicationAttemptNotFound,
    HadoopError,
    InvalidToken,
    TransportError,
)
from howdah.hadoop.ids import ContainerId, Resource
from howdah.hadoop.protos import common, yarn
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.scheduler import FAILED, KILLED, SUCCEEDED, AnswerLost, Scheduler
from howdah.hadoop.security.credentials import AMRM_TOKEN, HDFS_TOKEN, TOKEN_FILE, Credentials
from howdah.hadoop.security.login import Login, login
from howdah.spec.model import Job
from howdah.spec.units import port_range
from howdah.storage import coordinator_ends
from howdah.storage.coordinator_ends import CoordinatorEnd
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress
from howdah.wire.addresses import AddressError, address_of
from howdah.wire.status import JobView

log: logging.Logger = logging.getLogger(__name__)

LEASE_MARGIN_S = 90.0
"""Over the time after which YARN gives a silent master up: for the next one to be started."""
CLOSE_S = 15.0
FORMER_S = 3.0
"""For the ResourceManager to tell how former masters ended: that is only for people to read."""
PATIENCE_S = 900.0
"""How long a ResourceManager that is away is waited for, if the cluster does not say."""
FOREVER_S = 365 * 86400.0
ROOM_S = 5.0
"""What room the nodes had so long ago they are taken to have still."""
ROOM_AGAIN_S = 60.0
"""Between questions for nodes that are not told, at most; the first one comes after `ROOM_S`."""
_PATIENCE = "yarn.resourcemanager.connect.max-wait.ms"
_EXPIRY = "yarn.am.liveness-monitor.expiry-interval-ms"
_HANDLER = "yarn.resourcemanager.placement-constraints.handler"
_WITH_PORT = "yarn.scheduler.include-port-in-node-name"
_PREEMPTION = "yarn.resourcemanager.monitor.capacity.preemption.max_wait_before_kill"
_STATUS = {Outcome.SUCCEEDED.value: SUCCEEDED, Outcome.STOPPED.value: KILLED}
_SUBMITTED = "APP_SUBMIT_TIME_ENV"
"""Milliseconds since the epoch, of every master (``ApplicationConstants``)."""
_DIAGNOSTICS_CHARS = 4000


class YarnBackend(Backend):
    """Implements `howdah.backends.base.Backend` for one job, in its application's master."""

    name = "yarn"
    lists_all = False

    def __init__(self, directory: JobDirectory, *, env: Mapping[str, str] = os.environ) -> None:
        """Everything comes from the container's environment and the job directory.

        Raises:
            BackendError: this is no container of a master, or the cluster's configuration cannot
                be used.
        """
        self._directory = directory
        try:
            self._configuration = Configuration.load(env=env)
            self._credentials = Credentials.from_environment(env)
            self.local_resources: LocalResources = msgspec.json.decode(
                (directory.path / FILE).read_bytes(), type=LocalResources
            )
        except (HadoopError, OSError, msgspec.DecodeError) as error:
            raise BackendError(f"This master cannot work: {error}") from error
        tokens = self._credentials.of_kind(AMRM_TOKEN)
        if not tokens:
            raise BackendError(
                "There is no AMRM token in the credential file: a job's coordinator on YARN is"
                " started by YARN, not by hand"
            )
        job = directory.job()
        self._acl, self._hadoop = job.acl, job.hadoop
        expiry_s = self._configuration.duration_s(_EXPIRY, 600.0)
        self.lease_s: float = expiry_s + LEASE_MARGIN_S
        self.host: str = env.get("NM_HOST") or "127.0.0.1"
        self.bind: str = "0.0.0.0"  # noqa: S104 - agents are on other machines; mTLS
        self._no_address = ""
        if (interface := job.network.interface) is not None:
            try:
                self.host = self.bind = address_of(interface)
            except AddressError as error:
                self._no_address = str(error)
        self.ports: tuple[int, int] = port_range(job.network.ports)
        self.page_readers: PageReaders = PageReaders()
        self.queue = ""
        self._with_port = self._configuration.boolean(_WITH_PORT)
        self._login = Login(self.local_resources.user, credentials=self._credentials)
        self._scheduler = Scheduler(self._configuration, self.local_resources.user, tokens[0])
        self._nodes = Nodes(self._configuration, self.local_resources.user)
        self._longest_s = expiry_s / 3
        patience_s = self._configuration.duration_s(_PATIENCE, PATIENCE_S)
        self._patience_s = patience_s if patience_s >= 0 else FOREVER_S
        self._container = _own_container(env)
        self._attempt = self._container.attempt.number if self._container is not None else 1
        # By the ResourceManager's clock, which also counts YARN's own time limit.
        submitted = env.get(_SUBMITTED, "")
        self.submitted: float | None = int(submitted) / 1000 if submitted.isdecimal() else None
        self._roles: Mapping[str, RoleResources] = {}
        self._containers: ContainerTable | None = None
        self._loop: AllocateLoop | None = None
        self._pending: PendingContainers | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._address: CoordinatorAddress | None = None
        self._final: JobView | None = None
        self._agent_secrets: dict[str, bytes] | None = None
        self._token_file = Path(env[TOKEN_FILE])
        self._renewed: asyncio.Queue[bytes] = asyncio.Queue()
        url = directory.meta().url
        self._remote = RemoteDirectory(url, directory.path) if url is not None else None
        self._gone = ""
        self._registered = False
        self._superseded = asyncio.Event()

    # -- the contract --------------------------------------------------------------------------

    def places(self, job: Job, directory: JobDirectory) -> Places:
        own = self._container
        return container_paths.places(
            job,
            self.local_resources,
            directory.meta().url or str(directory.path),
            str(own.attempt.application) if own is not None else "",
        )

    async def announce(self, address: CoordinatorAddress) -> None:
        self._address = address
        if self._remote is not None:
            self._remote.announce(address)
        if self._loop is not None and address.http_port:
            self._loop.track(f"http://{address.host}:{address.http_port}/")

    async def start(
        self, roles: Mapping[str, RoleResources], emit: Callable[[Event], None]
    ) -> Sequence[str]:
        self._roles = roles
        answer = await self._register()
        if self._no_address:
            raise BackendError(self._no_address)
        if self._attempt == 1 and answer.HasField("maximumCapability"):
            # A ResourceManager that has just started gives no more than the nodes it has seen.
            self._refuse_impossible(Resource.from_proto(answer.maximumCapability))
        self.page_readers, _ = await asyncio.gather(
            asyncio.to_thread(
                readers,
                self._configuration,
                self._acl,
                self.local_resources.user,
                self.host,
                Groups(self._configuration, self._directory.meta().url, lambda: self._login),
            ),
            self._note_former_ends(),
        )
        handler = self._configuration.get(_HANDLER, "disabled")
        # The Fair Scheduler refuses every call with such a request, whatever the handler.
        takes = handler not in ("", "disabled") and not cluster_report.is_fair(self._configuration)
        requests = OutstandingRequests(roles, constraints=takes)

        def told(event: Event) -> None:
            emit(event)
            if isinstance(event, ContainerGranted) and requests.lacks_racks:
                self._look_for_room()  # it came from a node that has joined since

        self._containers = ContainerTable(
            requests,
            roles,
            self._nodes,
            told,
            self._wake,
            attempt=self._attempt,
            with_port=self._with_port,
            notice_s=self._configuration.duration_s(_PREEMPTION, 15.0),
        )
        self._pending = PendingContainers(self._configuration, self.queue, roles)
        if any(role.placement.near or role.placement.pack for role in roles.values()):
            await self._find_room(pending_containers.ANSWER_S)  # before any comes from anywhere
        self._containers.take_over(answer)
        self._loop = AllocateLoop(
            self._scheduler,
            requests,
            roles,
            self._containers,
            longest_s=self._longest_s,
            superseded=self._end_superseded,
        )
        self._loop.start()
        self._renewing = asyncio.create_task(self._renew(), name="token renewal")
        return self._containers.held()

    async def request(
        self, requests: Sequence[ContainerRequest], avoid_nodes: Sequence[str]
    ) -> None:
        table = self._begun()
        table.requests.avoid(avoid_nodes)
        roles = {request.request_id: request.role for request in requests}
        for request_id in table.requests.add(requests):
            reason = f"the job has no role {roles[request_id]!r}"
            table.emit_soon(RequestRefused(request_id=request_id, reason=reason))
        self._wake()
        if requests:
            self._look_for_room()

    async def waiting(self) -> str:
        table, pending = self._containers, self._pending
        if table is None or pending is None:
            return ""
        requests = table.requests
        return await pending.words(
            self._login, requests.missing(), table.headroom, requests.only_on()
        )

    async def cancel(self, request_ids: Sequence[int]) -> None:
        self._begun().requests.cancel(request_ids)
        self._wake()

    async def launch(self, container_id: str, launch: AgentLaunch) -> None:
        table = self._begun()
        container = table.get(container_id)
        if container is None or container.phase is not Phase.GRANTED or container.token is None:
            return
        container.launched = True
        table.enter(container, Phase.LAUNCHED)
        try:
            request = self._start_request(container, launch)
            await self._nodes.start(container.node, container.id, request)
        except (LaunchFailed, BackendError, OSError) as error:
            log.warning("%s could not be launched: %s", container_id, error)
            table.requests.release(container_id)
            if isinstance(error, LaunchFailed) and error.uncertain:
                table.confirm(container, ContainerEndKind.LAUNCH_FAILED, str(error))
            else:
                table.ended(container, ContainerEndKind.LAUNCH_FAILED, str(error))
            self._wake()

    async def release(self, container_id: str) -> None:
        table = self._begun()
        container = table.get(container_id)
        if container is None:
            table.unwanted(container_id)
            return
        if container.ending:
            return
        if container.phase is Phase.GRANTED:
            table.release(container)
            return
        table.enter(container, Phase.STOPPING)
        if not await self._nodes.is_there(container.node):
            # YARN gives a node up after ten minutes. With its agent this is the node's end now.
            table.requests.release(container_id)
            words = f"the NodeManager at {container.node} does not answer"
            table.ended(container, ContainerEndKind.NODE_LOST, words, proven=False)
        elif await self._nodes.stop(container.node, [container.id]):
            table.release(container)
        self._wake()

    async def finished(self, view: JobView) -> None:
        self._final = view
        if self._remote is not None:
            await self._remote.finish()
            if self.local_resources.keytab is not None:
                # Job directories stay; a key that nobody needs any more does not.
                await asyncio.to_thread(self._remote.forget, KEYTAB)

    async def credentials(self) -> bytes:
        return await self._renewed.get()

    async def close(self) -> None:
        if self._containers is not None:
            await asyncio.gather(*(self.release(each) for each in self._containers.held()))
            await self._containers.all_ended(CLOSE_S)
        if self._loop is not None:
            await self._loop.stop()
        if not self._gone:
            await self._unregister()
        await self.disconnect()

    async def superseded(self) -> str:
        await self._superseded.wait()
        return self._gone

    async def disconnect(self) -> None:
        """Let go without an end: another master takes over."""
        if self._loop is not None:
            await self._loop.stop()
        for task in (self._renewing, self._looking):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._containers is not None:
            await self._containers.close()
        await self._nodes.close()
        await self._scheduler.close()

    # -- the beginning ---------------------------------------------------------------------------

    async def _register(self) -> yarn.RegisterApplicationMasterResponseProto:
        port = self._address.port if self._address is not None else -1
        try:
            answer = await self._scheduler.register(self.host, port, "", timeout_s=self._patience_s)
        except AnswerLost as error:
            if self._attempt > 1:
                raise BackendAway(
                    f"Another master is needed, which is told of the job's containers anew: {error}"
                ) from error
            answer = yarn.RegisterApplicationMasterResponseProto()  # there are none yet
        except (TransportError, InvalidToken, ApplicationAttemptNotFound) as error:
            raise BackendAway(f"The ResourceManager does not take this master: {error}") from error
        except HadoopError as error:
            kind = BackendError if self._attempt == 1 else BackendAway
            raise kind(f"The ResourceManager does not take this master: {error}") from error
        self._registered = True
        for token in answer.nm_tokens_from_previous_attempts:
            self._nodes.use_token(token)
        self.queue = answer.queue
        return answer

    def _refuse_impossible(self, largest: Resource) -> None:
        problems = [
            f"role {name} asks for {wanted} in a container"
            for name, resources in self._roles.items()
            if not (wanted := records.resource(resources)).fits(largest)
        ]
        if problems:
            raise BackendError(
                f"YARN never gives so large a container: {'; '.join(problems)}. The largest is"
                f" {largest} (yarn.scheduler.maximum-allocation-*, yarn.io/gpu of any node)"
            )

    async def _renew(self) -> None:
        tokens = self._credentials.of_kind(HDFS_TOKEN)
        if self.local_resources.keytab is None:
            return await renewal.keep(self._configuration, self.local_resources.user, tokens)
        while True:
            try:
                who = await asyncio.to_thread(
                    login,
                    self._configuration,
                    {},
                    principal=self.local_resources.principal,
                    keytab=KEYTAB,
                )
            except HadoopError as error:
                log.warning("no login with the keytab yet: %s", error)
                await asyncio.sleep(renewal.RETRY_S)
                continue
            return await renewal.replace(self._configuration, who, tokens, self._use)

    def _use(self, fresh: Credentials) -> None:
        """New tokens: for this process, for containers to come, and for those there are."""
        self._credentials = self._credentials.merged(fresh)
        try:
            self._credentials.write(self._token_file)
        except OSError as error:
            log.warning("new tokens cannot be written to %s: %s", self._token_file, error)
        self._login = dataclasses.replace(self._login, credentials=self._credentials)
        self._renewed.put_nowait(self._for_agents())

    async def _note_former_ends(self) -> None:
        """Write down how former masters ended that could not say so themselves: killed, without
        memory, with their node. Where the ResourceManager lets a master ask as a client does."""
        if self._container is None or self._attempt == 1:
            return
        noted = {end.who for end in coordinator_ends.read(self._directory.path)}
        policy = RetryPolicy(max_wait_s=FORMER_S, try_timeout_s=FORMER_S)
        try:
            async with (
                asyncio.timeout(FORMER_S),
                ResourceManager(self._configuration, self._login, retry=policy) as manager,
            ):
                attempts = await manager.attempts(self._container.attempt.application)
        except (HadoopError, TimeoutError) as error:
            log.info("how former masters ended is not told: %s", error)
            return
        for report in attempts:
            who = str(ContainerId.from_proto(report.am_container_id))
            if who in noted or report.application_attempt_id.attemptId >= self._attempt:
                continue
            end = CoordinatorEnd(
                who=who,
                reason=application_end.of_attempt(report.diagnostics),
                time=report.finishTime / 1000 or time.time(),
            )
            with contextlib.suppress(OSError):
                coordinator_ends.write(self._directory.path, end)

    def _look_for_room(self) -> None:
        """Have what is outstanding asked for where there is room for it, as soon as the nodes are told."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._until_room_is_found(), name="room on nodes")

    async def _until_room_is_found(self) -> None:
        requests = self._begun().requests
        pause_s, answer_s = ROOM_S, pending_containers.ANSWER_S
        try:
            while not await self._find_room(answer_s) and requests.outstanding:
                await asyncio.sleep(pause_s)
                pause_s, answer_s = (min(2 * each, ROOM_AGAIN_S) for each in (pause_s, answer_s))
        finally:
            self._looking = None

    async def _find_room(self, answer_s: float) -> bool:
        """Whether all nodes that are to be asked for by name were told within so long."""
        assert self._pending is not None
        cluster, queue = await self._pending.figures(self._login, ROOM_S, answer_s)
        requests = self._begun().requests
        if cluster is None:
            return False
        requests.nodes_are(
            {
                node.host if self._with_port else node.host.rpartition(":")[0]: node
                for node in cluster.nodes
            },
            rounded=cluster.rounded,
            default_label=queue.default_label if queue is not None else "",
        )
        self._wake()
        return not requests.lacks_racks

    def _start_request(
        self, container: Container, launch: AgentLaunch
    ) -> yarn.StartContainerRequestProto:
        assert self._address is not None
        assert container.token is not None
        launch = msgspec.structs.replace(
            launch,
            coordinator_file=None,
            coordinators=((self._address.host, self._address.port),),
            log_names=LogNames.FLAT,
            log_store=self._directory.meta().url,
            last_lines=True,
            counts_itself=True,
            listen=True,
        )
        request = yarn.StartContainerRequestProto(
            container_launch_context=launch_context.agent(
                self.local_resources,
                container.role,
                self._roles[container.role],
                # Their environment is copied into logs of the node.
                self.container_launch(msgspec.structs.replace(launch, secret="")),
                self._for_agents(launch.secret),
                self._acl,
                self._hadoop,
            )
        )
        request.container_token.CopyFrom(common.TokenProto.FromString(container.token))
        return request

    def _for_agents(self, secret: str = "") -> bytes:
        """An agent's credential file. One that replaces it needs no secret of the container: its agent
        has it."""
        if self._agent_secrets is None:
            self._agent_secrets = secretfile.of_folder(self._directory.secrets, secretfile.AGENT)
        own = {secretfile.CONTAINER: secret.encode()} if secret else {}
        return launch_context.for_agents(self._credentials, self._agent_secrets | own)

    def container_launch(self, launch: AgentLaunch) -> ContainerLaunch:
        """What the container's first process is told; tests have it start something else."""
        return ContainerLaunch(launch=launch, python=self.local_resources.python)

    # -- the end ---------------------------------------------------------------------------------

    async def _unregister(self) -> None:
        view = self._final
        status = FAILED if view is not None else SUCCEEDED
        words = ""
        if view is not None:
            status = _STATUS.get(view.outcome or "", FAILED)
            words = "\n".join(filter(None, (view.reason, view.advice)))[:_DIAGNOSTICS_CHARS]
        try:
            if not self._registered:
                await self._register()
            if not await self._scheduler.finish(
                status, diagnostics=words, timeout_s=self._patience_s
            ):
                log.error("the ResourceManager did not confirm the end of the application")
        except (HadoopError, BackendError, BackendAway) as error:
            log.error("the end could not be told to the ResourceManager: %s", error)

    def _end_superseded(self, reason: str) -> None:
        self._gone = reason
        self._superseded.set()

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.wake()

    def _begun(self) -> ContainerTable:
        assert self._containers is not None, "start comes first"
        return self._containers


def _own_container(env: Mapping[str, str]) -> ContainerId | None:
    """The master's own; its name has the number of the application attempt."""
    container = env.get("CONTAINER_ID")
    return ContainerId.parse(container) if container else None
