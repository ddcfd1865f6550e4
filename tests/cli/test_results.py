"""``howdah metrics``, ``howdah outputs`` and ``howdah page``, and the same from Python."""

from __future__ import annotations

import csv
import json
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import howdah as howdah_api
from howdah.storage.jobdir import JobDirectory
from tests.cli.howdah import Run, job_file, newest, start, until
from tests.cli.inside import howdah

PROGRAM = """
import os, pathlib, time
from howdah import task

pathlib.Path("model").mkdir()
pathlib.Path("model/weights.pt").write_bytes(b"weights of " + os.environ["HOWDAH_INDEX"].encode())
pathlib.Path("notes.txt").write_text("notes")
for step in range(3):
    task.report(step=step, loss=1 / (step + 1))
while not os.path.exists(os.environ["GOAL"]):
    task.report(accuracy=0.5)
    time.sleep(0.05)
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Run, JobDirectory, Path]]:
    """A job of two tasks that report, until there is a goal."""
    goal = tmp_path / "goal"
    roles = {"worker": {"instances": 2}}
    env = {"GOAL": str(goal)}
    run = start("run", str(job_file(tmp_path, PROGRAM, name="reports", roles=roles, env=env)))
    run.until_line("page http")
    yield run, newest(), goal
    goal.touch()
    run.end()


def test_what_a_job_measured_reported_and_kept_is_told_while_it_runs_and_afterwards(
    running: tuple[Run, JobDirectory, Path], tmp_path: Path
) -> None:
    run, directory, goal = running
    until(lambda: howdah("metrics", "worker:1", "--csv").text.count("\n") > 1, "measurements")
    table = until(
        lambda: "accuracy" in (text := howdah("metrics", "reports").text) and text, "reports"
    )
    assert "MEMORY" in table
    live = howdah("page", "@last").text
    assert urlsplit(live).hostname == f"{directory.job_id}.localhost"
    goal.touch()
    assert run.end() == 0

    told = howdah("metrics", directory.job_id, "--csv").out
    rows = list(csv.DictReader(told))
    assert {row["task"] for row in rows} == {"worker:0", "worker:1"}
    assert {row["loss"] for row in rows} > {"0.3333333333333333"}
    handle = howdah_api.connect("reports")
    found = handle.metrics()
    assert [json.loads(line) for line in howdah("metrics", "--json").out] == [
        {name: getattr(each, name) for name in each.__struct_fields__} for each in found
    ]
    assert len(found) == len(rows)
    assert {each.task for each in handle.metrics("worker:0")} == {"worker:0"}
    assert handle.metrics(since=found[-1].time + 1) == []
    assert "has no task 'worker:7'" in howdah("metrics", "reports", "worker:7", code=2).told
    assert "two formats" in howdah("metrics", "--csv", "--json", code=2).told

    listed = howdah("outputs", "@last").text
    assert "worker-1/model/weights.pt" in listed
    assert [each["name"] for each in howdah("outputs", "--json").documents()[0]] == [
        "worker-0/model/weights.pt", "worker-0/notes.txt",
        "worker-1/model/weights.pt", "worker-1/notes.txt",
    ]  # fmt: skip
    to = tmp_path / "fetched"
    to.mkdir()
    fetched = howdah("outputs", "reports", "worker-1/model/weights.pt", cwd=to).text
    assert (to / fetched).read_bytes() == b"weights of 1"
    (named,) = handle.outputs("worker:0")[:1]
    assert handle.fetch(named, to / "named.pt").read_bytes() == b"weights of 0"
    again = howdah("outputs", "reports", "worker-1/model/weights.pt", cwd=to, code=2).told
    assert "weights.pt is there already" in again
    assert "several outputs are called" in howdah("outputs", "reports", "notes.txt", code=2).told
    missing = howdah("outputs", "reports", "nothing.txt", code=2).told
    assert "there is no output 'nothing.txt'; there are: worker-0/model" in missing
    assert "no folder" in howdah(
        "outputs", "reports", "worker-0/notes.txt", "--to", str(tmp_path / "a/b"), code=2
    ).told  # fmt: skip
    assert sorted(path.name for path in to.iterdir()) == ["named.pt", "weights.pt"]


def test_the_page_of_a_job_that_has_ended_is_served_until_ctrl_c(tmp_path: Path) -> None:
    howdah("run", str(job_file(tmp_path, "print('all is well')", name="over")))
    run = start("page", "over", "--json")
    address = json.loads(run.until_line('"address"'))["address"]
    run.until_line(f"shows {newest().job_id}")
    parts = urlsplit(address)
    base = f"http://127.0.0.1:{parts.port}"
    with urllib.request.urlopen(f"{base}{parts.path}?{parts.query}", timeout=20) as answer:
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
        assert f"./jobs/{newest().job_id}/" in answer.read().decode()
    request = urllib.request.Request(
        f"{base}/jobs/{newest().job_id}/api/v1/job", headers={"Cookie": cookie}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert json.load(answer)["outcome"] == "succeeded"
    run.signal(signal.SIGINT)
    assert run.end() == 130
    for file in newest().path.glob("metrics-*"):  # where its program took a while to start
        file.unlink()
    assert "Nothing has been measured in" in howdah("metrics", "over").text
    assert "Nothing has been kept of" in howdah("outputs", "over").text
