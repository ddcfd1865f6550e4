"""``/metrics`` of the portal: jobs by state, and those that wait or run, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from howdah.client.lookup.states import GOING_ON, STATES
from howdah.coordinator.web import prometheus
from howdah.portal.index import FoundJobs

CONTENT_TYPE = prometheus.CONTENT_TYPE
_LABEL_MAX = 128
"""Characters of a label's value: a job's name may be as long as its user likes."""


class _Jobs(Collector):
    def __init__(self, states: Mapping[str, int], unended: FoundJobs) -> None:
        self._states = states
        self._unended = unended

    def collect(self) -> Iterator[Metric]:
        counts = GaugeMetricFamily("howdah_portal_jobs", "Jobs by state.", labels=["state"])
        for state in STATES:
            counts.add_metric([state], self._states.get(state, 0))
        yield counts
        rows = self._unended.rows
        known = sum(self._states.get(state, 0) for state in GOING_ON)
        yield GaugeMetricFamily(
            "howdah_portal_jobs_left_out",
            "Waiting and running jobs, the oldest, that are too many to be named below.",
            value=max(0, known - len(rows)) if self._unended.more else 0,
        )
        info = InfoMetricFamily("howdah_portal_job", "What job this is.", labels=["job_id"])
        running = GaugeMetricFamily(
            "howdah_portal_job_running", "1 if it runs, 0 if it waits.", labels=["job_id"]
        )
        tasks = GaugeMetricFamily("howdah_portal_job_tasks", "Its tasks.", labels=["job_id"])
        restarts = CounterMetricFamily(
            "howdah_portal_job_restarts", "Restarts after a failure.", labels=["job_id"]
        )
        submitted = GaugeMetricFamily(
            "howdah_portal_job_submitted_timestamp_seconds",
            "When it was submitted.",
            labels=["job_id"],
        )
        for row in rows:
            names = ("name", "user", "framework", "backend", "queue")
            what = {name: str(getattr(row, name))[:_LABEL_MAX] for name in names}
            info.add_metric([row.job_id], what)
            running.add_metric([row.job_id], float(row.state == "running"))
            tasks.add_metric([row.job_id], row.tasks)
            restarts.add_metric([row.job_id], row.restarts)
            submitted.add_metric([row.job_id], row.submitted)
        yield from (info, running, tasks, restarts, submitted)


def text(states: Mapping[str, int], unended: FoundJobs) -> bytes:
    """One scrape.

    Args:
        states: how many jobs the reader may see in each.
        unended: of those the ones that wait or run, newest first.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Jobs(states, unended))
    return prometheus.text(registry)
