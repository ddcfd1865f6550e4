"""What a client concludes from an application's report."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from howdah.backends.yarn.client import site
from howdah.backends.yarn.client.site import YarnSite
from howdah.hadoop.protos import yarn
from howdah.spec.model import Job, Master, Role
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import JobMeta


@pytest.mark.parametrize(("waited_s", "ended"), [(0.0, False), (600.0, False), (7200.0, True)])
def test_a_master_is_late_by_what_was_seen_or_by_more_than_clocks_are_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited_s: float, ended: bool
) -> None:
    """Who looks may be ten minutes ahead of who submitted."""
    meta = JobMeta(job_id="j", user="ada", backend="yarn", submitted=time.time() - waited_s)
    job = Job(command="true", roles={"worker": Role()}, master=Master(startup="5m"))
    report = yarn.ApplicationReportProto(yarn_application_state="ACCEPTED")
    directory = JobDirectory(tmp_path / "jobs" / "j")
    directory.create(job, meta)
    looks = YarnSite(directory)
    told: list[str] = []
    monkeypatch.setattr(looks, "_look", lambda: report)
    monkeypatch.setattr(looks, "_nodes_and_queue", lambda name: (None, None))
    monkeypatch.setattr(looks, "end", told.append)
    looks.waiting()
    assert bool(told) is ended
    clock = time.monotonic
    monkeypatch.setattr(site.time, "monotonic", lambda: clock() + 301)
    looks.waiting()
    assert told
