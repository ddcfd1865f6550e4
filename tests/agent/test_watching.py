"""What the agent sees of a running program: peers, use, memory, progress, reports, stacks, pages."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from howdah.agent.host import procfs
from howdah.core.messages import DumpStacks, StacksTaken, TaskJoined
from howdah.wire.messages import AgentNote, Heartbeat, ProcessSpec, WebAddress
from tests.agent.rig import TASK, Rig, alive, python, shell, start_message, until

SRC = str(Path(__file__).parents[2] / "src")
FOREVER = "import time\nprint('up')\nwhile True: time.sleep(60)"


def reporting(code: str) -> ProcessSpec:
    """A program that has `howdah.task`."""
    return python("from howdah import task\n" + code, PYTHONPATH=SRC)


# -- finding peers -------------------------------------------------------------------------------


async def test_listening_on_a_reserved_port_is_joining(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        prepared = await rig.prepare()
        go = tmp_path / "go"
        code = (
            "import os, socket, time\n"
            f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
            f"s = socket.create_server(('0.0.0.0', {prepared.ports[0]}))\n" + FOREVER
        )
        await rig.start(python(code), probe="network")
        place = len(rig.heard)
        await rig.hear(Heartbeat, lambda m: m.attempt == 1, after=place)
        assert not [m for m in rig.heard if isinstance(m, TaskJoined)]
        go.touch()
        await rig.hear(TaskJoined)
        await until(lambda: agent.log() == b"up\n")


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


async def test_a_reported_step_is_joining(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        code = "import time\ntask.report(loss=3)\ntask.report(step=1)\n" + FOREVER
        await rig.start(reporting(code), probe="network")
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


async def test_a_program_without_peers_joins_when_it_starts(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        await rig.start(shell("sleep 1000"), probe="now")
        await rig.hear(TaskJoined)


# -- reports -------------------------------------------------------------------------------------


async def test_reported_numbers_come_with_the_beats(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        await rig.start(reporting("task.report(step=7, loss=0.25, note='x')\n" + FOREVER))
        beat = await rig.hear(Heartbeat, lambda m: m.sample is not None and m.sample.values != {})
        assert beat.sample is not None
        assert beat.sample.values == {"loss": 0.25}
        assert beat.step == 7


async def test_the_last_report_before_the_end_arrives(tmp_path: Path) -> None:
    async with Rig(tmp_path, beat_s=5) as rig:
        await rig.agent()
        code = "for n in range(5000): task.report(step=n, accuracy=n / 5000)\ntask.report(accuracy=0.97)"
        assert (await rig.run(reporting(code))).code == 0
        values: dict[str, float] = {}
        for message in rig.heard:
            if isinstance(message, Heartbeat) and message.sample is not None:
                values |= message.sample.values
        assert values["accuracy"] == 0.97
        assert [m.step for m in rig.heard if isinstance(m, Heartbeat)][-1] == 4999


async def test_a_program_learns_who_it_is(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        code = "me = task.context(); print(me.role, me.rank, me.checkpoint_dir.is_dir(), me.job_id)"
        spec = reporting(code)
        env = {**spec.env, "HOWDAH_ROLE": "chief", "HOWDAH_RANK": "0", "HOWDAH_JOB_ID": "j"}
        await rig.run(ProcessSpec(argv=spec.argv, env=env))
        assert agent.log() == b"chief 0 True j\n"


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


async def test_a_page_of_the_job_file_is_announced_once_it_is_served(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        prepared = await rig.prepare()
        go = tmp_path / "go"
        code = (
            f"import os, socket, time\nprint('up')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
            f"s = socket.create_server(('127.0.0.1', {prepared.ports[0]}))\n" + FOREVER
        )
        web = {"name": "TensorBoard", "port": prepared.ports[0], "keeps_prefix": True}
        await rig.start(python(code), web=web)
        await until(lambda: agent.log())
        assert not [m for m in rig.heard if isinstance(m, WebAddress)]
        go.touch()
        page = await rig.hear(WebAddress)
        assert (page.name, page.port, page.keeps_prefix) == ("TensorBoard", prepared.ports[0], True)


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


async def test_silence_grows_and_output_ends_it(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        go = tmp_path / "go"
        code = (
            f"import os, time\nprint('up')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
            "while True:\n print('again')\n time.sleep(1)"
        )
        await rig.start(python(code))
        await rig.hear(Heartbeat, lambda m: (m.progress_s or 0) > 0.5)
        place = len(rig.heard)
        go.touch()
        await rig.hear(
            Heartbeat, lambda m: m.progress_s is not None and m.progress_s < 0.3, after=place
        )


async def test_finding_the_peers_is_progress(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        (port,) = (await rig.prepare()).ports
        go = tmp_path / "go"
        code = (
            f"import os, socket, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
            f"s = socket.create_server(('127.0.0.1', {port}))\ntime.sleep(1000)"
        )
        await rig.start(python(code), probe="network")
        await rig.hear(Heartbeat, lambda m: (m.progress_s or 0) > 1.0)
        go.touch()
        await rig.hear(TaskJoined)
        place = len(rig.heard)
        beat = await rig.hear(Heartbeat, lambda m: m.progress_s is not None, after=place)
        assert beat.progress_s is not None and beat.progress_s < 1.0


async def test_a_busy_loop_is_no_progress(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        await rig.start(python("while True: pass"))
        await rig.hear(Heartbeat, lambda m: (m.progress_s or 0) > 1.0)


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


async def test_an_agent_counts_itself_where_the_limit_is_the_container_s(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent(counts_itself=True)
        await rig.prepare()
        # Less than the agent alone has: a program of any size is over it.
        rig.tell(start_message(python(FOREVER), memory_mb=15))
        exit = await rig.exit()
        assert exit.out_of_memory
        assert "MB of 15 MB" in exit.detail


async def test_an_attempt_within_its_memory_is_left_alone(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        code = "data = b'x' * 50_000_000\nimport time; time.sleep(1.5)"
        exit = await rig.run(python(code), memory_mb=150)
        assert (exit.code, exit.out_of_memory) == (0, False)


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
        status = Path(f"/proc/{agent.pid}/status").read_text()
        rss_mb = int(status.split("VmRSS:")[1].split()[0]) / 1024
        assert rss_mb <= 30
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
        await rig.prepare()
        await rig.start(shell(f"{sys.executable} train.py; true"))
        await until(lambda: agent.log())
        rig.tell(DumpStacks(container_id="c1", task=TASK, attempt=1))
        stacks = await rig.hear(StacksTaken)
        assert stacks.problem == ""
        assert stacks.innermost == "train.py:4 in stuck_here"
        assert "child_of_it" in stacks.text
        assert "not Python" in stacks.text  # the shell
        assert stacks.path == "stacks/worker-0-1.txt"
        file = rig.folder / stacks.path
        assert file.read_text() == stacks.text
        assert file.stat().st_mode & 0o777 == 0o600
        assert (await rig.stop(grace_s=0)).signal == 9


async def test_a_busy_loop_s_stack_can_be_taken(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        (rig.source / "spin.py").write_text("print('up', flush=True)\nwhile True:\n    pass\n")
        await rig.prepare()
        await rig.start(ProcessSpec(argv=(sys.executable, "spin.py"), env={}))
        await until(lambda: agent.log())
        rig.tell(DumpStacks(container_id="c1", task=TASK, attempt=1))
        assert (await rig.hear(StacksTaken)).innermost.startswith("spin.py:")


async def test_a_suspended_program_still_gives_an_answer(tmp_path: Path) -> None:
    import signal

    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        started = await rig.start(python(FOREVER))
        await until(lambda: agent.log())
        os.kill(started.pids[0], signal.SIGSTOP)
        rig.tell(DumpStacks(container_id="c1", task=TASK, attempt=1))
        stacks = await rig.hear(StacksTaken, timeout_s=30)
        assert str(started.pids[0]) in stacks.text
        assert alive(started.pids[0])


async def test_of_what_is_no_python_the_kernel_s_view_is_told(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        await rig.start(ProcessSpec(argv=("/bin/sleep", "1000"), env={}))
        rig.tell(DumpStacks(container_id="c1", task=TASK, attempt=1))
        stacks = await rig.hear(StacksTaken)
        assert "State:" in stacks.text
        assert stacks.problem == "not Python"


async def test_each_program_s_stack_is_taken_however_many_children_the_first_ones_have(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        with_loaders = shell("for n in {1..65}; do sleep 1000 & done; echo up; wait")
        started = await rig.start(with_loaders, with_loaders, with_loaders)
        await until(lambda: agent.log().count(b"up") == 3)
        rig.tell(DumpStacks(container_id="c1", task=TASK, attempt=1))
        text = (await rig.hear(StacksTaken, timeout_s=30)).text
        assert all(f"Process {pid}: " in text for pid in started.pids)
        assert text.count("Process ") == 128
        assert text.endswith("\n70 more processes were not looked at\n")


async def test_stacks_of_what_does_not_run_are_answered_in_words(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        rig.tell(DumpStacks(container_id="c1", task=TASK, attempt=5))
        assert "does not hold" in (await rig.hear(StacksTaken, lambda m: m.attempt == 5)).problem
        await rig.prepare()
        rig.tell(DumpStacks(container_id="c1", task=TASK, attempt=1))
        assert "prepared" in (await rig.hear(StacksTaken, lambda m: m.attempt == 1)).problem


async def test_stacks_taken_while_it_ends_do_not_disturb_the_end(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        await rig.prepare()
        await rig.start(python(FOREVER), python(FOREVER))
        rig.tell(DumpStacks(container_id="c1", task=TASK, attempt=1))
        await rig.stop(grace_s=0)
        await rig.hear(StacksTaken, timeout_s=30)
        rig.tell(start_message(shell("true"), attempt=1))


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
