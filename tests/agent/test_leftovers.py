"""Nothing of an attempt outlives it, and nothing of a container outlives its agent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from howdah.agent import ports
from howdah.wire.messages import Shutdown
from tests.agent.rig import Rig, alive, kill, name_of, python, shell, until
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
    "a child of a shell": "sleep 1000 & echo $! > {folder}/child; echo up; wait",
    "a child in a session of its own": (
        "setsid sh -c 'echo $$ > {folder}/child; echo up; exec sleep 1000' & wait"
    ),
    "a child without environment": "env -i sleep 1000 & echo $! > {folder}/child; echo up; wait",
    "a pipeline in the background": "(yes | cat > /dev/null) & echo $! > {folder}/child; echo up; wait",
}


def note(folder: Path, name: str) -> int:
    return int((folder / name).read_text())


@pytest.mark.parametrize("what", PROGRAMS)
async def test_ending_an_attempt_ends(what: str, tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        await rig.start(shell(PROGRAMS[what].format(folder=tmp_path)))
        await until(lambda: agent.log() == b"up\n")
        child = note(tmp_path, "child")
        assert alive(child)
        await rig.stop(grace_s=0.2)
        assert not alive(child)
        assert not agent.marked()


@pytest.mark.parametrize("environment", ["", "os.environ.clear(); "])
async def test_a_daemon_that_forked_twice_is_ended(tmp_path: Path, environment: str) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        code = environment.replace("os.", "import os; os.", 1) + DAEMON.format(folder=str(tmp_path))
        exit_code = code + "\ntime.sleep(1000)"
        await rig.start(python(exit_code))
        await until(lambda: agent.log() == b"up\n")
        assert alive(note(tmp_path, "daemon"))
        await rig.stop(grace_s=0)
        assert not alive(note(tmp_path, "daemon"))


async def test_what_a_program_leaves_running_when_it_succeeds_is_ended(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        code = "import signal\n" + DAEMON.format(folder=str(tmp_path)).replace("SIG_IGN", "SIG_DFL")
        exit = await rig.run(python(code))
        assert exit.code == 0
        assert not alive(note(tmp_path, "daemon"))


async def test_what_a_failed_program_leaves_running_is_killed_at_once(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        exit = await rig.run(python(DAEMON.format(folder=str(tmp_path)) + "\nsys.exit(5)"))
        assert exit.code == 5
        assert not alive(note(tmp_path, "daemon"))


@pytest.mark.parametrize("what", PROGRAMS)
async def test_killing_the_agent_ends(what: str, tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        await rig.start(shell(PROGRAMS[what].format(folder=tmp_path)))
        await until(lambda: agent.log() == b"up\n")
        watchdog = agent.watchdog()
        agent.kill()
        await until(lambda: not alive(note(tmp_path, "child")) and not agent.marked(), 30)
        await until(lambda: not alive(watchdog), 30)


async def test_a_killed_agent_leaves_no_socket_and_no_lock(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        prepared = await rig.prepare(ports=2)
        await rig.start(shell("echo $HOWDAH_TASK_SOCKET; sleep 1000"))
        await until(lambda: agent.log())
        socket = Path(agent.log().decode().strip())
        locks = [ports.folder() / f"{port}.lock" for port in prepared.ports]
        assert socket.is_socket()
        assert all(lock.exists() for lock in locks)
        agent.kill()
        await until(lambda: not socket.exists() and not any(lock.exists() for lock in locks), 30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_the_watchdog_does_its_duty_whatever_signal_it_gets(
    tmp_path: Path, number: int
) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        started = await rig.start(shell("sleep 1000"))
        watchdog = agent.watchdog()
        os.kill(watchdog, number)
        os.killpg(agent.pid, signal.SIGKILL)  # as a resource manager does it
        await until(lambda: not alive(started.pids[0]) and not alive(watchdog), 30)


async def test_an_agent_ended_from_outside_says_so_by_its_exit_code(tmp_path: Path) -> None:
    """A NodeManager that ends a container over its memory forgets why if that code is 0."""
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        started = await rig.start(shell("sleep 1000"))
        os.kill(agent.pid, signal.SIGTERM)
        assert await agent.code() == 128 + signal.SIGTERM
        assert not alive(started.pids[0])


async def test_a_killed_watchdog_is_replaced(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        started = await rig.start(shell("env -i sleep 1000"))
        first = agent.watchdog()
        kill(first)
        await until(lambda: not alive(first))
        second = await until(lambda: watchdog_or_none(agent))
        assert second != first
        agent.kill()
        await until(lambda: not alive(started.pids[0]) and not alive(second), 30)


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
            await until(lambda: not alive(running) and not alive(watchdog), 30)
            assert alive(stranger)
        finally:
            os.kill(stranger, signal.SIGKILL)


STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


@pytest.mark.parametrize(
    "without_watchdog", [False, True], ids=["with its watchdog", "watchdog killed first"]
)
async def test_nothing_outlives_a_container_ended_as_a_nodemanager_does_it(
    tmp_path: Path, without_watchdog: bool
) -> None:
    """SIGTERM to the session of what the NodeManager started, SIGKILL 250 ms later."""
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        code = STUBBORN + DAEMON.format(folder=str(tmp_path)) + "\nwhile True: time.sleep(60)"
        started = await rig.start(python(code), python(STUBBORN + "time.sleep(1000)"))
        await until(lambda: alive(note(tmp_path, "daemon")) if agent.log() else False)
        if without_watchdog:
            old = agent.watchdog()
            kill(old)
            # Named once it is in a session of its own; before, SIGKILL would end it with its agent.
            await until(lambda: watchdog_or_none(agent) not in (None, old))
        os.killpg(agent.pid, signal.SIGTERM)
        await asyncio.sleep(0.25)
        assert alive(agent.pid), "the programs ignore the signal, and it waits for them"
        os.killpg(agent.pid, signal.SIGKILL)
        pids = [*started.pids, note(tmp_path, "daemon")]
        await until(lambda: not any(map(alive, pids)) and not agent.marked(), 30)


async def test_a_program_has_the_moments_between_both_signals_to_save(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        code = (
            "import signal, sys, time\n"
            "def bye(*_):\n print('saved', flush=True); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, bye)\nprint('up')\nwhile True: time.sleep(60)"
        )
        await rig.start(python(code))
        await until(lambda: agent.log())
        os.killpg(agent.pid, signal.SIGTERM)
        exit = await rig.exit()
        assert (exit.code, exit.stopped) == (0, True), "no success: the agent ended it"
        assert agent.log() == b"up\nsaved\n"


def watchdog_or_none(agent: object) -> int | None:
    try:
        return agent.watchdog()  # type: ignore[attr-defined]
    except AssertionError:
        return None


async def test_an_orderly_end_leaves_no_watchdog(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        watchdog = agent.watchdog()
        await rig.run(shell("true"))
        rig.tell(Shutdown())
        assert await agent.code() == 0
        assert not alive(watchdog)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_agent_that_is_asked_to_end_by_a_signal_does_so_orderly(
    tmp_path: Path, number: int
) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        started = await rig.start(shell("echo up; sleep 1000"))
        await until(lambda: agent.log())
        os.kill(agent.pid, number)
        assert await agent.code() == 128 + signal.SIGTERM
        assert (await rig.exit()).signal == signal.SIGTERM
        assert not alive(started.pids[0])


async def test_the_watchdog_holds_nothing_of_the_agent_s_open(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare(ports=2)
        watchdog = agent.watchdog()
        assert name_of(watchdog) == "howdah-watchdog"
        files = open_files(watchdog)
        assert sorted(file.split(":")[0] for file in files) == ["/dev/null"] * 3 + ["pipe"]


async def test_locks_on_devices_are_held_until_the_programs_are_gone(tmp_path: Path) -> None:
    import fcntl
    import subprocess

    async with Rig(tmp_path) as rig:
        lock = os.open(tmp_path / "gpu.lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX)
        file, launch = rig.launch_file(gpu_locks=(lock,))
        Path(launch.work_dir).mkdir(parents=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "howdah.agent.main", str(file)], pass_fds=(lock,)
        )
        os.close(lock)
        await rig.connected()
        await rig.prepare()
        started = await rig.start(shell("sleep 1000"))
        other = os.open(tmp_path / "gpu.lock", os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process.kill()
        process.wait()
        fcntl.flock(other, fcntl.LOCK_EX)  # free: then nothing uses the device
        assert not alive(started.pids[0])
        os.close(other)
