"""The Prometheus endpoint."""

from __future__ import annotations

import time

from prometheus_client.parser import text_string_to_metric_families

from howdah.wire.status import FailureView
from tests.unit.web.fake_job import FakeJob
from tests.unit.web.serving import Served, serving, wait_until


def scrape(served: Served) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    answer = served.get("/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def names(served: Served) -> set[str]:
    return {name for name, _ in scrape(served)}


def test_the_job_its_tasks_and_what_they_report(served: Served) -> None:
    def run(job: FakeJob) -> None:
        failure = FailureView(
            task="worker:1", attempt=1, generation=1, cause="signal", what="", advice=""
        )
        job.change(phase="running", generation=2, restarts=1, failures=(failure,))
        job.task("worker:0", state="running", attempt=2, cpu=1.5, rss_mb=2.0, step=12.0)
        job.measure("worker:0", values={"loss": 0.5, 'odd "name"\n': 1.0})
        job.measure("worker:0", values={"loss": 0.25})

    served.do(run)
    found = scrape(served)
    worker = (("role", "worker"), ("task", "worker:0"))
    assert found["howdah_job_phase", (("phase", "running"),)] == 1
    assert found["howdah_job_phase", (("phase", "allocating"),)] == 0
    assert found["howdah_job_generation", ()] == 2
    assert found["howdah_job_restarts_total", ()] == 1
    assert found["howdah_job_failures_total", (("cause", "signal"),)] == 1
    assert found["howdah_tasks", (("role", "worker"), ("state", "running"))] == 1
    assert found["howdah_tasks", (("role", "worker"), ("state", "waiting"))] == 2
    assert found["howdah_task_cpu_cores", worker] == 1.5
    assert found["howdah_task_resident_memory_bytes", worker] == 2 * 1024 * 1024
    assert found["howdah_task_step", worker] == 12
    assert found["howdah_task_reported", (("name", "loss"), *worker)] == 0.25
    assert found["howdah_task_reported", (("name", 'odd "name"\n'), *worker)] == 1
    served.do(lambda job: job.measure("worker:0", values={"loss": 0.125}))
    loss = ("howdah_task_reported", (("name", "loss"), *worker))
    wait_until(lambda: scrape(served)[loss] == 0.125, "the newer value")


def test_a_new_attempt_begins_without_values(served: Served) -> None:
    served.do(lambda job: job.task("worker:0", attempt=1, started=time.time() - 10))
    served.do(lambda job: job.measure("worker:0", values={"loss": 0.5}))
    wait_until(lambda: "howdah_task_reported" in names(served), "the reported value")
    served.do(lambda job: job.task("worker:0", attempt=2, started=time.time() + 1))
    wait_until(lambda: "howdah_task_reported" not in names(served), "the value's end")


def test_two_jobs_in_one_process_do_not_mix() -> None:
    with serving(FakeJob({"a": 1})) as one, serving(FakeJob({"b": 1})) as two:
        assert any(("role", "a") in labels for _, labels in scrape(one))
        assert not any(("role", "a") in labels for _, labels in scrape(two))
