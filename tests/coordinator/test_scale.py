"""Many agents: all of them start, beat and end, and cost little."""

from __future__ import annotations

import time
from pathlib import Path

from howdah.spec.model import Job, Role
from howdah.wire.messages import Sample
from tests.coordinator.fakes import until
from tests.coordinator.world import in_loop_for, world

AGENTS = 60


@in_loop_for(110)
async def test_sixty_agents_run_are_taken_over_and_end(tmp_path: Path) -> None:
    plain = Job(
        name="fake", framework="command", command="true", roles={"worker": Role(instances=AGENTS)}
    )
    async with world(tmp_path, plain) as job:
        job.start()
        agents = await until(lambda: job.backend.ready(AGENTS), limit_s=60)
        await job.kill()
        coordinator = job.start()
        await until(lambda: len(coordinator.agents) == AGENTS, limit_s=60)
        journaled = coordinator.journal.next_seq
        for _ in range(5):
            for agent in agents:
                agent.beat(sample=Sample(time=time.time(), cpu=1.0), progress_s=0.0, log_size=1)
        await until(lambda: all(coordinator.live.of(a.task, 1) for a in agents))
        state = coordinator.machine.state
        await until(lambda: all(c.connected for c in state.containers.values()))
        assert coordinator.journal.next_seq - journaled < 3 * AGENTS, "beats are not journaled"
        for agent in agents:
            agent.exit(0)
        final = await job.finished()
        assert final.outcome == "succeeded"
        assert len(job.backend.launched) == AGENTS
