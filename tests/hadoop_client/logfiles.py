"""Applications that leave logs, and what must then be found."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Mapping

from howdah.hadoop.aggregated import AggregatedLogs, Files, Log, LogFormatError
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.ids import ApplicationId, Resource
from howdah.hadoop.protos import yarn
from howdah.hadoop.resourcemanager import ResourceManager
from tests.hadoop_client.masters import until

# As a master: writes logs of all kinds, then ends (with 1, so that there is a second attempt).
COMMAND = (
    "(echo first; seq 1 600000; echo last) 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr;"
    " seq 1 9 1><LOG_DIR>/other.log; touch <LOG_DIR>/empty; exit 1"
)
STDOUT = b"first\n" + b"".join(b"%d\n" % i for i in range(1, 600001)) + b"last\n"
OTHER = b"".join(b"%d\n" % i for i in range(1, 10))


async def aggregated(configuration: Configuration, user: str, attempts: int) -> ApplicationId:
    """An application that has ended and whose logs are aggregated."""
    async with ResourceManager(configuration, user) as rm:
        new = await rm.new_application()
        context = yarn.ApplicationSubmissionContextProto(
            application_id=new.id.to_proto(),
            maxAppAttempts=attempts,
            resource=Resource(64, 1).to_proto(),
        )
        context.am_container_spec.command.append(COMMAND)
        await rm.submit_and_wait(context)
        done = yarn.LogAggregationStatusProto

        async def ready() -> bool:
            status = (await rm.application_report(new.id)).log_aggregation_status
            assert status not in (done.LOG_FAILED, done.LOG_TIME_OUT)
            return status == done.LOG_SUCCEEDED

        await until("aggregated logs", ready)
    return new.id


def check(logs: AggregatedLogs, app: ApplicationId, user: str, attempts: int) -> list[Log]:
    """Everything is there, and read in whole and in part."""
    found = logs.of(app, user)
    containers = sorted({log.container for log in found})
    assert len(containers) == attempts
    assert all(re.fullmatch(r"container_(e\d+_)?\d+_\d+_0\d_000001", c) for c in containers)
    for container in containers:
        own = {log.name: log for log in found if log.container == container}
        assert {"stdout", "stderr", "other.log", "empty"} <= set(own)
        assert own["stdout"].size == len(STDOUT)
        assert b"".join(logs.read(own["stdout"])) == STDOUT
        assert b"".join(logs.read(own["stdout"], -50)) == STDOUT[-50:]
        assert b"".join(logs.read(own["stdout"], 2_000_000, 100)) == STDOUT[2_000_000:2_000_100]
        assert b"".join(logs.read(own["other.log"])) == OTHER
        assert b"".join(logs.read(own["other.log"], 100)) == b""
        assert b"".join(logs.read(own["other.log"], -100)) == OTHER
        assert b"".join(logs.read(own["empty"])) == b""
        assert re.fullmatch(r"[\w.]+:\d+", own["stdout"].node)
    return found


class Memory:
    """Files in memory."""

    def __init__(self, content: Mapping[str, bytes]) -> None:
        self._content = content

    def files(self, folder: str) -> dict[str, int]:
        return {
            path.rpartition("/")[2]: len(data)
            for path, data in self._content.items()
            if path.rpartition("/")[0] == folder
        }

    def read(self, path: str, offset: int, length: int) -> bytes:
        return self._content[path][offset : offset + length]


def sample(
    configuration: Configuration, files: Files, app: ApplicationId, user: str
) -> dict[str, bytes]:
    """An application's first file of aggregated logs, by its path."""
    log = AggregatedLogs(configuration, files).of(app, user)[0]
    folder, _, name = log.path.rpartition("/")
    return {log.path: files.read(log.path, 0, files.files(folder)[name])}


def read_all(content: dict[str, bytes]) -> int:
    """Bytes of all logs in the only file."""
    ((path, _),) = content.items()
    user, app = path.split("/")[2], ApplicationId.parse(path.split("/")[-2])
    configuration = Configuration({"yarn.nodemanager.remote-app-log-dir": "/app-logs"})
    logs = AggregatedLogs(configuration, Memory(content))
    return sum(len(piece) for log in logs.of(app, user) for piece in logs.read(log))


def read_damaged(path: str, whole: bytes, chance: random.Random) -> None:
    """Change some bytes of a file; it must be read, or refused with our own error."""
    data = bytearray(whole)
    begin, end = chance.choice([(0, 5000), (len(data) - 3000, len(data))])
    for _ in range(chance.randint(1, 5)):
        data[chance.randrange(begin, end)] = chance.randrange(256)
    with contextlib.suppress(LogFormatError):
        read_all({path: bytes(data)})
