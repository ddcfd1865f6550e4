"""The coordinator's small parts, alone."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import msgspec
import pytest

from howdah.coordinator.agents.heartbeats import STALL_S, TICK_S, HeartbeatMonitor, Metrics
from howdah.coordinator.driver import Clock
from howdah.coordinator.event_log import EventLog
from howdah.coordinator.job_logs import KEPT, LogWindow, save_stacks
from howdah.coordinator.status import LiveState, StatusDocument, encoded
from howdah.core.messages import AgentSilent, Event, Record, StacksTaken, Task
from howdah.core.plan import Plan, RolePlan
from howdah.core.state import JobState
from howdah.storage.jobdir import JobDirectory
from howdah.storage.metrics import TaskSample
from howdah.wire.messages import Heartbeat, RecordUpdate, Sample, WebAddress, WebWithdrawn
from howdah.wire.status import JobView, TaskView

TASK = Task("worker", 0)


def test_a_clock_does_not_go_back_when_the_hosts_does() -> None:
    wall, steady = [1000.0], [5.0]
    clock = Clock(lambda: wall[0], lambda: steady[0])
    steady[0] += 2.0
    wall[0] -= 600.0
    assert clock.now() == 1002.0
    clock.not_before(5000.0)
    assert clock.now() == 5000.0
    clock.not_before(10.0)
    steady[0] += 1.0
    assert clock.now() == 5001.0


def test_a_window_gives_every_byte_once_however_chunks_overlap(chance: random.Random) -> None:
    written = chance.randbytes(5000)
    window = LogWindow(TASK, 1, 0)
    got = bytearray()
    while len(got) < len(written):
        start = chance.randrange(max(0, window.end - 50), window.end + 1)
        window.push(start, written[start : start + chance.randrange(1, 120)])
        while data := window.take(len(got), chance.randrange(1, 60)):
            got += data
    assert bytes(got) == written


def test_a_window_keeps_only_its_newest_bytes() -> None:
    window = LogWindow(TASK, 1, 0)
    for n in range(100):
        window.push(n * 10_000, b"x" * 10_000)
    assert window.end == 1_000_000
    assert KEPT <= window.end - window.start + 10_000 <= KEPT + 20_000
    assert window.take(0, 10) == b""
    assert window.take(window.start, 10) == b"x" * 10


def test_a_window_knows_when_its_bytes_were_written() -> None:
    window = LogWindow(TASK, 1, 0)
    window.push(0, b"x" * 10, ((0, 1000.0), (6, 1001.0)))
    window.push(10, b"x" * 10, ((6, 1001.0), (12, 1002.0)))
    assert window.times(0, 20) == ((0, 1000.0), (6, 1001.0), (12, 1002.0))
    assert window.times(7, 12) == ((6, 1001.0),)
    for n in range(2, 100):
        window.push(n * 10_000, b"x" * 10_000, ((n * 10_000, 1000.0 + n),))
    assert window.times(window.start, window.start + 1) == (
        (window.start, 1000.0 + window.start / 1e4),
    )
    assert window.times(0, 20) == ()


def test_a_window_begins_anew_after_a_gap() -> None:
    window = LogWindow(TASK, 1, 0)
    window.push(0, b"abc")
    window.push(10, b"xyz")
    assert (window.start, window.end) == (10, 13)
    assert window.take(2, 5) == b""
    assert window.take(11, 5) == b"yz"
    assert not window.push(4, b"old")


def test_records_are_read_from_any_place() -> None:
    events = EventLog()
    updates = [
        RecordUpdate(seq=n, time=0.0, record=Record(kind="k", text=str(n))) for n in (2, 5, 9)
    ]
    events.record(updates)
    assert [u.seq for u in events.after(0)] == [2, 5, 9]
    assert [u.seq for u in events.after(2)] == [5, 9]
    assert [u.seq for u in events.after(3, limit=1)] == [5]
    assert events.after(9) == []


def test_metrics_of_a_large_job_are_thinned_and_lose_no_reported_name() -> None:
    metrics = Metrics(1000)  # one sample in ten seconds of each task
    for second in range(100):
        metrics.take(TASK, 1, Sample(time=1000.0 + second, values={f"v{second % 10}": second}))
    kept = metrics.since(TASK, 0.0)
    assert [sample.time for sample in kept] == [1000.0 + 10 * n for n in range(10)]
    assert kept[1].values == {**{f"v{n}": n for n in range(1, 10)}, "v0": 10}
    assert len(metrics.unstored()) == 10
    assert metrics.unstored() == []
    assert [sample.time for sample in metrics.since(TASK, 1080.0)] == [1090.0]


def test_the_last_values_of_a_program_are_kept_when_they_come_soon_after_others() -> None:
    metrics, other = Metrics(200), Task("worker", 1)  # one sample in two seconds of each task
    metrics.take(TASK, 1, Sample(time=100.0, rss_mb=1.0))
    metrics.take(TASK, 1, Sample(time=100.6, rss_mb=1.0, values={"loss": 0.5}))
    metrics.take(TASK, 1, Sample(time=101.0, values={"accuracy": 0.97}))
    assert len(metrics.unstored()) == 1, "there are not more samples than the job may keep"
    metrics.take(other, 1, Sample(time=102.0, rss_mb=1.0))
    last = Sample(time=101.0, values={"loss": 0.5, "accuracy": 0.97})
    assert TaskSample(task=TASK, attempt=1, sample=last) in metrics.unstored()
    assert metrics.since(TASK, 100.0) == [last]


def test_the_last_values_of_an_attempt_are_not_the_next_ones() -> None:
    metrics = Metrics(200)
    metrics.take(TASK, 1, Sample(time=100.0))
    metrics.take(TASK, 1, Sample(time=101.0, values={"accuracy": 0.97}))
    metrics.take(TASK, 2, Sample(time=130.0))
    metrics.take(TASK, 2, Sample(time=131.0, values={"accuracy": 0.1}))
    assert [(each.attempt, each.sample.values) for each in metrics.unstored(last=True)] == [
        (1, {}),
        (1, {"accuracy": 0.97}),
        (2, {}),
        (2, {"accuracy": 0.1}),
    ]


def test_a_new_coordinator_shows_what_former_ones_stored_before_its_own() -> None:
    metrics = Metrics(2)
    metrics.take(TASK, 1, Sample(time=50.0))
    metrics.remember(
        TaskSample(task=TASK, attempt=1, sample=Sample(time=float(n))) for n in (10, 20)
    )
    assert [sample.time for sample in metrics.since(TASK, 0.0)] == [10.0, 20.0, 50.0]
    assert len(metrics.unstored()) == 1, "what is stored is not stored again"


def test_a_new_attempt_shows_nothing_of_the_old_one() -> None:
    live = LiveState()
    live.heartbeat(TASK, Heartbeat(attempt=1, step=9.0, log_size=100), 50.0)
    live.heartbeat(TASK, Heartbeat(attempt=2), 51.0)
    assert live.of(TASK, 1) is None
    measured = live.of(TASK, 2)
    assert measured is not None and (measured.step, measured.log_size) == (None, 0)
    live.heartbeat(TASK, Heartbeat(attempt=1, step=10.0), 52.0)
    assert live.of(TASK, 2) is measured, "a late word of the old one changes nothing"


def test_how_long_the_rest_takes_is_told_at_the_attempts_own_pace() -> None:
    live = LiveState()

    def left(step: float | None, now: float, total: float | None = 1000.0, attempt: int = 1):
        live.heartbeat(TASK, Heartbeat(attempt=attempt, step=step, total=total), now)
        measured = live.of(TASK, attempt)
        assert measured is not None
        return measured.left_s(now)

    assert left(400.0, 50.0) is None, "it went on at 400: there is no pace yet"
    assert left(500.0, 60.0) == 50.0
    assert left(None, 70.0, None) == 100.0, "it stands still"
    assert left(1000.0, 80.0) == 0.0
    assert left(1001.0, 81.0) is None, "more than there are"
    assert left(0.0, 90.0, attempt=2) is None
    assert left(300.0, 100.0, attempt=2) == 23.0
    assert left(2.0, 110.0, attempt=2) is None, "it counts anew"
    assert left(12.0, 120.0, attempt=2) == 990.0
    assert left(5.0, 1.0, None, attempt=3) is None


class NoLogs:
    """The coordinator cannot see the logs; who asks is counted."""

    def __init__(self) -> None:
        self.asked = 0

    async def last_line(self, task: Task, attempt: int) -> str | None:
        self.asked += 1
        return None


def test_a_line_an_agent_tells_is_shown_and_its_log_not_read() -> None:
    live, logs = LiveState(), NoLogs()

    def line() -> str | None:
        asyncio.run(live.read_last_lines(logs.last_line))
        task = live.of(TASK, 1)
        assert task is not None
        return task.last_line

    live.heartbeat(TASK, Heartbeat(attempt=1, log_size=10, last_line="epoch 1"), 1.0)
    assert line() == "epoch 1"
    live.heartbeat(TASK, Heartbeat(attempt=1, log_size=20), 2.0)
    assert line() == "epoch 1", "it has not changed"
    live.heartbeat(TASK, Heartbeat(attempt=1, log_size=30, last_line="epoch 2"), 3.0)
    assert line() == "epoch 2"
    assert logs.asked == 0
    live.heartbeat(TASK, Heartbeat(attempt=2, log_size=5), 4.0)
    asyncio.run(live.read_last_lines(logs.last_line))
    assert logs.asked == 1, "an agent that does not tell: its log is read"


def test_stacks_an_agent_could_not_save_are_saved(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    stacks = StacksTaken(task=TASK, attempt=2, text="Thread 1\n  train.py:3\n")
    path = save_stacks(directory, stacks)
    assert path == "stacks/worker-0-2.txt"
    assert (tmp_path / path).read_text() == stacks.text
    assert (tmp_path / path).stat().st_mode & 0o777 == 0o600
    assert save_stacks(directory, StacksTaken(task=TASK, attempt=3, problem="no py-spy")) == ""
    assert save_stacks(JobDirectory(tmp_path / "gone"), stacks) == ""


def test_a_page_that_is_announced_anew_to_the_next_coordinator_is_no_news() -> None:
    page = WebAddress(task=TASK, attempt=1, name="TensorBoard", host="h", port=1)
    live = LiveState()
    record = live.announce(page)
    assert record is not None
    successor = LiveState()
    successor.remember([record])
    assert not successor.pages(), "who listens there now is the agent's to say"
    assert successor.announce(page) is None
    assert successor.pages() == {TASK: page}
    gone = WebWithdrawn(task=TASK, attempt=1, name="TensorBoard")
    withdrawn = successor.withdraw(gone)
    assert withdrawn is not None
    assert withdrawn.text == "worker:0 no longer serves TensorBoard"
    assert not successor.pages()
    assert successor.withdraw(gone) is None
    assert successor.announce(page) == record


def test_a_status_is_made_only_when_somebody_looks() -> None:
    made: list[int] = []

    def build() -> JobView:
        made.append(1)
        return JobView(job_id="j", name="j", framework="f", user="u", backend="b", phase="running")

    status = StatusDocument(build)
    for _ in range(10):
        status.touch()
    assert not made
    assert status.json() == status.json()
    assert len(made) == 1
    status.touch()
    status.view()
    assert len(made) == 2


def test_a_document_too_large_for_a_frame_keeps_what_is_worth_telling() -> None:
    tasks = tuple(
        TaskView(
            task=f"w:{n}",
            role="w",
            index=n,
            state="ended" if n % 100 == 99 else "running",
            attempt=1,
            generation=1,
        )
        for n in range(1000)
    )
    view = JobView(
        job_id="j", name="j", framework="f", user="u", backend="b", phase="running", tasks=tasks
    )
    assert msgspec.json.decode(encoded(view), type=JobView) == view
    short = encoded(view, 100_000)
    assert 50_000 < len(short) <= 100_000
    shown = msgspec.json.decode(short, type=JobView).tasks
    assert sum(task.state == "ended" for task in shown) == 10
    assert [task.index for task in shown] == sorted(task.index for task in shown)


class _Monitored:
    def __init__(self) -> None:
        self.now = 1000.0
        self.events: list[Event] = []
        self.silent: list[str] = []
        self.metrics = Metrics(1)
        clock = Clock(lambda: self.now, lambda: self.now)
        state = JobState()
        plan = Plan(job_id="j", roles=(RolePlan(name="worker", minimum=1, maximum=1),))
        self.monitor = HeartbeatMonitor(
            plan,
            lambda: state,
            self.events.append,
            LiveState(),
            self.metrics,
            clock,
            beat_s=1.0,
            silent=self.silent.append,
        )

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += TICK_S
            self.monitor.tick(self.now)


@pytest.mark.parametrize("apart_s", [-600.0, 600.0])
def test_what_hosts_measure_is_on_the_jobs_clock(apart_s: float) -> None:
    world = _Monitored()
    for second in range(3):
        world.pass_time(1)
        theirs = world.now + apart_s if second < 2 else world.now  # it is set right
        sample = Sample(time=theirs, values={"loss": float(second)})
        world.monitor.heartbeat("c1", TASK, Heartbeat(attempt=1, sample=sample))
    kept = world.metrics.since(TASK, 1000.0)
    assert [(each.time, each.values) for each in kept] == [
        (1001.0 + second, {"loss": float(second)}) for second in range(3)
    ]


def test_an_agent_that_misses_its_beats_is_silent_once() -> None:
    world = _Monitored()
    world.monitor.connected("c1")
    world.pass_time(10)
    world.monitor.heartbeat("c1", TASK, Heartbeat())
    world.pass_time(14)
    assert not world.events
    world.pass_time(60)
    assert [type(event) for event in world.events] == [AgentSilent]
    assert world.silent == ["c1"]


def test_a_coordinator_that_stood_still_blames_nobody() -> None:
    world = _Monitored()
    world.monitor.connected("c1")
    world.now += 100 + STALL_S
    world.monitor.tick(world.now)
    assert not world.events


def test_a_closed_connection_is_not_silent() -> None:
    world = _Monitored()
    world.monitor.connected("c1")
    world.monitor.disconnected("c1")
    world.pass_time(60)
    assert not world.events
