"""One attempt after another: prepared, started, ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from howdah.core.causes import describe_exit
from howdah.core.messages import (
    Exit,
    NotifyCheckpoint,
    Task,
    TaskExited,
    TaskJoined,
    TaskPrepared,
    TaskStarted,
)
from howdah.wire.messages import Heartbeat, Prepare, ProcessSpec, Shutdown
from tests.agent.rig import TASK, Rig, alive, python, rss_mb, shell, start_message, until

FOREVER = "import time\nprint('up')\nwhile True: time.sleep(60)"
STUBBORN = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + FOREVER


async def test_an_agent_runs_one_attempt_after_another_and_says_how_each_ended(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        assert (await rig.hear(Heartbeat)).attempt == 0
        exit = await rig.run(python("print('hello'); import sys; sys.exit(7)"))
        assert (exit.code, exit.signal, exit.tail) == (7, None, ("hello",))
        assert agent.log() == b"hello\n"
        assert rss_mb(agent.pid) <= 30
        kinds = [type(m) for m in rig.heard if isinstance(m, (TaskStarted, TaskJoined, TaskExited))]
        assert kinds == [TaskStarted, TaskJoined, TaskExited]
        exit = await rig.run(shell("kill -11 $$"), attempt=2)
        assert (exit.code, exit.signal) == (None, 11)
        exit = await rig.run(python(FOREVER), attempt=3, run_s=0.3)
        assert exit.timed_out
        assert exit.stopped is False, "nobody told the agent to end it"
        assert "run time-out of 0.3 s" in exit.detail
        found = "echo 'found: Params: --lr 0.1 '"
        exit = await rig.run(shell(found), attempt=4, answer_mark="Params:")
        assert exit.answer == "--lr 0.1"
        await rig.prepare(attempt=5)
        await rig.start(shell("echo hi; sleep 60"), attempt=5)
        beat = await rig.hear(Heartbeat, lambda m: m.attempt == 5 and m.log_size == 3)
        assert beat.progress_s is not None
        other = Task("evaluator", 1)  # another task takes its place
        rig.tell(Prepare(task=other, attempt=1, generation=1, ports=0))
        assert (await rig.hear(TaskPrepared, lambda m: m.task == other)).attempt == 1
        assert not agent.marked()
        assert len(rig.hellos) == 1
        rig.tell(Shutdown())
        assert await agent.code() == 0


async def test_a_program_knows_where_it_is(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        (rig.source / "data.txt").write_text("42")
        agent = await rig.agent(python_path="/only/task", gpus=("GPU-7",))
        code = (
            "import os, json; print(json.dumps(dict(os.environ) | {'cwd': os.getcwd(),"
            "'data': open('data.txt').read()})); open('mine', 'w').write('x')"
        )
        exit = await rig.run(python(code, RANK="3"))
        assert exit.code == 0
        env = json.loads(agent.log())
        work = Path(agent.launch.work_dir)
        assert env["cwd"] == str(work / "task")
        assert env["data"] == "42"
        assert (env["RANK"], env["PYTHONPATH"]) == ("3", "/only/task")
        assert env["CUDA_VISIBLE_DEVICES"] == "GPU-7"
        assert env["HOWDAH_CONTAINER"] == agent.marker
        assert env["HOWDAH_SHARED_DIR"] == str(rig.folder / "shared")
        assert env["HOWDAH_LOG_DIR"] == str(rig.folder / "logs/worker-0")
        assert Path(env["HOWDAH_CHECKPOINT_DIR"]).is_dir()
        assert Path(env["HOWDAH_OUTPUT_DIR"]).is_dir()
        assert "HOWDAH_RESTORED" not in env
        assert (work / "task/mine").exists()
        assert not (rig.source / "mine").exists()


async def test_the_first_program_that_fails_ends_the_others(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        exit = await rig.run(
            python(STUBBORN), shell("echo broken >&2; exit 42"), python(FOREVER), shell("exit 0")
        )
        assert (exit.process, exit.code, exit.tail) == (1, 42, ("broken",))
        assert not agent.marked()


async def test_lines_of_several_programs_carry_their_labels(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        programs = [
            ProcessSpec(
                argv=("/bin/sh", "-c", f"echo one; echo two {rank}"), env={}, label=str(rank)
            )
            for rank in (0, 1)
        ]
        assert (await rig.run(*programs)).code == 0
        lines = agent.log().decode().splitlines()
        assert sorted(lines) == ["0 | one", "0 | two 0", "1 | one", "1 | two 1"]


async def test_a_start_that_fails_is_explained_and_leaves_nothing(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        (rig.source / "train.py").write_text("print(1)")
        agent = await rig.agent()
        misspelt = ProcessSpec(argv=("pyhton", "train.py"), env={"PATH": "/usr/bin:/bin"})
        assert "no program 'pyhton' on PATH" in (await rig.run(misspelt)).failed_to_start
        not_executable = ProcessSpec(argv=("./train.py",), env={})
        assert "chmod +x" in (await rig.run(not_executable, attempt=2)).failed_to_start
        assert (await rig.run(attempt=3)).failed_to_start == "its start names no program"
        assert not [m for m in rig.heard if isinstance(m, TaskStarted) and m.attempt < 3]
        second_missing = [python(STUBBORN), ProcessSpec(argv=("/no/such",), env={})]
        exit = await rig.run(*second_missing, attempt=4)
        assert exit.process == 1
        assert "'/no/such' cannot be run" in exit.failed_to_start
        assert not agent.marked()


async def test_a_launch_that_cannot_be_used_is_explained(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        for changes, told in (
            ({"ca": "/no/such/file"}, "No such file"),
            ({"interface": "nosuch0"}, "no network interface 'nosuch0'"),
        ):
            agent = rig.spawn(**changes)
            assert await agent.code() == 2
            assert told in agent.errors.read_text()


# -- stopping ------------------------------------------------------------------------------------


async def test_the_child_of_a_shell_gets_its_grace_too(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        (rig.source / "child.py").write_text(
            "import signal, sys, time\n"
            "def bye(*_):\n time.sleep(0.3); print('saved', flush=True); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, bye)\n" + FOREVER
        )
        await rig.prepare()
        await rig.start(shell(f"{sys.executable} -u child.py; echo never"))
        await until(lambda: agent.log())
        await rig.stop(grace_s=20)
        assert agent.log() == b"up\nsaved\n"


async def test_a_program_that_does_not_heed_the_stop_is_killed_after_its_grace(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        await rig.start(python(STUBBORN))
        await until(lambda: agent.log())
        exit = await rig.stop(grace_s=0.3)
        assert (exit.signal, exit.stopped, exit.out_of_memory) == (signal.SIGKILL, True, False)
        # A second stop shortens the grace of the first.
        await rig.prepare(attempt=2)
        await rig.start(python(STUBBORN), attempt=2)
        await until(lambda: agent.log(attempt=2))
        rig.tell_stop(2, grace_s=3600)
        rig.tell_stop(2, grace_s=0)
        assert (await rig.exit(2)).signal == signal.SIGKILL
        # A suspended one gets its signal nevertheless.
        await rig.prepare(attempt=3)
        started = await rig.start(python(FOREVER), attempt=3)
        await until(lambda: agent.log(attempt=3))
        os.kill(started.pids[0], signal.SIGSTOP)
        assert (await rig.stop(3, grace_s=3600)).signal == signal.SIGTERM


async def test_a_kill_that_came_before_the_stop_is_told_as_such(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        started = await rig.start(python(FOREVER))
        await until(lambda: agent.log())
        os.kill(agent.pid, signal.SIGSTOP)  # so that it learns of both at once
        try:
            os.kill(started.pids[0], signal.SIGKILL)
            await until(lambda: not alive(started.pids[0]))
            rig.tell_stop(1, grace_s=0)
            await rig.channels[-1].drain()
        finally:
            os.kill(agent.pid, signal.SIGCONT)
        exit = await rig.exit()
        assert (exit.signal, exit.stopped) == (signal.SIGKILL, False)


async def test_a_prepared_attempt_that_is_stopped_is_dropped(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        prepared = await rig.prepare(ports=2)
        exit = await rig.stop(grace_s=0)
        assert (exit.code, exit.stopped) == (None, True)
        again = await rig.prepare(attempt=2, ports=2, keep_ports=prepared.ports)
        assert again.ports == prepared.ports


# -- commands that come twice, late, or to nobody -------------------------------------------------


async def test_every_command_may_come_twice(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        first = await rig.prepare(ports=2)
        place = len(rig.heard)
        rig.tell(Prepare(task=TASK, attempt=1, generation=1, ports=2))
        assert (await rig.hear(TaskPrepared, after=place)).ports == first.ports
        started = await rig.start(python(FOREVER))
        place = len(rig.heard)
        rig.tell(start_message(python(FOREVER)))
        assert (await rig.hear(TaskStarted, after=place)).pids == started.pids
        rig.tell(Prepare(task=TASK, attempt=1, generation=1, ports=2))
        await rig.hear(TaskJoined, after=place)
        await until(lambda: agent.marked() == list(started.pids))
        exit = await rig.stop(grace_s=0)
        place = len(rig.heard)
        rig.tell_stop(1, grace_s=0)
        assert (await rig.hear(TaskExited, after=place)).exit == exit
        place = len(rig.heard)
        rig.tell(start_message(python(FOREVER)))
        assert (await rig.hear(TaskExited, after=place)).exit == exit


async def test_an_attempt_is_fenced_by_a_newer_one_and_by_a_stop(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        old = await rig.start(python(STUBBORN))
        await rig.prepare(attempt=2)
        assert not alive(old.pids[0])
        new = await rig.start(python(FOREVER), attempt=2)
        # What is still said of the older one changes nothing.
        rig.tell(Prepare(task=TASK, attempt=1, generation=1, ports=1))
        rig.tell(start_message(python(FOREVER), attempt=1))
        place = len(rig.heard)
        rig.tell_stop(1, grace_s=0)
        await rig.hear(TaskExited, after=place)
        await until(lambda: agent.marked() == list(new.pids))
        # A stop of one that never came is answered, and it can't come any more.
        rig.tell_stop(4, grace_s=0)
        assert (await rig.exit(4)).detail == "the agent does not hold this attempt"
        place = len(rig.heard)
        rig.tell(Prepare(task=TASK, attempt=4, generation=4, ports=0))
        await rig.hear(TaskExited, lambda m: m.attempt == 4, after=place)
        await rig.prepare(attempt=5)


# -- ports ---------------------------------------------------------------------------------------


async def test_a_kept_port_that_is_taken_is_a_taken_port(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        with socket.create_server(("127.0.0.1", 0)) as thief:
            port = thief.getsockname()[1]
            rig.tell(Prepare(task=TASK, attempt=1, generation=1, ports=1, keep_ports=(port,)))
            exit = await rig.exit()
        assert (exit.port_taken, exit.port, exit.transient) == (True, port, True)
        assert str(port) in exit.detail
        assert not exit.failed_to_start


@pytest.mark.parametrize("held", [True, False])
async def test_a_failure_to_bind_that_names_no_port_is_believed_of_one_another_program_has(
    tmp_path: Path, held: bool
) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        (port,) = (await rig.prepare()).ports
        go = tmp_path / "go"
        code = (
            f"import os, sys, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
            "print('RuntimeError: Could not start gRPC server', file=sys.stderr); sys.exit(1)"
        )
        await rig.start(python(code))
        with contextlib.ExitStack() as stack:
            if held:
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            go.touch()
            exit = await rig.exit()
        assert (exit.port_taken, exit.port) == ((True, port) if held else (False, None))


@pytest.mark.parametrize("shares", [True, False])
async def test_a_port_is_held_on_only_if_the_program_shares(tmp_path: Path, shares: bool) -> None:
    async with Rig(tmp_path) as rig:
        await rig.agent()
        prepared = await rig.prepare()
        env = {"TF_GRPC_REUSE_PORT": "true"} if shares else {}
        code = f"import socket; socket.create_server(('127.0.0.1', {prepared.ports[0]}))"
        rig.tell(start_message(python(code, **env)))
        exit = await rig.exit()
        assert (exit.code == 0) is not shares
        said = "was taken (Howdah holds it" in describe_exit(exit)
        assert said is shares
        assert ('set TF_GRPC_REUSE_PORT = "0" under [env]' in exit.detail) is shares


# -- small things --------------------------------------------------------------------------------


async def test_a_request_for_a_checkpoint_is_a_file_that_is_gone_in_the_next_attempt(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        code = (
            "import os, time\np = os.environ['HOWDAH_CHECKPOINT_REQUEST']\n"
            "print(os.path.exists(p))\n"
            "while not os.path.exists(p): time.sleep(0.01)\n"
            "print(open(p).read())"
        )
        await rig.prepare()
        await rig.start(python(code))
        await until(lambda: agent.log())
        rig.tell(NotifyCheckpoint(container_id="c1", task=TASK, attempt=1, reason="preempted"))
        assert (await rig.exit()).code == 0
        assert agent.log() == b"False\npreempted\n\n"
        await rig.run(shell('test ! -e "$HOWDAH_CHECKPOINT_REQUEST"'), attempt=2)
        assert (await rig.exit(2)).code == 0


async def test_a_request_for_a_checkpoint_is_a_signal_to_those_who_handle_it(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        spec = {"job_id": "j", "store": str(tmp_path / "store"), "folder": "checkpoints"}
        handling = (
            "import os, signal, sys\nsignal.signal(signal.SIGUSR1, lambda *_: os._exit(7))\n"
            + FOREVER
        )
        (rig.source / "handling.py").write_text(handling)
        await rig.prepare(checkpoint=spec | {"signal": "SIGUSR1"})
        # Neither the shell nor `sleep` handles it: both would die of it.
        await rig.start(shell(f"sleep 1000 & {sys.executable} -u handling.py; echo ended $?"))
        await until(lambda: agent.log())
        rig.tell(NotifyCheckpoint(container_id="c1", task=TASK, attempt=1, reason="preempted"))
        assert (await rig.exit()).code == 0
        assert agent.log() == b"up\nended 7\n"


async def test_ranks_that_load_when_their_launcher_has_the_signal_get_it_later_and_each_once(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        spec = {"job_id": "j", "store": str(tmp_path / "store"), "folder": "checkpoints"}
        rank = (
            "import os, pathlib, signal, sys, time\n"
            "before, own = map(pathlib.Path, sys.argv[1:])\n"
            "while not before.exists(): time.sleep(0.01)\n"
            "def had(*_):\n"
            "    print(own, flush=True)\n"
            "    own.touch()\n"
            "    if own.name == 'second': os._exit(0)\n"
            "signal.signal(signal.SIGUSR1, had)\n"
            "while True: time.sleep(60)\n"
        )
        launcher = (
            "import os, pathlib, signal, subprocess, sys, time\n"
            "def had(*_):\n"
            "    print('launcher', flush=True)\n"
            "    if os.fork() == 0:\n"  # it handles the signal from its birth
            "        while True: time.sleep(60)\n"
            "    pathlib.Path('launcher').touch()\n"
            "signal.signal(signal.SIGUSR1, had)\n"
            "names = ['launcher', 'first', 'second']\n"
            "ranks = [subprocess.Popen([sys.executable, 'rank.py', *each])"
            " for each in zip(names, names[1:])]\n"
            "print('up', flush=True)\n"
            "sys.exit(ranks[-1].wait())\n"
        )
        (rig.source / "rank.py").write_text(rank)
        await rig.prepare(checkpoint=spec | {"signal": "SIGUSR1"})
        await rig.start(python(launcher))
        await until(lambda: agent.log())
        rig.tell(NotifyCheckpoint(container_id="c1", task=TASK, attempt=1, reason="preempted"))
        assert (await rig.exit()).code == 0
        assert agent.log() == b"up\nlauncher\nfirst\nsecond\n"


async def test_an_agent_that_is_told_to_go_ends_its_program_and_says_how(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        started = await rig.start(python(FOREVER))
        rig.tell(Shutdown(grace_s=10))
        assert await agent.code() == 0
        exit = await rig.exit()
        assert exit == Exit(signal=15, stopped=True, tail=exit.tail)
        assert not alive(started.pids[0])
