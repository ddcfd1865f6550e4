"""What a job may be called: its id, its name, the beginning of its id, the newest one."""

from __future__ import annotations

from pathlib import Path

import howdah as api
from tests.cli.finished import Finished
from tests.cli.howdah import gone, job_file, newest
from tests.cli.inside import howdah

WAITS = "import time; time.sleep(600)"


def test_the_names_of_jobs_that_have_ended(finished: Finished) -> None:
    made = [
        finished.copy(f"{name}-20261121-14350{number}-k3f9").job_id
        for number, name in enumerate(("slow-train", "slow-train", "digits", "digits-tensorflow"))
    ]
    _, second, digits, newest_one = made
    for name in ("Slow.Train", "slow-train"):
        assert second in howdah("status", name).text
    for beginning in ("slow", "Slow.T"):
        refused = howdah("status", beginning, code=2).told
        assert f"'{beginning}' is the name or the beginning of 2 job ids (" in refused
        assert second in refused
    assert second in howdah("logs", "slwo-train", code=2).told.partition("did you mean ")[2]
    # A whole name means no job whose name only begins so.
    assert digits in howdah("status", "digits").text
    assert newest_one in howdah("status", "digits-t").text
    for text in (howdah("attach").text, howdah("status", "@last").text):
        assert f"{newest_one} succeeded" in text
    assert api.connect("@last").job_id == newest_one


def test_a_name_means_the_job_that_runs(finished: Finished, tmp_path: Path) -> None:
    file = str(job_file(tmp_path, WAITS, name="slow-train"))
    howdah("submit", file)
    running = newest()
    finished.copy("slow-train-20991121-143502-k3f9")
    digits = finished.copy("slow-20991121-143503-k3f9").job_id
    assert f"{digits} had ended already" in howdah("stop", "slow").text
    howdah("submit", file)
    refused = howdah("stop", "slow-train", code=2).told
    assert "'slow-train' is the name or the beginning of 2 running job ids" in refused
    howdah("stop", "--now", running.job_id)
    gone(running)
    assert howdah("stop", "--now", "slow-t").text.endswith(" stopped")


def test_without_jobs_there_is_no_newest(tmp_path: Path) -> None:
    told = howdah("attach", "@last", "--store", str(tmp_path), code=2).told
    assert "has no jobs yet" in told
