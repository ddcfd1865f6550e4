"""A job that has ended, in the portal, while the place where its logs are kept does not answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from howdah.backends.base import BackendError
from howdah.backends.local.site import LocalSite
from howdah.core.messages import Task
from howdah.portal import job_pages, past_job
from howdah.storage import metrics
from howdah.storage.jobdir import JobDirectory, base_folder
from howdah.wire.messages import Sample
from tests.portal.conftest import Portal
from tests.unit.client.conftest import home  # noqa: F401 - a fixture
from tests.unit.client.test_accounting import make_trained

WORKER = Task("worker", 0)


class Elsewhere(LocalSite):
    """A job whose logs and measurements are brought from elsewhere."""

    at_hand = False
    answers = False
    has: tuple[int, ...] = ()
    """Attempts whose logs are there."""
    journal: dict[str, bytes] = {}
    """Files that `bring_story` brings, by name."""

    def bring_story(self) -> None:
        if self.journal:
            self._look()
        for name, content in self.journal.items():
            (self._directory.path / name).write_bytes(content)

    def bring_logs(self, tasks: Sequence[Task] = ()) -> None:
        self._look()
        for attempt in self.has:
            path = self._directory.log_path(WORKER, attempt)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"all is well\n")

    def bring_metrics(self) -> None:
        self._look()
        sample = Sample(time=1.0, values={"loss": 0.5})
        metrics.append(
            self._directory.path, [metrics.TaskSample(task=WORKER, attempt=2, sample=sample)]
        )

    def _look(self) -> None:
        if not self.answers:
            raise BackendError("nn.example does not answer")


@pytest.fixture
def elsewhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:  # noqa: F811
    found = Elsewhere(JobDirectory(base_folder() / make_trained()))
    monkeypatch.setattr(past_job, "site_of", lambda directory: found)
    monkeypatch.setattr(past_job, "COLLECTED_S", math.inf)  # it has just ended
    return found


@pytest.fixture
def portal(elsewhere: Elsewhere, tmp_path: Path) -> Iterator[Portal]:
    running = Portal(base_folder(), tmp_path / "index")
    running.start()
    yield running
    running.stop()


def test_logs_and_measurements_that_did_not_come_are_said_to_be_and_asked_for_again(
    portal: Portal, elsewhere: Elsewhere
) -> None:
    root = f"/jobs/{elsewhere._directory.job_id}/api/v1"
    log, measured = f"{root}/logs/worker:0/raw", f"{root}/metrics/worker:0"
    for path, what in ((log, "the logs of worker:0"), (measured, "the measurements")):
        answer = portal.get(path)
        assert answer.status == 503
        assert answer.error == f"{what} cannot be brought here: nn.example does not answer"
    # What else the page asks for is answered.
    assert portal.get(f"{root}/changes?log=worker:0").status == 200
    elsewhere.answers = True
    elsewhere.has = (1,)
    assert portal.get(f"{root}/logs/worker:0/raw?attempt=1").body == b"all is well\n"
    assert portal.get(measured).json()[0]["values"] == {"loss": 0.5}
    # YARN collects the logs of a job some time after its end.
    elsewhere.has = (1, 2)
    assert portal.get(f"{root}/logs/worker:0/raw?attempt=2").body == b"all is well\n"
    # Once all is here, nothing is asked for any more.
    elsewhere.answers = False
    assert portal.get(log).status == portal.get(measured).status == 200


def test_events_that_did_not_come_are_said_to_be_missing_and_asked_for_again(
    portal: Portal, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_pages, "UNKNOWN_S", 0.0)
    files = list(elsewhere._directory.path.glob("events-*"))
    elsewhere.journal = {file.name: file.read_bytes() for file in files}
    for file in files:
        file.unlink()
    page = f"/jobs/{elsewhere._directory.job_id}/"
    note = "Events of this job may be missing here: nn.example does not answer."
    answer = portal.get(f"{page}api/v1/plan")
    assert answer.status == 503
    assert answer.error == "its events cannot be brought here: nn.example does not answer"
    assert note in portal.get(page).body.decode()
    assert portal.get(f"{page}api/v1/records").json() == []
    elsewhere.answers = True
    assert portal.get(f"{page}api/v1/plan").status == 200
    elsewhere.answers = False
    assert note not in portal.get(page).body.decode()
    assert portal.get(f"{page}api/v1/records").json()
