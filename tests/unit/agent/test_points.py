"""Each report of a program is kept, with its step."""

from __future__ import annotations

import msgspec

from howdah.agent.monitoring.reports import Report, ReportedValues
from howdah.coordinator.agents.heartbeats import POINTS, Metrics
from howdah.core.messages import Task
from howdah.wire.messages import MAX_FRAME, Point, Sample

WORKER = Task("worker", 0)


def test_reports_between_two_heartbeats_are_all_sent_with_their_steps() -> None:
    reported = ReportedValues()
    for step in range(1000):
        reported.add(Report(step=float(step), values={"loss": float(-step)}))
    reported.add(Report(values={"late": 1.0}))
    points = reported.take_points()
    assert [point.step for point in points] == [*map(float, range(1000)), 999.0]
    assert points[7].values == {"loss": -7.0}
    assert reported.take() == {"loss": -999.0, "late": 1.0}
    assert reported.take_points() == ()


def test_they_fit_into_a_frame_whatever_their_names() -> None:
    reported = ReportedValues()
    names = [f"{number:03}{'é' * 117}" for number in range(200)]
    for _ in range(1000):
        reported.add(Report(values=dict.fromkeys(names, 0.5)))
    assert len(msgspec.msgpack.encode(reported.take_points())) < MAX_FRAME


def test_each_is_stored_once_by_the_jobs_clock() -> None:
    metrics = Metrics(1)
    points = [Point(time=90.0 + step, step=step, values={"loss": step}) for step in range(5)]
    metrics.take_points(WORKER, 1, points, 1004.0)
    metrics.take(WORKER, 1, Sample(time=1004.0, rss_mb=1.0, values={"loss": 4.0}, step=4.0))
    metrics.take(WORKER, 1, Sample(time=1005.0, values={"loss": 4.0}))
    *stored, measured = [each.sample for each in metrics.unstored(last=True)]
    assert [(each.time, each.step) for each in stored] == [(1000.0 + n, n) for n in range(5)]
    assert [each.values for each in stored] == [{"loss": n} for n in range(5)]
    assert (measured.rss_mb, measured.values) == (1.0, {})
    assert next(each.values for each in metrics.since(WORKER, 0.0)) == {"loss": 4.0}


def test_a_large_job_stores_evenly_as_many_as_there_is_room_for() -> None:
    metrics = Metrics(POINTS // 10)
    points = [Point(time=float(n), step=float(n), values={"loss": 1.0}) for n in range(100)]
    metrics.take_points(WORKER, 1, points, 100.0)
    assert [each.sample.step for each in metrics.unstored()] == [
        float(n) for n in range(0, 100, 10)
    ]
