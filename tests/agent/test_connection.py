"""Coordinators that go, come back, refuse, or are not who they should be."""

from __future__ import annotations

import time
from pathlib import Path

from howdah.core.messages import (
    DumpStacks,
    Held,
    HeldPhase,
    StacksTaken,
    TaskExited,
    TaskPrepared,
    TaskStarted,
)
from howdah.wire.messages import Heartbeat, Refuse, Welcome
from tests.agent.rig import TASK, Rig, alive, kill, python, shell, until

SRC = str(Path(__file__).parents[2] / "src")
FOREVER = "import time\nprint('up')\nwhile True: time.sleep(60)"


async def test_programs_run_on_while_a_new_coordinator_takes_over(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        prepared = await rig.prepare(ports=2)
        started = await rig.start(shell("for i in $(seq 1000); do echo $i; sleep 0.05; done"))
        first_port = rig.port
        await rig.vanish()
        size = len(agent.log())
        await until(lambda: len(agent.log()) > size)
        await rig.begin()
        assert rig.port != first_port
        hello = await rig.connected(2)
        assert hello.pid == agent.pid
        assert hello.held is not None
        assert (hello.held.task, hello.held.attempt) == (TASK, 1)
        assert (hello.held.phase, hello.held.pids) == (HeldPhase.RUNNING, started.pids)
        assert (hello.held.ports, hello.held.joined) == (prepared.ports, True)
        assert alive(started.pids[0])
        assert (await rig.stop(grace_s=0)).signal == 9


async def test_an_end_without_a_coordinator_is_told_to_the_next_one(tmp_path: Path) -> None:
    """And the values that it reported meanwhile."""
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        go = tmp_path / "go"
        code = (
            "from howdah import task\nimport os, time\nprint('up')\n"
            f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
            "task.report(step=9, accuracy=0.97); os.kill(os.getpid(), 9)"
        )
        await rig.start(python(code, PYTHONPATH=SRC))
        await until(lambda: agent.log())
        await rig.vanish()
        rig.heard.clear()
        go.touch()
        await until(lambda: not agent.marked())
        await rig.begin()
        hello = await rig.connected(2)
        assert hello.held is not None and hello.held.exit is not None
        assert (hello.held.phase, hello.held.exit.signal) == (HeldPhase.EXITED, 9)
        last = await rig.hear(Heartbeat, lambda m: m.sample is not None)
        assert last.sample is not None
        assert (last.attempt, last.step, last.sample.values) == (1, 9, {"accuracy": 0.97})


async def test_an_end_during_the_handshake_is_not_lost(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        await rig.prepare()
        started = await rig.start(shell("echo up; sleep 1000"))
        await until(lambda: agent.log())
        await rig.vanish()

        def slow(hello: object) -> Welcome:
            # The hello says "running"; before it is answered the program ends.
            kill(started.pids[0])
            deadline = 200
            while agent.marked() and deadline:
                deadline -= 1
            return rig.welcome()

        rig.answer = slow
        await rig.begin()
        await rig.connected(2)
        assert (await rig.hear(TaskExited)).exit.signal == 9


async def test_without_a_coordinator_for_its_lease_an_agent_ends_everything(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path, lease_s=3.0) as rig:
        agent = await rig.agent()
        await rig.prepare()
        started = await rig.start(
            python("import signal; signal.signal(15, signal.SIG_IGN)\n" + FOREVER)
        )
        await until(lambda: agent.log())
        await rig.vanish()
        assert await agent.code(30) == 3
        assert not alive(started.pids[0])
        assert not agent.marked()
        assert "its lease" in agent.errors.read_text()


async def test_a_coordinator_on_the_same_host_may_stand_still_for_longer_than_the_lease(
    tmp_path: Path,
) -> None:
    """And the lease begins anew with each connection."""
    async with Rig(tmp_path, lease_s=3.0) as rig:
        rig.deaf = True
        agent = await rig.agent()
        begun = time.monotonic()
        while time.monotonic() - begun <= rig.lease_s + 1.0:
            await rig.hear(Heartbeat, after=len(rig.heard))
        await rig.vanish()
        await rig.begin()
        await rig.connected(2)
        await rig.hear(Heartbeat, after=len(rig.heard))
        assert agent.process.poll() is None


async def test_an_open_connection_on_which_nobody_hears_the_agent_does_not_keep_its_programs_alive(
    tmp_path: Path,
) -> None:
    async with Rig(tmp_path, lease_s=4.0) as rig:
        rig.host = "127.0.0.2"  # for the agent another host's
        await rig.vanish()
        await rig.begin()
        agent = await rig.agent()
        await rig.prepare()
        started = await rig.start(python(FOREVER))
        begun = time.monotonic()
        while time.monotonic() - begun <= rig.lease_s:  # it is heard, and goes on
            await rig.hear(Heartbeat, after=len(rig.heard))
        rig.deaf = True
        assert await agent.code(30) == 3
        assert not alive(started.pids[0])
        assert "its lease" in agent.errors.read_text()


async def renewed(rig: Rig) -> None:
    """Two renewals: the first may have been asked for before."""
    for _ in range(2):
        await rig.hear(Heartbeat, lambda beat: beat.renew, after=len(rig.heard))


async def test_what_a_broken_connection_may_have_lost_is_said_again(tmp_path: Path) -> None:
    async with Rig(tmp_path, lease_s=10.0) as rig:
        rig.host = "127.0.0.2"  # where it asks more often
        await rig.vanish()
        await rig.begin()
        await rig.agent()
        await rig.prepare()
        await rig.start(python(FOREVER))
        rig.deaf = True
        rig.tell(DumpStacks(container_id="c1", task=TASK, attempt=1))
        await rig.hear(StacksTaken)
        await rig.vanish()
        await rig.begin()
        heard = len(rig.heard)
        await rig.connected(2)
        await rig.hear(StacksTaken, after=heard)
        rig.deaf, rig.keeps = False, False
        await renewed(rig)
        await rig.vanish()
        await rig.begin()
        heard = len(rig.heard)
        await rig.connected(3)
        await rig.hear(StacksTaken, after=heard)  # it was heard by one that died before it wrote
        rig.keeps = True
        await renewed(rig)
        await rig.vanish()
        await rig.begin()
        heard = len(rig.heard)
        await rig.connected(4)
        await rig.hear(Heartbeat, after=heard)
        assert not [said for said in rig.heard[heard:] if isinstance(said, StacksTaken)]


async def test_an_agent_that_is_refused_ends_and_does_not_come_back(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        rig.answer = lambda hello: Refuse(reason="this container was given up")
        agent = rig.spawn()
        assert await agent.code() == 1
        assert len(rig.hellos) == 1
        assert "this container was given up" in agent.errors.read_text()


async def test_an_agent_that_is_sent_away_later_ends_its_program(tmp_path: Path) -> None:
    """Its first coordinator came late, and the next ones hung up at once."""
    async with Rig(tmp_path) as rig:
        await rig.vanish()
        (tmp_path / "coordinator.json").unlink()
        answers = [ConnectionError("hung up by the test"), ConnectionError("again")]

        def answer(hello: object) -> Welcome:
            if answers:
                raise answers.pop()
            return rig.welcome()

        rig.answer = answer
        agent = rig.spawn()
        await until(agent.watchdog_or_none)
        await rig.begin()
        await rig.connected(3)
        await rig.prepare()
        started = await rig.start(python(FOREVER))
        rig.tell(Refuse(reason="go away"))
        assert await agent.code() == 1
        assert not alive(started.pids[0])


async def test_addresses_are_taken_from_the_launch(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        known = (("127.0.0.1", 1), ("127.0.0.1", rig.port))
        await rig.agent(coordinator_file=None, coordinators=known)
        assert rig.hellos[-1].host == "127.0.0.1"
        await rig.agent(container_id="c2", host="127.0.0.5")
        assert rig.hellos[-1].host == "127.0.0.5"
        await rig.agent(container_id="c3", interface="lo")
        assert rig.hellos[-1].host == "127.0.0.1"


async def test_a_lost_coordinator_in_the_middle_of_everything_changes_no_outcome(
    tmp_path: Path,
) -> None:
    """Break the connection at each step; the new coordinator goes on from what is held."""
    async with Rig(tmp_path) as rig:
        await rig.agent()

        async def next_coordinator() -> Held:
            count = len(rig.hellos)
            await rig.vanish()
            await rig.begin()
            held = (await rig.connected(count + 1)).held
            assert held is not None
            return held

        for attempt in (1, 2):
            prepared = await rig.prepare(attempt, ports=2)
            held = await next_coordinator()
            assert (held.phase, held.ports) == (HeldPhase.PREPARED, prepared.ports)
            await rig.hear(TaskPrepared, lambda m, a=attempt: m.attempt == a)
            await rig.start(shell("echo up; sleep 1000"), attempt=attempt)
            held = await next_coordinator()
            assert (held.attempt, held.phase) == (attempt, HeldPhase.RUNNING)
            await rig.hear(TaskStarted, lambda m, a=attempt: m.attempt == a)
            rig.tell_stop(attempt, grace_s=0)
            held = await next_coordinator()
            if held.phase is HeldPhase.RUNNING:  # the stop was lost with the connection
                rig.tell_stop(attempt, grace_s=0)
            exit = await rig.exit(attempt)
            held = await next_coordinator()
            assert (held.attempt, held.exit) == (attempt, exit), "until a newer one comes"
