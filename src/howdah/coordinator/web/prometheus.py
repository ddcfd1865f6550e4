"""``/metrics``: the job in Prometheus' text format, from a registry of this app alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from howdah.coordinator.agents.limits import few
from howdah.core.messages import Task
from howdah.core.state import JobPhase, Outcome, TaskState
from howdah.wire.messages import Sample
from howdah.wire.status import JobView, TaskView

CONTENT_TYPE = CONTENT_TYPE_LATEST

_MIB = 1024.0 * 1024.0


class JobCollector(Collector):
    """Makes every metric from the status document at the moment of the scrape."""

    def __init__(
        self, view: Callable[[], JobView], reported: Callable[[TaskView], Mapping[str, float]]
    ) -> None:
        self._view = view
        self._reported = reported

    def describe(self) -> list[Metric]:
        """Nothing: the registry need not scrape the job to learn the names."""
        return []

    def collect(self) -> Iterator[Metric]:
        view = self._view()
        yield from _job(view)
        yield from _tasks(view, self._reported)


class ReportedMetrics:
    """The newest value of every name a task reported; each look reads only the samples since."""

    def __init__(self, samples: Callable[[Task, float], list[Sample]]) -> None:
        self._samples = samples
        self._seen: dict[str, tuple[int, float, dict[str, float]]] = {}

    def __call__(self, task: TaskView) -> Mapping[str, float]:
        """Values by name; a new attempt begins with none."""
        attempt, since, values = self._seen.get(task.task, (task.attempt, 0.0, {}))
        if attempt != task.attempt:
            values = {}
        for sample in self._samples(Task(task.role, task.index), since):
            since = sample.time
            # Samples do not name their attempt; those before its start are another's.
            if task.started is None or sample.time >= task.started:
                values = few({**values, **sample.values})
        self._seen[task.task] = (task.attempt, since, values)
        return values


def registry(
    view: Callable[[], JobView], reported: Callable[[TaskView], Mapping[str, float]]
) -> CollectorRegistry:
    """The app's own registry: two jobs in one process do not mix, nor do a host program's metrics."""
    own = CollectorRegistry(auto_describe=False)
    own.register(JobCollector(view, reported))
    return own


def text(own: CollectorRegistry) -> bytes:
    return generate_latest(own)


def _job(view: JobView) -> Iterator[Metric]:
    info = InfoMetricFamily("howdah_job", "What job this is.")
    info.add_metric(
        [],
        {
            "job_id": view.job_id,
            "name": view.name,
            "framework": view.framework,
            "user": view.user,
            "backend": view.backend,
        },
    )
    yield info
    phase = GaugeMetricFamily("howdah_job_phase", "1 for the job's phase.", labels=["phase"])
    for each in JobPhase:
        phase.add_metric([each.value], float(view.phase == each.value))
    yield phase
    outcome = GaugeMetricFamily(
        "howdah_job_outcome", "1 for the job's outcome, once decided.", labels=["outcome"]
    )
    for each in Outcome:
        outcome.add_metric([each.value], float(view.outcome == each.value))
    yield outcome
    yield GaugeMetricFamily(
        "howdah_job_generation", "Lives of the gang so far.", value=view.generation
    )
    yield GaugeMetricFamily(
        "howdah_job_incarnation", "Lives of the coordinator so far.", value=view.incarnation
    )
    yield CounterMetricFamily(
        "howdah_job_restarts", "Restarts after a failure.", value=view.restarts
    )
    for name, help_text, moment in (
        ("submitted", "When the job was submitted.", view.submitted),
        ("started", "When the first program ran.", view.started),
        ("finished", "When the job ended.", view.finished),
    ):
        if moment is not None:
            yield GaugeMetricFamily(f"howdah_job_{name}_timestamp_seconds", help_text, value=moment)
    failures = CounterMetricFamily(
        "howdah_job_failures", "Failures by what they were put down to.", labels=["cause"]
    )
    for cause, number in sorted(Counter(f.cause for f in view.failures).items()):
        failures.add_metric([cause], number)
    yield failures
    tasks = GaugeMetricFamily("howdah_tasks", "Tasks by state.", labels=["role", "state"])
    counts = Counter((task.role, task.state) for task in view.tasks)
    for role in sorted({task.role for task in view.tasks}):
        for state in TaskState:
            tasks.add_metric([role, state.value], counts[role, state.value])
    yield tasks


def _tasks(view: JobView, reported: Callable[[TaskView], Mapping[str, float]]) -> Iterator[Metric]:
    labels = ["task", "role"]
    gauges: list[tuple[str, str, Callable[[TaskView], float | None]]] = [
        ("attempt", "The task's present attempt.", lambda task: task.attempt),
        ("cpu_cores", "Cores in use.", lambda task: task.cpu),
        ("resident_memory_bytes", "Resident memory.", lambda task: _scaled(task.rss_mb, _MIB)),
        ("gpu_utilization_ratio", "Mean utilisation of its GPUs.", lambda task: task.gpu),
        ("gpu_memory_bytes", "GPU memory.", lambda task: _scaled(task.gpu_memory_mb, _MIB)),
        ("step", "The newest step reported.", lambda task: task.step),
        ("progress_age_seconds", "Since it last showed progress.", lambda task: task.progress_s),
    ]
    for name, help_text, value_of in gauges:
        family = GaugeMetricFamily(f"howdah_task_{name}", help_text, labels=labels)
        for task in view.tasks:
            value = value_of(task)
            if value is not None:
                family.add_metric([task.task, task.role], value)
        yield family
    values = GaugeMetricFamily(
        "howdah_task_reported", "What the program reported last.", labels=[*labels, "name"]
    )
    for task in view.tasks:
        for name, value in sorted(reported(task).items()):
            values.add_metric([task.task, task.role, name], value)
    yield values


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
