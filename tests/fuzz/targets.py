"""The decoders: good inputs to begin with, what is called, and the errors it says it raises."""

from __future__ import annotations

import asyncio
import atexit
import io
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from howdah.core.messages import AgentSilent, Exit, Held, HeldPhase, Record, Task, TaskExited
from howdah.hadoop.aggregated import javaserial
from howdah.hadoop.aggregated.source import LogFormatError
from howdah.hadoop.credentials import Credentials, CredentialsError, Format, Token
from howdah.hadoop.errors import ConfigurationError, HadoopError
from howdah.hadoop.frames import FrameReader, parse_response, read_varint
from howdah.hadoop.siteparser import read_properties
from howdah.packing.archives import PackingError
from howdah.packing.ignoring import rules
from howdah.spark.errors import FeedError
from howdah.spark.feed.ipc import read_head, read_schema
from howdah.spark.tfrecord.errors import TFRecordError
from howdah.spark.tfrecord.framing import blocks, frame
from howdah.spec import load
from howdah.spec.document import read_file
from howdah.spec.problems import JobFileError
from howdah.storage import journal
from howdah.wire import tickets
from howdah.wire.frames import FrameDecoder, FrameError, encode
from howdah.wire.messages import (
    AgentHello,
    ClientHello,
    FromAgent,
    FromClient,
    Heartbeat,
    LogChunk,
    Moved,
    Prepare,
    Sample,
    Start,
    ToAgent,
    ToClient,
    Watch,
)


class Target(NamedTuple):
    """One decoder."""

    seeds: list[bytes]
    decode: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...]
    words: tuple[bytes, ...] = ()
    share: float = 1.0
    """Of the inputs asked for, where one takes long."""


_FOLDER = Path(
    tempfile.mkdtemp(prefix="hwt-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
)
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
_TASK = Task("worker", 0)


def _file(name: str, read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    path = _FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)

    def decode(data: bytes) -> None:
        path.write_bytes(data)
        read(path)

    return decode


def _stream(types: Any) -> Callable[[bytes], Any]:
    return lambda data: FrameDecoder[Any](types).feed(data)


_AGENT = [
    encode(
        AgentHello(
            job_id="a-1",
            container_id="c1",
            host="h",
            pid=1,
            held=Held(task=_TASK, attempt=1, generation=1, phase=HeldPhase.RUNNING),
        )
    ),
    encode(Heartbeat(attempt=1, sample=Sample(time=1.5, values={"loss": 0.5}))),
    encode(LogChunk(task=_TASK, attempt=1, offset=0, data=b"line\n")),
    encode(TaskExited(task=_TASK, attempt=1, exit=Exit(code=1, tail=("x",)))),
]
_TO_AGENT = [
    encode(Prepare(task=_TASK, attempt=1, generation=1, ports=1)),
    encode(Start(task=_TASK, attempt=1, generation=1, processes=(), peers=(("h", 1),))),
    encode(Moved(incarnation=1, host="h", port=1)),
]
_CLIENT = [encode(ClientHello(job_id="a-1", user="x")), encode(Watch(tasks=(_TASK,)))]


def _journal_lines() -> list[bytes]:
    """Without their checksums, which are made again for each input."""
    folder = Path(tempfile.mkdtemp(prefix="journal-", dir=_FOLDER))

    async def write() -> None:
        made = journal.Journal.open(folder)
        made.append_event(2.0, TaskExited(task=_TASK, attempt=1, exit=Exit(code=1)))
        made.append_event(2.5, AgentSilent(container_id="c1", silent_s=1.5))
        made.append_record(3.0, Record(kind="x", text="y"))
        await made.close()

    asyncio.run(write())
    (path,) = folder.glob("*.jsonl")
    return [line.partition(b",")[2] for line in path.read_bytes().splitlines()]


def _journal() -> Callable[[bytes], Any]:
    decode = _file("journal/events-0001.jsonl", lambda path: list(journal.read(path.parent)))
    end = _journal_lines()[-1].replace(b'"seq":3', b'"seq":2')

    def checked(data: bytes) -> None:
        lines = [data.replace(b"\n", b""), end]
        decode(b"".join(b'{"crc":"%08x",%b\n' % (zlib.crc32(b"{" + x), x) for x in lines))

    return checked


def _arrow() -> bytes:
    sink = io.BytesIO()
    schema = pa.schema([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    with pa.ipc.new_stream(sink, schema):
        pass
    return sink.getvalue()


def _feed(data: bytes) -> None:
    rest = memoryview(data)

    def read_into(view: memoryview) -> None:
        nonlocal rest
        if len(view) > len(rest):
            raise EOFError
        view[:] = rest[: len(view)]
        rest = rest[len(view) :]

    head = read_head(read_into)
    if head is not None:
        read_schema(head, read_into)


def _rpc(data: bytes) -> None:
    for answer in FrameReader(1 << 20).feed(data):
        parse_response(answer)


def _rpc_answers() -> list[bytes]:
    from howdah.hadoop.protos import common

    header = common.RpcResponseHeaderProto(callId=3, status=0, serverIpcVersionNum=9)
    packed = header.SerializeToString()
    body = bytes([len(packed)]) + packed + b"\x02\x08\x01"
    return [struct.pack(">I", len(body)) + body]


def _credentials() -> list[bytes]:
    token = Token(identifier=b"i" * 20, password=b"p" * 20, kind="K", service="s:1")
    held = Credentials(tokens={"a": token}, secrets={"b": b"c"})
    return [held.to_bytes(kind) for kind in Format]


_JAVA = b"\xac\xed\x00\x05" + b"sr\x00\x01A" + b"\0" * 8 + b"\x02\0\x01I\0\x01xxp\0\0\0\x05"
_TOML = b"""name = "digits"
command = ["python", "train.py"]
env = {A = "1", "b c" = 'x'}
[roles.worker]
instances = "2..8"
memory = "2g"
after = [
  "ps", # comment
]
[timeouts]
hang = "5m"
"""
_YAML = b"""name: digits
command: &c [python, train.py]
roles:
  worker: {instances: 2..8, memory: 2g}
  ps:
    command: *c
timeouts:
  hang: 5m
text: |
  several
  lines
"""
_JSON = (
    b'{"name": "d", "command": "a", "roles": {"worker": {"instances": 2, "env": {"A": "\\u00e9"}}}}'
)
_XML = b"""<?xml version="1.0"?>
<configuration xmlns:xi="http://www.w3.org/2001/XInclude">
<property><name>tony.worker.instances</name><value>2</value><final>true</final></property>
<property name="a" value="b"/><xi:include href="none.xml"><xi:fallback/></xi:include>
</configuration>
"""
_IGNORE = b"*.pyc\n!keep/*\n/build/\n**/x[a-z]?\n# c\n\\!odd\ndata/**/raw\n"


def _job(path: Path) -> None:
    load.load(path, env={}, frameworks=("command", "pytorch"))


def _ignored(path: Path) -> None:
    found = rules(path.parent)
    for name in ("a.pyc", "build/x", "data/a/raw"):
        found.leave_out(path.parent / name, is_folder=False)


def _tony(path: Path) -> None:
    from howdah.compat import tony
    from howdah.compat.tony.options import Arguments

    tony.read(path, Arguments(), {})


def _records(data: bytes) -> None:
    for block in blocks(io.BytesIO(data)):
        block.payloads()


TARGETS: dict[str, Target] = {
    "frames-agent": Target(_AGENT, _stream(FromAgent), (FrameError,)),
    "frames-to-agent": Target(_TO_AGENT, _stream(ToAgent), (FrameError,)),
    "frames-client": Target(_CLIENT, _stream(FromClient), (FrameError,)),
    "frames-to-client": Target(_CLIENT, _stream(ToClient), (FrameError,)),
    "journal": Target(_journal_lines(), _journal(), (journal.JournalError,)),
    "feed": Target([_arrow()], _feed, (FeedError, EOFError)),
    "hadoop-rpc": Target(_rpc_answers(), _rpc, (HadoopError,)),
    "hadoop-varint": Target([b"\x80\x01"], lambda data: read_varint(data, 0), (HadoopError,)),
    "credentials": Target(_credentials(), Credentials.read, (CredentialsError,)),
    "java-serial": Target([_JAVA], javaserial.loads, (LogFormatError,)),
    "tfrecord": Target([frame([b"one", b"", b"x" * 50])], _records, (TFRecordError,)),
    "job-toml": Target(
        [_TOML], _file("a/job.toml", read_file), (JobFileError,), (b"[[", b'"""', b"="), 0.5
    ),
    "job-yaml": Target(
        [_YAML], _file("b/job.yaml", read_file), (JobFileError,), (b"*c", b"&c", b"!!")
    ),
    "job-json": Target(
        [_JSON], _file("c/job.json", read_file), (JobFileError,), (b"[", b'{"', b"1e999")
    ),
    "job": Target([_TOML], _file("g/job.toml", _job), (JobFileError,), (b"[[", b"="), 0.05),
    "site-xml": Target(
        [_XML],
        _file("d/core-site.xml", read_properties),
        (ConfigurationError,),
        (b"<!ENTITY", b"&x;"),
    ),
    "tony-xml": Target([_XML], _file("e/tony.xml", _tony), (JobFileError,), (b"<!ENTITY",)),
    "ignore": Target(
        [_IGNORE], _file("f/.gitignore", _ignored), (PackingError,), (b"**/", b"["), 0.2
    ),
    "ticket": Target(
        [tickets.mint_session("token", 1.0).encode()],
        lambda data: tickets.session_is_good(data.decode("latin-1"), "token", 2.0),
        (),
    ),
}
