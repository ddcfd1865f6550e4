"""What Hadoop's servers answer, and files that they write: logs, credentials."""

from __future__ import annotations

import asyncio
import atexit
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from howdah.backends.base import RoleResources
from howdah.backends.yarn import secretfile
from howdah.backends.yarn.client import cluster_report
from howdah.backends.yarn.client.application_end import of_attempt
from howdah.backends.yarn.master.container_table import ContainerTable
from howdah.backends.yarn.master.nodes import Nodes
from howdah.backends.yarn.master.outstanding_requests import OutstandingRequests
from howdah.hadoop.address import Address
from howdah.hadoop.aggregated import AggregatedLogs, javaserial
from howdah.hadoop.aggregated.source import LogFormatError
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import HadoopError
from howdah.hadoop.frames import Call, FrameReader, parse_response, read_varint
from howdah.hadoop.ids import ApplicationId, AttemptId, ContainerId, NodeId, Resource
from howdah.hadoop.namenode import NameNode
from howdah.hadoop.nodemanager import NodeManager
from howdah.hadoop.protos import common, hdfs, yarn
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.hadoop.rpc import RpcClient
from howdah.hadoop.scheduler import Scheduler
from howdah.hadoop.security.credentials import Credentials, CredentialsError, Format, Token
from tests.fuzz.target import Target, in_file

_SAMPLES = Path(__file__).with_name("samples")
_SITE = Configuration(
    {
        "fs.defaultFS": "hdfs://127.0.0.1:8020",
        "yarn.resourcemanager.hostname": "127.0.0.1",
        "yarn.nodemanager.remote-app-log-dir": "/logs",
    }
)
_APP = ApplicationId(1_700_000_000_000, 7)
_CONTAINER = ContainerId(AttemptId(_APP, 1), 2, 3)


# -- calls -------------------------------------------------------------------------------------


class _Answers(RpcClient):
    """A client whose server answers each call with these bytes."""

    data = b""

    def __init__(self) -> None:
        super().__init__([Address("127.0.0.1", 1)], "protocol", "user")

    async def _try(
        self, call: Call, deadline: float, try_timeout_s: float | None, parts: int = 1
    ) -> bytes:
        return self.data


class _NoNodes(Nodes):
    """Asks no node for anything."""

    async def end(self, node: NodeId, container: ContainerId, *, forgotten: bool = False) -> bool:
        return True


class _Asked(NamedTuple):
    """A good answer, and what is asked to get one like it."""

    answer: Any
    ask: Callable[[], Awaitable[Any]]


_RPC = _Answers()
_TOKEN = Token(identifier=b"i", password=b"p", kind="K", service="127.0.0.1:1")
_MANAGER = ResourceManager(_SITE, "user")
_NODE = NodeManager(_SITE, NodeId("127.0.0.1", 1), "user", _TOKEN)
_NAMES = NameNode(_SITE, "user")
_MASTER = Scheduler(_SITE, "user", _TOKEN)
for _service in (_MANAGER, _NODE, _NAMES, _MASTER):
    _service.rpc = _RPC


def _table() -> ContainerTable:
    roles = {"worker": RoleResources(memory_mb=64, cores=1)}
    requests = OutstandingRequests(roles)
    return ContainerTable(
        requests,
        roles,
        _NoNodes(_SITE, "user"),
        lambda event: None,
        lambda: None,
        attempt=2,
        with_port=True,
        notice_s=1.0,
    )


async def _beat() -> None:
    table = _table()
    for _ in range(2):  # what the first answer brings, the second one speaks of
        table.answered(await _MASTER.allocate())
    await table.close()


async def _registered() -> None:
    answer = await _MASTER.register("127.0.0.1", 1, "")
    table = _table()
    table.take_over(answer)
    table.registered_again(answer)


async def _ended() -> None:
    of_attempt((await _MANAGER.application_report(_APP)).diagnostics)


def _allocated() -> yarn.AllocateResponseProto:
    answer = yarn.AllocateResponseProto(response_id=1, limit=Resource(64, 1).to_proto())
    answer.nm_tokens.add(nodeId=_NODE.node.to_proto(), token=_TOKEN.to_proto())
    for which in (answer.allocated_containers, answer.containers_from_previous_attempts):
        given = which.add(id=_CONTAINER.to_proto(), nodeId=_NODE.node.to_proto())
        given.resource.CopyFrom(Resource(64, 1, {"yarn.io/gpu": 1}).to_proto())
        given.priority.priority = 1
    answer.completed_container_statuses.add(
        container_id=_CONTAINER.to_proto(), exit_status=-104, diagnostics="beyond its limit"
    )
    answer.updated_nodes.add(nodeId=_NODE.node.to_proto(), decommissioning_timeout=5)
    answer.preempt.contract.container.add(id=_CONTAINER.to_proto())
    answer.am_rm_token.CopyFrom(_TOKEN.to_proto())
    return answer


def _report() -> yarn.GetApplicationReportResponseProto:
    report = yarn.ApplicationReportProto(
        applicationId=_APP.to_proto(),
        user="user",
        queue="root.default",
        name="digits",
        diagnostics="AM Container for appattempt_1_0001_000001 exited with  exitCode: 75",
        startTime=1,
        finishTime=2,
        trackingUrl="http://127.0.0.1:1/",
    )
    report.applicationTags.append("howdah")
    return yarn.GetApplicationReportResponseProto(application_report=report)


def _nodes() -> yarn.GetClusterNodesResponseProto:
    answer = yarn.GetClusterNodesResponseProto()
    answer.nodeReports.add(
        nodeId=_NODE.node.to_proto(),
        rackName="/r",
        capability=Resource(64, 1, {"yarn.io/gpu": 2}).to_proto(),
        used=Resource(64, 1).to_proto(),
        health_report="well",
        node_labels=["gpu"],
    )
    return answer


def _queue() -> yarn.GetQueueInfoResponseProto:
    answer = yarn.GetQueueInfoResponseProto()
    info = answer.queueInfo
    info.queueName, info.queuePath, info.capacity = "root", "root", 1.0
    below = info.childQueues.add(queueName="default", queuePath="root.default", capacity=0.5)
    below.accessibleNodeLabels.append("gpu")
    return answer


async def _queue_told() -> None:
    if (root := await _MANAGER.queue("root")) is not None:
        tuple(cluster_report.queues(root))


def _statuses() -> yarn.GetContainerStatusesResponseProto:
    answer = yarn.GetContainerStatusesResponseProto()
    answer.status.add(container_id=_CONTAINER.to_proto(), diagnostics="d", exit_status=1)
    failed = answer.failed_requests.add(container_id=_CONTAINER.to_proto())
    failed.exception.class_name = "org.apache.hadoop.yarn.exceptions.YarnException"
    failed.exception.message = "no"
    failed.exception.cause.message = "why"
    return answer


_ASKED = [
    _Asked(_allocated(), _beat),
    _Asked(
        yarn.RegisterApplicationMasterResponseProto(
            containers_from_previous_attempts=_allocated().allocated_containers,
            nm_tokens_from_previous_attempts=_allocated().nm_tokens,
        ),
        _registered,
    ),
    _Asked(_report(), _ended),
    _Asked(_nodes(), lambda: cluster_report.look(_MANAGER, "user")),
    _Asked(_queue(), _queue_told),
    _Asked(_statuses(), lambda: _NODE.statuses([_CONTAINER])),
    _Asked(
        yarn.GetNewApplicationResponseProto(
            application_id=_APP.to_proto(), maximumCapability=Resource(64, 1).to_proto()
        ),
        _MANAGER.new_application,
    ),
    _Asked(
        common.GetDelegationTokenResponseProto(token=_TOKEN.to_proto()),
        lambda: _MANAGER.delegation_token("yarn"),
    ),
    _Asked(
        common.RenewDelegationTokenResponseProto(newExpiryTime=1_700_000_000_000),
        lambda: _MANAGER.renew_token(_TOKEN),
    ),
    _Asked(hdfs.GetFsStatsResponseProto(capacity=1, used=1), _NAMES.fs_stats),
    _Asked(
        hdfs.GetEZForPathResponseProto(
            zone=hdfs.EncryptionZoneProto(id=1, path="/zone", keyName="lock")
        ),
        lambda: _NAMES.encryption_zone("/zone/jobs"),
    ),
    _Asked(
        hdfs.GetServerDefaultsResponseProto(
            serverDefaults=hdfs.FsServerDefaultsProto(keyProviderUri="kms://http@one:9600/kms")
        ),
        _NAMES.key_provider,
    ),
]
"""Messages by the number that an input begins with."""
_LOOP = asyncio.new_event_loop()
atexit.register(_LOOP.close)


def _answer(data: bytes) -> None:
    if data:
        _RPC.data = data[1:]
        _LOOP.run_until_complete(_ASKED[data[0] % len(_ASKED)].ask())


# -- frames, files -----------------------------------------------------------------------------


def _rpc(data: bytes) -> None:
    for answer in FrameReader(1 << 20).feed(data):
        parse_response(answer)


def _rpc_answers() -> list[bytes]:
    header = common.RpcResponseHeaderProto(callId=3, status=0, serverIpcVersionNum=9)
    packed = header.SerializeToString()
    body = bytes([len(packed)]) + packed + b"\x02\x08\x01"
    return [struct.pack(">I", len(body)) + body]


def _credentials() -> list[bytes]:
    token = Token(identifier=b"i" * 20, password=b"p" * 20, kind="K", service="s:1")
    held = Credentials(tokens={"a": token}, secrets={"b": b"c", "howdah.token": b"t"})
    return [held.to_bytes(kind) for kind in Format]


class _OneFile:
    """A file system that has one file of aggregated logs."""

    data = b""

    def files(self, folder: str) -> dict[str, int]:
        return {"host_1": len(self.data)} if folder == "/logs" else {}

    def read(self, path: str, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


def _logs(data: bytes, app: str) -> None:
    files = _OneFile()
    files.data = data
    logs = AggregatedLogs(_SITE, files)
    for log in logs.logs_in("/logs", "host_1", ApplicationId.parse(app), files.files("/logs")):
        for _ in logs.read(log, 0, 1 << 20):
            pass


_JAVA = b"\xac\xed\x00\x05" + b"sr\x00\x01A" + b"\0" * 8 + b"\x02\0\x01I\0\x01xxp\0\0\0\x05"
# Files of real NodeManagers, one application's each, as they are and with gzip inside.
_TFILES = [(_SAMPLES / f"TFile-{how}.bin").read_bytes() for how in ("none", "gz")]
_INDEXED = {
    "application_1795413065560_0001": (_SAMPLES / "IFile-none.bin").read_bytes(),
    "application_1795413043169_0001": (_SAMPLES / "IFile-gz.bin").read_bytes(),
}


def _indexed(data: bytes) -> None:
    for app in _INDEXED:
        _logs(data, app)


HADOOP: dict[str, Target] = {
    "hadoop-rpc": Target(_rpc_answers(), _rpc, (HadoopError,)),
    "hadoop-varint": Target([b"\x80\x01"], lambda data: read_varint(data, 0), (HadoopError,)),
    "hadoop-answers": Target(
        [
            bytes([number]) + asked.answer.SerializePartialToString()
            for number, asked in enumerate(_ASKED)
        ],
        _answer,
        (HadoopError,),
        (b"\x0a", b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        0.6,
    ),
    "credentials": Target(_credentials(), Credentials.read, (CredentialsError,)),
    "secret-file": Target(
        _credentials(), in_file("i/container_tokens", secretfile.read), (ValueError,)
    ),
    "java-serial": Target([_JAVA], javaserial.loads, (LogFormatError,), (b"\x71\0\x7e\0\0",)),
    "logs-tfile": Target(
        _TFILES, lambda data: _logs(data, "application_1_0001"), (LogFormatError,)
    ),
    "logs-indexed": Target(
        list(_INDEXED.values()), _indexed, (LogFormatError,), (b"\x71\0\x7e\0\0",)
    ),
}
