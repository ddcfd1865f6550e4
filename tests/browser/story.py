"""A job with a past, as the page would find it."""

from __future__ import annotations

import math
import time

from howdah.core.messages import Level
from howdah.wire.status import FailureView
from tests.unit.web.fake_job import FakeJob

ADVICE = "Something outside Howdah sent the signal: see the node's kernel log."


def running(job: FakeJob, *, seconds: float = 120.0) -> None:
    """All tasks run, in their first attempt, for that long."""
    begin = time.time() - seconds
    job.change(submitted=begin, started=begin + 3, generation=1, phase="running")
    job.say("submitted", "job digits", at=begin)
    job.say("generation-formed", f"generation 1: {len(job.tasks)} tasks", at=begin + 2)
    for number, name in enumerate(job.tasks):
        job.task(
            name,
            state="running",
            attempt=1,
            generation=1,
            since=begin + 3,
            started=begin + 3,
            host=f"node-{number % 4}",
            container=f"container-{number}",
            ports=(20000 + number,),
            pids=(4000 + number,),
            cpu=1.5,
            rss_mb=640.0 + number,
            step=float(seconds // 1),
            last_line=f"step {seconds:.0f} of {name}",
        )
        job.say("task-started", f"{name} started", task=name, attempt=1, at=begin + 3)
        job.print(name, "".join(f"step {step} of {name}\n" for step in range(int(seconds))))
    job.say("running", "all programs run and have joined", at=begin + 5)
    for name in list(job.tasks)[:8]:
        for second in range(5, int(seconds)):
            job.measure(
                name,
                at=begin + second,
                cpu=1.5 + math.sin(second / 7) / 4,
                rss_mb=600.0 + second,
                values={"loss": math.exp(-second / 40)},
                step=second * 10,
            )


def kill(job: FakeJob, name: str) -> None:
    """One task's program is killed; the gang breaks."""
    job.task(name, state="ended", signal="SIGKILL", since=time.time())
    job.say(
        "task-failed",
        f"{name}'s user process was killed (SIGKILL)",
        level=Level.ERROR,
        task=name,
        attempt=1,
    )
    job.fail(
        FailureView(
            task=name,
            attempt=1,
            generation=1,
            cause="signal",
            what=f"{name}'s user process was killed (SIGKILL)",
            advice=ADVICE,
            signal="SIGKILL",
            time=time.time(),
            counted=True,
            tail=("step 118", "step 119"),
        )
    )
    job.change(phase="restarting")
    job.say("generation-ended", f"{name} was killed [signal]; restart 1 of 3", level=Level.ERROR)
