"""What the agent sees of a running program: peers, use, memory, progress, reports, stacks, pages."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from howdah.agent.host import procfs
from howdah.core.messages import DumpStacks, StacksTaken, TaskJoined
from howdah.wire.messages import AgentNote, Heartbeat, ProcessSpec, WebAddress
from tests.agent.rig import TASK, Rig, alive, python, rss_mb, shell, until

SRC = str(Path(__file__).parents[2] / "src")
FOREVER = "import time\nprint('up')\nwhile True: time.sleep(60)"


def reporting(code: str) -> ProcessSpec:
    """A program that has `howdah.task`."""
    return python("from howdah import task\n" + code, PYTHONPATH=SRC)


# -- finding peers -------------------------------------------------------------------------------


async def test_listening_on_a_reserved_port_is_joining_and_progress(tmp_path: Path) -> None:
    """And a page of the job file is announced once it is served there."""
    async with Rig(tmp_path) as rig:
        await rig.agent()
        (port,) = (await rig.prepare()).ports
        go = tmp_path / "go"
        code = (
            "import os, socket, time\n"
            f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
            f"s = socket.create_server(('0.0.0.0', {port}))\n" + FOREVER
        )
        web = {"name": "TensorBoard", "port": port, "keeps_prefix": True}
        await rig.start(python(code), probe="network", web=web)
        await rig.hear(Heartbeat, lambda m: (m.progress_s or 0) > 0.3)
        assert not [m for m in rig.heard if isinstance(m, (TaskJoined, WebAddress))]
        go.touch()
        await rig.hear(TaskJoined)
        page = await rig.hear(WebAddress)
        assert (page.name, page.port, page.keeps_prefix) == ("TensorBoard", port, True)


async def test_a_busy_loop_is_no_progress_and_output_is(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        code = (
            "import os, time\nuntil = time.monotonic() + 600\n"
            "while time.monotonic() < until and not os.path.exists('go'): pass\n"
            "while True:\n print('again')\n time.sleep(0.1)"
        )
        await rig.start(python(code))
        await rig.hear(Heartbeat, lambda m: (m.progress_s or 0) > 0.5)
        place = len(rig.heard)
        (tmp_path / "containers/c1/task/go").touch()
        await rig.hear(Heartbeat, lambda m: (m.progress_s or 9) < 0.3, after=place)


async def test_a_connection_to_a_peer_is_joining_and_one_to_a_stranger_is_not(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        with (
            socket.create_server(("127.0.0.1", 0)) as peer,
            socket.create_server(("127.0.0.1", 0)) as stranger,
        ):
            ports = [s.getsockname()[1] for s in (stranger, peer)]
            go = tmp_path / "go"
            code = (
                f"import os, socket, time\na = socket.create_connection(('127.0.0.1', {ports[0]}))\n"
                f"print('up')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
                f"b = socket.create_connection(('localhost', {ports[1]}))\n" + FOREVER
            )
            await rig.start(python(code), probe="network", peers=(("localhost", ports[1]),))
            place = len(rig.heard)
            stranger.accept()
            await rig.hear(Heartbeat, lambda m: m.attempt == 1, after=place)
            assert not [m for m in rig.heard if isinstance(m, TaskJoined)]
            go.touch()
            await rig.hear(TaskJoined)


async def test_a_program_that_says_itself_when_it_has_joined_has_not_by_listening(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        prepared = await rig.prepare()
        go = tmp_path / "go"
        code = (
            "import os, socket, time\n"
            f"s = socket.create_server(('0.0.0.0', {prepared.ports[0]}))\ntask.report(loss=3)\n"
            f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\ntask.joined()\n" + FOREVER
        )
        await rig.start(reporting(code), probe="report")
        await rig.hear(Heartbeat, lambda m: m.sample is not None and m.sample.values != {})
        assert not [m for m in rig.heard if isinstance(m, TaskJoined)]
        go.touch()
        await rig.hear(TaskJoined)


async def test_reported_numbers_come_with_the_beats_and_a_step_is_joining(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        code = "import os, time\ntask.report(loss=0.25, note='x')\n"
        code += "while not os.path.exists('go'): time.sleep(0.01)\n"
        code += "for n in range(5000): task.report(step=n, accuracy=n / 5000)\ntask.report(accuracy=0.97)"
        await rig.start(reporting(code), probe="network")
        beat = await rig.hear(Heartbeat, lambda m: m.sample is not None and m.sample.values != {})
        assert beat.sample is not None
        assert (beat.sample.values, beat.step) == ({"loss": 0.25}, None)
        assert not [m for m in rig.heard if isinstance(m, TaskJoined)]
        (tmp_path / "containers/c1/task/go").touch()
        assert (await rig.exit()).code == 0
        await rig.hear(TaskJoined)
        # What it reported last has come before its end.
        values: dict[str, float] = {}
        for message in rig.heard:
            if isinstance(message, Heartbeat) and message.sample is not None:
                values |= message.sample.values
        assert values["accuracy"] == 0.97
        assert [m.step for m in rig.heard if isinstance(m, Heartbeat)][-1] == 4999


# -- reports -------------------------------------------------------------------------------------


async def test_a_page_a_program_announces_is_told_again_to_a_new_coordinator(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        (port,) = (await rig.prepare()).ports
        serve = f"import socket\ns = socket.create_server(('', {port}))\n"
        await rig.start(
            reporting(f"{serve}task.announce_web('Notebook', {port}, path='/lab')\n" + FOREVER)
        )
        page = await rig.hear(WebAddress)
        assert (page.name, page.host, page.port, page.path) == (
            "Notebook",
            "127.0.0.1",
            port,
            "/lab",
        )
        await rig.vanish()
        rig.heard.clear()
        await rig.begin()
        assert await rig.hear(WebAddress) == page


async def test_only_a_page_that_a_program_announced_is_missed(tmp_path: Path) -> None:
    """The chief's port for a TensorBoard of its own is there for those who want it."""
    async with Rig(tmp_path) as rig:
        await rig.agent()
        with (
            socket.create_server(("127.0.0.1", 0)) as one,
            socket.create_server(("127.0.0.1", 0)) as other,
        ):
            reserved = {"name": "TensorBoard", "port": one.getsockname()[1], "expected": False}
            await rig.prepare()
            announced = f"task.announce_web('Notebook', {other.getsockname()[1]})\n"
            await rig.start(reporting(announced + FOREVER), web=reserved)
            assert "its page Notebook at" in (await rig.hear(AgentNote)).text
        await rig.stop(grace_s=0)
        assert not [m for m in rig.heard if isinstance(m, AgentNote) and "TensorBoard" in m.text]


# -- use of the machine --------------------------------------------------------------------------


async def test_use_of_the_whole_tree_is_measured(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        code = (
            "import os, time\ndata = bytearray(80_000_000)\n"
            "if os.fork() == 0:\n  os.setsid()\n  more = bytearray(80_000_000)\n  while True: pass\n"
            "time.sleep(1000)"
        )
        await rig.start(python(code))
        beat = await rig.hear(
            Heartbeat,
            lambda m: (
                m.sample is not None and (m.sample.rss_mb or 0) > 160 and (m.sample.cpu or 0) > 0.1
            ),
        )
        assert beat.sample is not None
        assert beat.sample.io_write_mb is not None
        assert beat.sample.gpu is None
        assert abs(beat.sample.time - time.time()) < 60


async def test_an_attempt_over_its_memory_is_ended_and_the_figures_are_told(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        code = (
            "import os, time\n"
            "if os.fork() == 0:\n  data = b'x' * 220_000_000\n  print('got it')\n  time.sleep(1000)\n"
            "time.sleep(1000)"
        )
        exit = await rig.run(python(code), memory_mb=150)
        assert exit.out_of_memory
        words = exit.detail.split()
        assert (words[0], words[2:]) == ("used", ["MB", "of", "150", "MB"])
        assert int(words[1]) > 150
        assert not agent.marked()
        # Where the limit is the container's, the agent counts too: alone it is over this one.
        await rig.agent(container_id="c2", counts_itself=True)
        exit = await rig.run(python(FOREVER), attempt=2, memory_mb=10)
        assert exit.out_of_memory
        assert "MB of 10 MB" in exit.detail


@pytest.mark.nightly
async def test_the_agent_itself_stays_small_and_quiet(tmp_path: Path) -> None:
    async with Rig(tmp_path, beat_s=1.0) as rig:
        agent = await rig.agent()
        await rig.run(python("for n in range(100000): print('some output', n)"))
        await rig.prepare(attempt=2)
        await rig.start(shell("echo up; sleep 1000"), attempt=2)
        await rig.hear(Heartbeat, lambda m: m.attempt == 2)
        best = 1.0
        for _ in range(10):  # the machine may be busy; what the agent uses is its own
            before, start = cpu_s(agent.pid), time.monotonic()
            place = len(rig.heard)
            for _ in range(3):
                await rig.hear(Heartbeat, after=place)
                place = len(rig.heard)
            best = min(best, (cpu_s(agent.pid) - before) / (time.monotonic() - start))
            if best <= 0.003:
                break
        assert rss_mb(agent.pid) <= 30
        assert best <= 0.003


def cpu_s(pid: int) -> float:
    """CPU seconds of a process, finer than clock ticks."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


# -- stacks --------------------------------------------------------------------------------------


async def test_stacks_of_every_python_process_are_taken_and_the_line_is_named(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        (rig.source / "train.py").write_text(
            "import os, queue, time\n"
            "def stuck_here():\n"
            "    print('up', flush=True)\n"
            "    queue.Queue().get()\n"
            "def child_of_it():\n"
            "    time.sleep(1000)\n"
            "if os.fork() == 0:\n"
            "    child_of_it()\n"
            "stuck_here()\n"
        )
        for said, attempt in (("does not hold", 5), ("prepared", 1)):
            rig.tell(DumpStacks(container_id="c1", task=TASK, attempt=attempt))
            assert (
                said in (await rig.hear(StacksTaken, lambda m, a=attempt: m.attempt == a)).problem
            )
            await rig.prepare()
        await rig.start(shell(f"{sys.executable} train.py; true"))
        await until(lambda: agent.log())
        place = len(rig.heard)
        rig.tell(DumpStacks(container_id="c1", task=TASK, attempt=1))
        stacks = await rig.hear(StacksTaken, after=place)
        assert stacks.problem == ""
        assert stacks.innermost == "train.py:4 in stuck_here"
        assert "child_of_it" in stacks.text
        assert "not Python" in stacks.text  # the shell
        assert stacks.path == "stacks/worker-0-1.txt"
        file = rig.folder / stacks.path
        assert file.read_text() == stacks.text
        assert file.stat().st_mode & 0o777 == 0o600
        assert (await rig.stop(grace_s=0)).signal == 9


async def test_a_suspended_program_still_gives_an_answer(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        started = await rig.start(python(FOREVER))
        await until(lambda: agent.log())
        os.kill(started.pids[0], signal.SIGSTOP)
        rig.tell(DumpStacks(container_id="c1", task=TASK, attempt=1))
        stacks = await rig.hear(StacksTaken)
        assert str(started.pids[0]) in stacks.text
        assert alive(started.pids[0])


def memory_group() -> Path | None:
    """A control group below ours whose memory can be limited, if we may make one."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        base = Path("/sys/fs/cgroup/memory" if "memory" in controllers else "/sys/fs/cgroup")
        group = base / path.lstrip("/") / f"howdah-test-{os.getpid()}"
        if "memory" not in controllers and controllers:
            continue
        try:
            group.mkdir()
        except OSError:
            continue
        if any((group / name).exists() for name in ("memory.max", "memory.limit_in_bytes")):
            return group
        group.rmdir()
    return None


async def test_a_kill_by_the_kernel_for_memory_is_proven_and_spares_the_agent(
    tmp_path: Path,
) -> None:
    group = memory_group()
    if group is None:
        pytest.skip("no control group can be made here")
    try:
        v2 = (group / "memory.max").exists()
        (group / ("memory.max" if v2 else "memory.limit_in_bytes")).write_text("150000000")
        async with Rig(tmp_path) as rig:
            agent = rig.spawn()
            for pid in (agent.pid, *procfs.descendants(agent.pid)):
                (group / "cgroup.procs").write_text(str(pid))
            await rig.connected()
            exit = await rig.run(python("data = b'x' * 400_000_000\nimport time; time.sleep(1000)"))
            assert exit.signal == 9
            assert exit.out_of_memory
            assert "out-of-memory killer" in exit.detail
            exit = await rig.run(shell("kill -9 $$"), attempt=2)
            assert (exit.signal, exit.out_of_memory) == (9, False)
    finally:
        await until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()
