"""Logs where the job directory is elsewhere: flat names, newest lines in beats, copies at the end."""

from __future__ import annotations

from pathlib import Path

from howdah.core.messages import DumpStacks, StacksTaken, TaskExited
from howdah.storage import logs
from howdah.wire.messages import AgentNote, FollowLog, Heartbeat, LogChunk, Shutdown
from tests.agent.rig import TASK, Agent, Rig, python, until

FOREVER = "import time\nprint('up')\nwhile True: time.sleep(60)"
COUNT = "for n in range(20000): print('line', n)"


def store(folder: Path) -> Path:
    """The job directory, which the agent cannot see but its helper can."""
    return folder / "store"


async def far(rig: Rig, **changes: object) -> Agent:
    """An agent as in a container of a cluster."""
    store(rig.folder).mkdir(exist_ok=True)
    (rig.folder / "spool").mkdir(exist_ok=True)
    settings = {
        "log_dir": str(rig.folder / "spool"),
        "log_names": "flat",
        "log_store": str(store(rig.folder)),
        "last_lines": True,
    }
    return await rig.agent(**settings | changes)


def printed(rig: Rig) -> bytes:
    """What was pushed of the followed log so far."""
    return b"".join(message.data for message in rig.heard if isinstance(message, LogChunk))


async def test_logs_have_flat_names_and_a_new_coordinator_is_told_all(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await far(rig)
        await rig.prepare()
        await rig.start(python(FOREVER))
        spool = tmp_path / "spool"
        await until((spool / "worker-0.1.log").exists)
        rig.tell(FollowLog(task=TASK, attempt=1))
        await until(lambda: printed(rig) == b"up\n")
        assert sorted(path.name for path in spool.iterdir()) == ["worker-0.1.idx", "worker-0.1.log"]
        await rig.hear(Heartbeat, lambda beat: beat.last_line == "up")
        await rig.vanish()
        before = len(rig.heard)
        await rig.begin()
        await rig.hear(Heartbeat, lambda beat: beat.last_line == "up", after=before)
        # Stacks are the coordinator's to save.
        rig.tell(DumpStacks(container_id="c1", task=TASK, attempt=1))
        stacks = await rig.hear(StacksTaken)
        assert (stacks.path, stacks.problem) == ("", "")
        assert list((tmp_path / "stacks").iterdir()) == []


async def test_the_newest_line_comes_with_beats_and_once_only(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        await far(rig)
        await rig.prepare()
        code = (
            "import sys, time\nsys.stdout.write('one\\ntwo\\npart')\n"  # at once: no beat between
            "import os\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
            "print(' and \\x1b[31mthree\\x1b[0m'); sys.exit(3)"
        )
        await rig.start(python(code))
        await rig.hear(Heartbeat, lambda beat: beat.last_line == "two")
        begun = len(rig.heard)
        await rig.hear(Heartbeat, after=begun)
        (tmp_path / "containers/c1/task/go").touch()
        await rig.exit()
        told = [b.last_line for b in rig.heard if isinstance(b, Heartbeat) and b.last_line]
        assert told[0] == "two"
        assert told[-1].endswith("three")
        assert len(told) == 2


async def test_the_log_of_an_ended_attempt_is_copied_with_all_its_parts(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await far(rig, log_max_bytes=64 * 1024, log_segments=3)
        exit = await rig.run(python(COUNT))
        assert exit.code == 0
        here = tmp_path / "spool/worker-0.1.log"
        there = store(tmp_path) / "logs/worker-0/1.log"
        await until(there.exists)
        assert there.read_bytes() == here.read_bytes()
        assert logs.size(there) == logs.size(here) > 200_000
        assert logs.tail(there, 3) == ["line 19997", "line 19998", "line 19999"]
        assert logs.index_path(there).exists()
        assert len(list(there.parent.iterdir())) == 4
        # The next attempt goes on meanwhile, and has its own.
        await rig.run(python("print('again')"), attempt=2)
        second = there.with_name("2.log")
        await until(second.exists)
        assert second.read_text() == "again\n"
        rig.tell(Shutdown())
        assert await agent.code() == 0


async def test_an_agent_that_is_told_to_go_copies_first(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await far(rig)
        await rig.prepare()
        await rig.start(python(FOREVER))
        await rig.hear(Heartbeat, lambda beat: bool(beat.last_line))
        rig.tell(Shutdown(grace_s=5))
        assert await agent.code() == 0
        assert (store(tmp_path) / "logs/worker-0/1.log").read_text() == "up\n"
        assert isinstance(rig.heard[-1], (TaskExited, Heartbeat))


async def test_a_store_that_comes_back_gets_the_log_and_one_that_does_not_is_told_of(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path) as rig:
        place = store(tmp_path)
        await far(rig)
        place.rmdir()
        place.write_text("not a folder")
        exit = await rig.run(python("print('kept')"))
        assert exit.code == 0, "the attempt is over, whatever becomes of its log"
        place.unlink()
        log = place / "logs/worker-0/1.log"
        await until(log.exists)
        assert log.read_text() == "kept\n"
        await until(lambda: not rig.agents[0].marked() or len(rig.agents[0].marked()) <= 2)
        assert not any(isinstance(m, AgentNote) for m in rig.heard)


async def test_a_copy_that_cannot_be_made_holds_nobody_for_ever(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await far(rig, log_store="nonsense://nowhere/job")
        await rig.run(python("print('kept')"))
        rig.tell(Shutdown())
        assert await agent.code() == 0
        (note,) = [m for m in rig.heard if isinstance(m, AgentNote)]
        assert "nonsense" in note.text
        assert str(tmp_path / "spool/worker-0.1.log") in note.text
