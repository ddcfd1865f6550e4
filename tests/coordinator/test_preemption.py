"""A container is taken back: programs are asked to save, and go on from there. All processes are real."""

from __future__ import annotations

import sys
from pathlib import Path

from howdah.spec.model import Checkpoint, Job, Role
from tests.coordinator.fakes import until
from tests.coordinator.processes import Processes, all_here
from tests.coordinator.world import in_loop_for, world

SCRIPT = """
import signal, time
from howdah import task

me = task.context()
signal.signal(signal.SIGUSR1, lambda *_: print("signalled", flush=True))
saved = me.checkpoint_dir / "saved"
print("begun from", saved.read_text() if saved.exists() else "nothing", flush=True)
deadline = time.monotonic() + 60
while time.monotonic() < deadline:
    task.report(step=1)  # so that it counts as having found its peers
    if task.checkpoint_requested():
        part = saved.with_name("saved.tmp")
        part.write_text(f"attempt {me.attempt}")
        part.rename(saved)
        task.checkpoint_saved()
        print("saved", flush=True)
    if me.attempt > 1:
        break
    time.sleep(0.02)
"""


@in_loop_for(80)
async def test_a_preempted_gang_saves_and_goes_on_elsewhere_at_nobodys_expense(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    job_file = Job(
        name="fake",
        framework="pytorch",
        command=f"{sys.executable} train.py; true",  # a shell: the signal must not end it
        roles={"worker": Role(instances=2)},
        checkpoint=Checkpoint(settle="50ms", signal="SIGUSR1"),
    )
    async with world(tmp_path, job_file) as job:
        backend = job.backend = Processes()
        try:
            coordinator = job.start()
            await all_here(job)
            logs = [job.directory.log_path(task, 1) for task in coordinator.live_job.tasks()]
            await until(lambda: all("begun" in log.read_text() for log in logs))
            task = coordinator.machine.state.tasks["worker:1"]
            assert task.container_id is not None

            def saved() -> bool:
                printed = [set(log.read_text().splitlines()) for log in logs]
                published = any(job.directory.checkpoints.glob("*/manifest.json"))
                return published and all({"signalled", "saved"} <= lines for lines in printed)

            await backend.preempt(task.container_id, over=saved)
            final = await job.finished()
            assert final.outcome == "succeeded"
            for log in logs:
                assert {"signalled", "saved"} <= set(log.read_text().splitlines())
            again = [
                job.directory.log_path(task, 2).read_text() for task in coordinator.live_job.tasks()
            ]
            assert all("begun from attempt 1" in text for text in again)
            (failure,) = final.failures
            assert (failure.cause, failure.counted) == ("preempted", False)
            assert failure.task == "worker:1"
            assert len(backend.processes) == 3, "only what was taken was asked for again"
        finally:
            await backend.end()
