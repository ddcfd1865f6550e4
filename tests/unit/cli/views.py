"""Status documents of jobs that ended in every way, for the tests of what is printed."""

from __future__ import annotations

import msgspec

from howdah.wire.status import FailureView, JobView, TaskView, WebLink

START = 1_800_000_000.0


def task(index: int, **fields: object) -> TaskView:
    values = {
        "task": f"worker:{index}",
        "role": "worker",
        "index": index,
        "state": "succeeded",
        "attempt": 1,
        "generation": 1,
        "rank": index,
        "host": "127.0.0.1",
        "since": START + 5,
        "exit_code": 0,
    }
    return msgspec.convert(values | fields, TaskView)


SUCCEEDED = JobView(
    job_id="digits-20270115-080000-k3f9",
    name="digits",
    framework="pytorch",
    user="ada",
    backend="local",
    phase="finished",
    outcome="succeeded",
    exit_code=0,
    reason="all tracked tasks have succeeded",
    generation=1,
    incarnation=1,
    submitted=START,
    started=START + 0.5,
    finished=START + 34.2,
    tasks=(task(0, step=300), task(1, step=300)),
    checkpoint="000003",
    directory="/home/ada/.howdah/jobs/ada/digits-20270115-080000-k3f9",
)

KILLED = FailureView(
    task="worker:0",
    attempt=1,
    generation=1,
    cause="signal",
    what="worker:0's user process was killed (SIGKILL)",
    advice="Something outside Howdah sent the signal.",
    signal="SIGKILL",
    time=START + 10,
    counted=True,
)

CRASH = FailureView(
    task="worker:1",
    attempt=2,
    generation=2,
    cause="user-code",
    what="worker:1 exited with code 42",
    advice="The program ended with an error. Its last lines are shown; the whole log is one "
    "`howdah logs` away.",
    exit_code=42,
    time=START + 20,
    counted=True,
    tail=("Traceback (most recent call last):", '  File "train.py", line 7', "ValueError: boom"),
)

FAILED = msgspec.structs.replace(
    SUCCEEDED,
    outcome="failed",
    exit_code=1,
    reason="worker:1 exited with code 42; all 2 attempts are spent",
    advice=CRASH.advice,
    restarts=1,
    generation=2,
    tasks=(
        task(0, state="ended", attempt=2, exit_code=None, signal="SIGTERM"),
        task(1, state="ended", attempt=2, exit_code=42),
    ),
    failures=(KILLED, CRASH),
)

STOPPED = msgspec.structs.replace(
    SUCCEEDED,
    outcome="stopped",
    exit_code=130,
    reason="stopped by ada: SIGINT",
    tasks=(task(0, state="ended", exit_code=None, signal="SIGTERM"),),
    checkpoint=None,
)

TIMED_OUT = msgspec.structs.replace(
    SUCCEEDED,
    outcome="timed-out",
    exit_code=4,
    reason="allocation time-out after 60s: no container for worker:1",
    advice="Ask for less, wait longer (`[timeouts] allocation`), or free resources.",
    tasks=(task(0, state="idle", attempt=0, exit_code=None), task(1, state="waiting", attempt=0)),
    checkpoint=None,
)

RUNNING = msgspec.structs.replace(
    SUCCEEDED,
    phase="running",
    outcome=None,
    exit_code=None,
    reason="",
    finished=None,
    tasks=(
        task(0, state="running", exit_code=None, cpu=0.93, rss_mb=1536.0, step=120, last_line="ä"),
        task(1, state="running", exit_code=None, cpu=0.97, rss_mb=700.0, step=118, gpu=0.5),
    ),
    page="http://127.0.0.1:41234/",
    links=(WebLink(name="TensorBoard", href="proxy/tensorboard:0/"),),
)
