"""Looking at a job that has ended: its status, events, logs, metrics, outputs and page, and the same from Python."""

from __future__ import annotations

import csv
import json
import signal
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import howdah as howdah_api
from tests.cli.finished import Finished
from tests.cli.howdah import start
from tests.cli.inside import howdah


def test_what_tasks_wrote_in_each_attempt_is_printed(looking: Finished) -> None:
    assert howdah("logs", "letters").out == [
        "worker:0 | one",
        "worker:0 | two",
        "worker:0#2 | one",
        "worker:0#2 | two",
    ]
    tail = ("--attempt", "2", "--tail", "1")
    assert howdah("logs", "letters", *tail).out == ["worker:0#2 | two"]
    assert howdah("logs", "letters", *tail, "--no-prefix").out == ["two"]
    refused = howdah("logs", "letters", "--attempt", "9", code=2).told
    assert "no log of attempt 9; there is: 1, 2" in refused
    line = howdah("logs", "letters", "--json").documents()[1]
    assert isinstance(line.pop("time"), float)
    assert line == {"type": "log", "task": "worker:0", "attempt": 1, "offset": 4, "text": "two"}


def test_how_a_job_failed_is_told_by_status_events_and_attach(looking: Finished) -> None:
    job_id = looking.letters.job_id
    status = howdah("status", "letters").text
    assert f"{job_id} failed after" in status
    assert "Failed first  worker:0 exited with code 3" in status
    (view,) = howdah("status", "letters", "--json").documents()
    assert view == json.loads((looking.letters.path / "final.json").read_bytes())
    kinds = [event["kind"] for event in howdah("events", "letters", "--json").documents()]
    assert kinds[-1] == "finished" and "generation-formed" in kinds
    attached = howdah("attach", job_id, "--tail", "all", code=1)
    assert attached.out[:4] == [f"worker:0 | {line}" for line in ("one", "two", "one", "two")]
    told = howdah("stop", job_id).text
    assert told == f"{job_id} had ended already: failed"
    for task in ((), ("worker:0",)):
        assert "has ended" in howdah("stack", "letters", *task, code=2).told
    assert "has ended" in howdah("tunnel", "letters", "worker:0", code=3).told
    assert all(each["rule"] for each in howdah("advice", "letters", "--json").documents()[0])


def test_what_tasks_reported_is_told_as_text_csv_json_and_from_python(looking: Finished) -> None:
    assert "loss" in howdah("metrics", "digits").text
    rows = list(csv.DictReader(howdah("metrics", "digits", "--csv").out))
    assert {row["task"] for row in rows} == {"worker:0", "worker:1"}
    assert {row["loss"] for row in rows} >= {"0.3333333333333333"}
    handle = howdah_api.connect("digits")
    found = handle.metrics()
    assert howdah("metrics", "digits", "--json").documents() == [
        {name: getattr(each, name) for name in each.__struct_fields__} for each in found
    ]
    assert len(found) == len(rows)
    assert {each.task for each in handle.metrics("worker:0")} == {"worker:0"}
    assert handle.metrics(since=found[-1].time + 1) == []
    assert "has no task 'worker:7'" in howdah("metrics", "digits", "worker:7", code=2).told
    assert "two formats" in howdah("metrics", "--csv", "--json", code=2).told


def test_outputs_are_listed_and_fetched(looking: Finished, tmp_path: Path) -> None:
    names = [f"worker-{n}/{name}" for n in (0, 1) for name in ("model/weights.pt", "notes.txt")]
    assert [each["name"] for each in howdah("outputs", "digits", "--json").documents()[0]] == names
    assert names[2] in howdah("outputs", "digits").text
    to = tmp_path / "fetched"
    to.mkdir()
    fetched = howdah("outputs", "digits", names[2], cwd=to).text
    assert (to / fetched).read_bytes() == b"weights of 1"
    handle = howdah_api.connect("digits")
    (named,) = handle.outputs("worker:0")[:1]
    assert handle.fetch(named, to / "named.pt").read_bytes() == b"weights of 0"
    for wanted, words in (
        ((names[2],), "weights.pt is there already"),
        (("notes.txt",), "several outputs are called"),
        (("nothing.txt",), "there is no output 'nothing.txt'; there are: worker-0/model"),
        (("worker-0/notes.txt", "--to", str(tmp_path / "a/b")), "no folder"),
    ):
        assert words in howdah("outputs", "digits", *wanted, cwd=to, code=2).told
    assert sorted(path.name for path in to.iterdir()) == ["named.pt", "weights.pt"]
    assert "Nothing has been kept of" in howdah("outputs", "letters").text


def test_that_nothing_was_measured_is_said(finished: Finished) -> None:
    job = finished.copy("letters-20261121-143502-k3f9", failed=True)
    for file in job.path.glob("metrics-*"):
        file.unlink()
    assert "Nothing has been measured in" in howdah("metrics", "letters").text


def test_the_page_of_a_job_that_has_ended_is_served_until_ctrl_c(looking: Finished) -> None:
    job_id = looking.digits.job_id
    run = start("page", "digits", "--json")
    address = json.loads(run.until_line('"address"'))["address"]
    run.until_line(f"shows {job_id}")
    parts = urlsplit(address)
    base = f"http://127.0.0.1:{parts.port}"
    with urllib.request.urlopen(f"{base}{parts.path}?{parts.query}", timeout=60) as answer:
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
        assert f"./jobs/{job_id}/" in answer.read().decode()
    page = f"{base}/jobs/{job_id}/api/v1/job"
    request = urllib.request.Request(page, headers={"Cookie": cookie})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["outcome"] == "succeeded"
    run.signal(signal.SIGINT)
    assert run.end() == 130
