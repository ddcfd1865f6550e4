"""The decoders: good inputs to begin with, what is called, and the errors it says it raises."""

from __future__ import annotations

import asyncio
import io
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from howdah.core.messages import AgentSilent, Exit, Held, HeldPhase, Record, Task, TaskExited
from howdah.hadoop.errors import ConfigurationError
from howdah.hadoop.siteparser import read_properties
from howdah.packing.archives import PackingError
from howdah.packing.ignore_rules import rules
from howdah.spark.errors import FeedError
from howdah.spark.feed.arrow.ipc import read_head, read_schema
from howdah.spec import load
from howdah.spec.problems import JobFileError
from howdah.spec.readers.document import read_file
from howdah.storage import journal
from howdah.wire import tickets
from howdah.wire.frames import HEADER_BYTES, FrameDecoder, FrameError, encode
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
from tests.fuzz.hadoop import HADOOP
from tests.fuzz.programs import PROGRAMS
from tests.fuzz.records import RECORDS
from tests.fuzz.target import FOLDER, Target, in_file

_TASK = Task("worker", 0)
_FRAME = 2000
"""The longest frame that is taken."""


def _stream(types: Any) -> Callable[[bytes], Any]:
    def decode(data: bytes) -> None:
        decoder = FrameDecoder[Any](types, _FRAME)
        decoder.feed(data)
        assert decoder.pending < HEADER_BYTES + _FRAME, "it holds no more than a frame"

    return decode


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
    folder = Path(tempfile.mkdtemp(prefix="journal-", dir=FOLDER))

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
    decode = in_file("journal/events-0001.jsonl", lambda path: list(journal.read(path.parent)))
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


TARGETS: dict[str, Target] = (
    HADOOP
    | PROGRAMS
    | RECORDS
    | {
        "frames-agent": Target(_AGENT, _stream(FromAgent), (FrameError,)),
        "frames-to-agent": Target(_TO_AGENT, _stream(ToAgent), (FrameError,)),
        "frames-client": Target(_CLIENT, _stream(FromClient), (FrameError,)),
        "frames-to-client": Target(_CLIENT, _stream(ToClient), (FrameError,)),
        "journal": Target(_journal_lines(), _journal(), (journal.JournalError,)),
        "feed": Target([_arrow()], _feed, (FeedError, EOFError)),
        "job-toml": Target(
            [_TOML], in_file("a/job.toml", read_file), (JobFileError,), (b"[[", b'"""', b"="), 0.5
        ),
        "job-yaml": Target(
            [_YAML], in_file("b/job.yaml", read_file), (JobFileError,), (b"*c", b"&c", b"!!")
        ),
        "job-json": Target(
            [_JSON], in_file("c/job.json", read_file), (JobFileError,), (b"[", b'{"', b"1e999")
        ),
        "job": Target([_TOML], in_file("g/job.toml", _job), (JobFileError,), (b"[[", b"="), 0.05),
        "site-xml": Target(
            [_XML],
            in_file("d/core-site.xml", read_properties),
            (ConfigurationError,),
            (b"<!ENTITY", b"&x;"),
        ),
        "tony-xml": Target([_XML], in_file("e/tony.xml", _tony), (JobFileError,), (b"<!ENTITY",)),
        "ignore": Target(
            [_IGNORE], in_file("f/.gitignore", _ignored), (PackingError,), (b"**/", b"["), 0.2
        ),
        "ticket": Target(
            [tickets.mint_session("token", 1.0).encode()],
            lambda data: tickets.session_is_good(data.decode("latin-1"), "token", 2.0),
            (),
        ),
    }
)
