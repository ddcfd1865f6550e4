"""What programs print: whole, in order, at full speed, and pushed to who follows."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from howdah.agent.forwarder import LogForwarder
from howdah.core.messages import DumpStacks, StacksTaken, TaskExited
from howdah.storage import logs
from howdah.wire.messages import FollowLog, Heartbeat, LogChunk
from tests.agent.rig import TASK, Agent, Rig, python, shell, start_message, until

MB = 1024 * 1024

FLOOD = """
import hashlib, os, sys
digest = hashlib.sha256()
size = 0
while size < {size}:
    data = b"".join(b"%d %s\\n" % (n, b"x" * (n * 7919 % 300)) for n in range(size, size + 2000))
    digest.update(data)
    size += len(data)
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]
with open("digest", "w") as out:
    out.write(digest.hexdigest())
"""


def path_of(agent: Agent, attempt: int = 1) -> Path:
    return Path(agent.launch.log_dir) / "worker-0" / f"{attempt}.log"


async def test_an_error_comes_after_what_was_printed_and_the_last_lines_are_its(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        code = (
            "import sys\nfor n in range(100): print('out', n, file=sys.stderr if n % 2 else sys.stdout)\n"
            "sys.stdout.write('last'); raise ValueError('b')"
        )
        exit = await rig.run(python(code))
        assert exit.tail[0].startswith("out ") and exit.tail[-1] == "ValueError: b"
        assert not [line for line in exit.tail if line == "last" or line.endswith(" 98")]
        lines = agent.log().decode().splitlines()
        assert sorted(lines[:100]) == sorted(f"out {n}" for n in range(100))


async def test_output_and_errors_are_merged_without_torn_lines(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        code = (
            "import os, threading\n"
            "def write(fd, text):\n"
            " for n in range(2000):\n"
            "  for piece in (text, str(n), '\\n'): os.write(fd, piece.encode())\n"
            "a = threading.Thread(target=write, args=(1, 'out '))\n"
            "b = threading.Thread(target=write, args=(2, 'err '))\n"
            "a.start(); b.start(); a.join(); b.join()"
        )
        await rig.run(python(code))
        lines = agent.log().decode().splitlines()
        assert [line for line in lines if line.startswith("out")] == [
            f"out {n}" for n in range(2000)
        ]
        assert [line for line in lines if line.startswith("err")] == [
            f"err {n}" for n in range(2000)
        ]
        assert len(lines) == 4000


# -- following -----------------------------------------------------------------------------------


class Received:
    """What was pushed of a log, put together by offsets."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def data(self, offset: int = 0) -> bytes:
        found = b""
        for message in self._rig.heard:
            if isinstance(message, LogChunk) and message.offset == offset + len(found):
                found += message.data
        return found


async def test_a_followed_log_is_pushed_as_it_grows_from_where_it_is_asked(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.run(shell("echo first"))
        await rig.prepare(attempt=2)
        code = "printf 'one: '; while ! [ -e go ]; do sleep 0.05; done; echo two; sleep 1000"
        await rig.start(shell(code), attempt=2)
        await until(lambda: agent.log(attempt=2) == b"one: ")  # before the line ends
        rig.tell(FollowLog(task=TASK, attempt=2, offset=3))
        await until(lambda: Received(rig).data(3) == b": ")
        (tmp_path / "containers/c1/task/go").touch()
        await until(lambda: Received(rig).data(3) == b": two\n")
        # One that is over is read from its file.
        rig.tell(FollowLog(task=TASK, attempt=1))
        chunk = await rig.hear(LogChunk, lambda m: m.attempt == 1)
        assert chunk.data == b"first\n"


async def test_who_follows_no_more_gets_no_more(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        rig.tell(FollowLog(task=TASK, attempt=1))
        await rig.start(shell("for n in $(seq 1000); do echo $n; sleep 0.02; done"))
        await rig.hear(LogChunk)
        rig.tell(FollowLog(task=TASK, attempt=1, on=False))
        rig.tell(FollowLog(task=TASK, attempt=99, on=False))
        rig.tell(DumpStacks(container_id="c1", task=TASK, attempt=99))
        await rig.hear(StacksTaken)  # the answer to what was told last: it comes behind all chunks
        place = len(rig.heard)
        size = len(agent.log())
        await until(lambda: len(agent.log()) > size + 50)
        assert not [m for m in rig.heard[place:] if isinstance(m, LogChunk)]


async def test_the_end_of_a_followed_log_comes_before_the_attempt_s(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        rig.tell(FollowLog(task=TASK, attempt=1))
        # More than one part, and little enough for a busy machine to take before the agent goes on.
        rig.tell(start_message(python("print('x' * 100000); print('bye')")))
        await rig.exit()
        before = rig.heard[: next(n for n, m in enumerate(rig.heard) if isinstance(m, TaskExited))]
        data = b"".join(m.data for m in before if isinstance(m, LogChunk))
        assert data.endswith(b"x\nbye\n")
        assert len(data) == 100005


async def test_a_flood_is_followed_without_a_gap(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        rig.tell(FollowLog(task=TASK, attempt=1))
        rig.tell(start_message(python(FLOOD.format(size=5 * MB))))
        place = len(rig.heard)
        await rig.hear(Heartbeat, lambda m: m.attempt == 1 and m.log_size > 0, after=place)
        await rig.exit()
        await until(lambda: len(Received(rig).data()) == logs.size(path_of(agent)))
        data = Received(rig).data()
        wanted = (Path(agent.launch.work_dir) / "task/digest").read_text()
        assert hashlib.sha256(data).hexdigest() == wanted


async def test_pipes_that_have_ended_unseen_are_taken_when_the_pump_closes(tmp_path: Path) -> None:
    writer = logs.LogWriter(tmp_path / "0.log")
    pump = LogForwarder(writer, lambda: None)
    (output, output_in), (error, error_in) = pump.pipe(), pump.pipe()
    source = pump.add(output, error)
    os.write(output_in, b"last words\n")
    os.close(output_in)
    os.close(error_in)
    pump.close()
    writer.close()
    assert logs.read(tmp_path / "0.log").data == b"last words\n"
    assert source.streams == ()
