"""Coordinators one after the other, each at another port, and agents that see no store: each new
coordinator calls them. Agents and programs are real processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from howdah.core.messages import AgentRegistered
from howdah.spec.model import Job, Role
from howdah.storage import journal
from howdah.storage.journal import EventEntry
from tests.coordinator.fakes import until
from tests.coordinator.processes import Processes, all_here
from tests.coordinator.world import World, in_loop, world

COUNTING = (
    "import itertools, time\n"
    "for n in itertools.count():\n    print(n, flush=True); time.sleep(0.02)\n"
)
JOB = Job(
    name="fake",
    framework="command",
    command=f"{sys.executable} count.py",
    roles={"worker": Role(instances=3)},
)


def pids(job: World) -> list[tuple[int, ...]]:
    return [data.pids for data in job.coordinator.machine.state.tasks.values()]


def all_registered(job: World, count: int) -> list[AgentRegistered]:
    """Registrations in the journal, once they are so many."""
    entries = journal.read(job.directory.path)
    events = [entry.event for entry in entries if isinstance(entry, EventEntry)]
    found = [event for event in events if isinstance(event, AgentRegistered)]
    return found if len(found) >= count else []


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "count.py").write_text(COUNTING)
    return tmp_path


@in_loop
async def test_each_new_coordinator_calls_the_agents_and_takes_the_running_gang_over(
    source: Path,
) -> None:
    async with world(source, JOB) as job:
        backend = job.backend = Processes()
        try:
            job.start()
            await all_here(job)
            before = pids(job)
            for incarnation in (2, 3):
                await job.kill()
                job.start()
                await all_here(job)
                state = job.coordinator.machine.state
                assert (state.incarnation, state.generation) == (incarnation, 1)
                assert pids(job) == before, "the same programs"
            ports = [address.port for address in backend.announced]
            assert len(set(ports)) == 3
            registered = await until(lambda: all_registered(job, 9))
            assert all(event.listen and event.listen[0] == "127.0.0.1" for event in registered)
            # The one that was taken over from others can end the job as any.
            await job.coordinator.live_job.stop("a test", "enough", firm=True)
            assert (await job.finished()).outcome == "stopped"
        finally:
            await backend.end()
