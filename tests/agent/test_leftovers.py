"""Nothing of an attempt outlives it, and nothing of a container outlives its agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from howdah.agent import ports
from tests.agent.rig import (
    Agent,
    Rig,
    alive,
    door,
    kill,
    listening,
    name_of,
    python,
    shell,
    until,
)
from tests.processes import open_files

DAEMON = """
import os, sys, time, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def path(name):
    return os.path.join({folder!r}, name)
def note(name):
    with open(path(".") + name, "w") as f: f.write(str(os.getpid()))
    os.rename(path(".") + name, path(name))
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        note("daemon")
        time.sleep(1000)
    os._exit(0)
os.wait()
while not os.path.exists(path("daemon")): time.sleep(0.01)
print("up", flush=True)
"""


PROGRAMS = {
    "child": (
        "sleep 1000 & echo $! > {folder}/child; echo $HOWDAH_TASK_SOCKET > {folder}/socket; "
        "echo up; wait"
    ),
    "session": "setsid sh -c 'echo $$ > {folder}/session; echo up; exec sleep 1000' & wait",
    "bare": "env -i sleep 1000 & echo $! > {folder}/bare; echo up; wait",
    "pipeline": "(yes | cat > /dev/null) & echo $! > {folder}/pipeline; echo up; wait",
}
"""What each leaves: a child of a shell, one in a session of its own, one without environment, a pipeline."""
STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def note(folder: Path, name: str) -> int:
    return int((folder / name).read_text())


async def with_leftovers(rig: Rig, agent: Agent) -> list[int]:
    """Start programs that leave all kinds of processes, which it returns."""
    daemon = DAEMON.format(folder=str(rig.folder)) + "\ntime.sleep(1000)"
    programs = [shell(text.format(folder=rig.folder)) for text in PROGRAMS.values()]
    await rig.start(*programs, python("import os; os.environ.clear(); " + daemon))
    await until(lambda: agent.log().count(b"up\n") == 5)
    pids = [note(rig.folder, name) for name in (*PROGRAMS, "daemon")]
    assert all(map(alive, pids))
    return pids


async def test_ending_an_attempt_ends_whatever_its_programs_left(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        left = await with_leftovers(rig, agent)
        await rig.stop(grace_s=0.2)
        assert not any(map(alive, left))
        assert not agent.marked()


async def test_what_a_program_leaves_running_at_its_end_is_ended(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        daemon = DAEMON.format(folder=str(tmp_path))
        code = "import signal\n" + daemon.replace("SIG_IGN", "SIG_DFL")
        assert (await rig.run(python(code))).code == 0
        first = note(tmp_path, "daemon")
        assert not alive(first)
        (tmp_path / "daemon").unlink()
        assert (await rig.run(python(daemon + "\nsys.exit(5)"), attempt=2)).code == 5
        assert not alive(note(tmp_path, "daemon"))


async def test_killing_the_agent_ends(tmp_path: Path) -> None:
    """Everything of its container goes, and no socket and no lock of it is left."""
    async with listening(tmp_path) as (rig, agent):
        prepared = await rig.prepare(ports=2)
        left = await with_leftovers(rig, agent)
        files = [ports.folder() / f"{port}.lock" for port in (*prepared.ports, door(rig)[1])]
        files.append(Path((tmp_path / "socket").read_text().strip()))
        assert all(file.exists() for file in files)
        watchdog = agent.watchdog()
        assert name_of(watchdog) == "howdah-watchdog"
        held = sorted(file.split(":")[0] for file in open_files(watchdog))
        assert held == ["/dev/null"] * 3 + ["pipe"], "nothing of the agent's"
        agent.kill()
        await until(lambda: not any(map(alive, [*left, watchdog])) and not agent.marked())
        await until(lambda: not any(file.exists() for file in files))


async def test_the_watchdog_does_its_duty_whatever_signal_it_gets(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        started = await rig.start(shell("sleep 1000"))
        watchdog = agent.watchdog()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(watchdog, number)
        os.killpg(agent.pid, signal.SIGKILL)  # as a resource manager does it
        await until(lambda: not alive(started.pids[0]) and not alive(watchdog))


NEXT_PID = Path("/proc/sys/kernel/ns_last_pid")

BACKGROUND = """
import os, sys, time
os.setsid()
if os.fork():
    os._exit(0)
os.write(1, str(os.getpid()).encode())
os.close(1)
time.sleep(1000)
"""


def daemon_in_session(number: int) -> int:
    """Start a daemon in the session of that number, whose leader has ended; its process id."""
    for _ in range(200):
        NEXT_PID.write_text(str(number - 1))
        leader = subprocess.Popen(
            [sys.executable, "-c", BACKGROUND], stdout=subprocess.PIPE, text=True
        )
        pid = int(leader.communicate()[0])
        if leader.pid == number:
            return pid
        os.kill(pid, signal.SIGKILL)  # another process has got the number that was wanted
    raise AssertionError(f"no process came to have the id {number}")


@pytest.mark.skipif(not os.access(NEXT_PID, os.W_OK), reason="process ids can't be chosen")
async def test_a_session_with_the_number_of_a_rank_that_ended_long_ago_survives_the_agent(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        started = await rig.start(shell("exit 0"), shell("exec sleep 1000"))
        ended, running = started.pids
        await until(lambda: not psutil.pid_exists(ended))
        await until(lambda: psutil.Process(agent.pid).status() == psutil.STATUS_SLEEPING)
        stranger = daemon_in_session(ended)
        try:
            watchdog = agent.watchdog()
            agent.kill()
            await until(lambda: not alive(running) and not alive(watchdog))
            assert alive(stranger)
        finally:
            os.kill(stranger, signal.SIGKILL)


async def test_nothing_outlives_a_container_ended_as_a_nodemanager_does_it(tmp_path: Path) -> None:
    """SIGTERM to the session of what the NodeManager started, then SIGKILL. A watchdog that was
    killed before has been replaced."""
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        heed = "signal.signal(signal.SIGTERM, lambda *_: print('heard'))\n"
        code = DAEMON.format(folder=str(tmp_path)) + f"\n{heed}while True: time.sleep(60)"
        started = await rig.start(python(code), python(STUBBORN + "time.sleep(1000)"))
        await until(lambda: b"up" in agent.log())
        old = agent.watchdog()
        kill(old)
        # Named once it is in a session of its own; before, SIGKILL would end it with its agent.
        await until(lambda: agent.watchdog_or_none() not in (None, old))
        os.killpg(agent.pid, signal.SIGTERM)
        await until(lambda: b"heard" in agent.log())
        assert alive(agent.pid), "the programs do not end, and it waits for them"
        os.killpg(agent.pid, signal.SIGKILL)
        pids = [*started.pids, note(tmp_path, "daemon")]
        await until(lambda: not any(map(alive, pids)) and not agent.marked())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_agent_that_is_asked_to_end_by_a_signal_does_so_orderly(
    tmp_path: Path, number: int
) -> None:
    """Its programs may save, and its exit code says so: a NodeManager that ends a container over its
    memory forgets why if that code is 0."""
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        watchdog = agent.watchdog()
        code = (
            "import signal, sys, time\n"
            "def bye(*_):\n print('saved', flush=True); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, bye)\nprint('up')\nwhile True: time.sleep(60)"
        )
        await rig.start(python(code))
        await until(lambda: agent.log())
        os.kill(agent.pid, number)
        assert await agent.code() == 128 + signal.SIGTERM
        exit = await rig.exit()
        assert (exit.code, exit.stopped) == (0, True), "no success: the agent ended it"
        assert agent.log() == b"up\nsaved\n"
        assert not alive(watchdog)
