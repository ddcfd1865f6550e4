"""A stop that comes while a failure is looked into does not hide that failure."""

from __future__ import annotations

from howdah.core.messages import StopRequested
from howdah.core.state import Outcome
from tests.unit.core.bench import WORKER, Bench, workers


def stopped_after_a_failure(attempts: int) -> Bench:
    bench = Bench(workers(2, attempts=attempts))
    bench.run()
    bench.exit(WORKER[0], code=1)
    bench.tell(StopRequested(by="ann"))
    bench.end_stopping()
    return bench


def test_a_job_whose_attempts_were_spent_has_failed() -> None:
    bench = stopped_after_a_failure(attempts=1)
    assert bench.state.outcome is Outcome.FAILED
    assert bench.state.reason == "worker:0 exited with code 1; its one attempt is spent"


def test_a_job_that_would_have_gone_on_says_what_had_failed() -> None:
    bench = stopped_after_a_failure(attempts=3)
    assert bench.state.outcome is Outcome.STOPPED
    assert bench.state.reason == "stopped by ann after worker:0 exited with code 1"
