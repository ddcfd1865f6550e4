"""Jobs that ended without a word, and directories that are damaged: shown as what they are."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from howdah.storage import layout
from howdah.storage.jobdir import JobDirectory
from tests.browser.conftest import shoot
from tests.cli import inside
from tests.cli.howdah import agents_paused, howdah, job_file, lose, newest, start, until
from tests.portal.conftest import HOLDS, Past, Portal

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def running(past: Past, tmp_path: Path) -> Iterator[JobDirectory]:
    """A job that runs, of two tasks."""
    goal = tmp_path / "goal"
    roles = {"worker": {"instances": 2}}
    file = job_file(tmp_path, HOLDS, name="vanishes", env={"GOAL": str(goal)}, roles=roles)
    run = start("run", str(file))
    run.until_line("holding on")
    yield newest()
    goal.touch()
    run.end()
    # Nobody was left to remove its socket.
    Path(json.loads((newest().path / "node.json").read_bytes())["socket"]).unlink(missing_ok=True)
    folder = newest().path

    def is_removed() -> bool:  # its agents may be ending still, and remove what is theirs
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()

    until(is_removed, "its directory is removed")


@pytest.mark.nightly
def test_a_job_that_was_killed_without_a_trace_is_lost_on_the_list_its_page_and_the_command_line(
    page: Page, portal: Portal, running: JobDirectory
) -> None:
    job_id = running.job_id
    page.goto(portal.login_link())
    page.get_by_role("link", name="vanishes", exact=True).click()
    expect(page.locator("#phase")).to_have_text("Running")
    expect(page.locator("#log-lines")).to_contain_text("holding on")
    with agents_paused(running):
        lose(running)
        # The open page finds out by itself.
        expect(page.locator("#phase")).to_have_text("Lost")
        expect(page.locator("#feed")).to_have_text("Ended")
        expect(page.locator("#reason")).to_contain_text("its programs still run, and end by")
        expect(page.locator("#reason")).to_contain_text(f"howdah attach --revive {job_id}")
        expect(page.locator("#task-rows .state")).to_have_text(["running", "running"])
    expect(page.locator("#task-rows .state")).to_have_text(["ended", "ended"], timeout=60_000)
    expect(page.locator("#reason")).to_contain_text("neither its coordinator nor its node daemon")
    expect(page.locator("#stop")).to_be_hidden()
    page.reload()
    expect(page.locator("#phase")).to_have_text("Lost")
    expect(page.locator("#log-lines")).to_contain_text("holding on")
    expect(page.locator("#task-rows .state")).to_have_text(["ended", "ended"])
    shoot(page, "lost-job")
    page.locator(".bar").get_by_role("link", name="All jobs").click()
    row = page.locator("#jobs tbody tr").filter(has_text="vanishes")
    expect(row.locator(".state")).to_have_text("lost")
    expect(row.locator(".why")).to_contain_text("nobody runs it any more")
    expect(row.locator(".act")).to_have_text(re.compile("^Run again"))  # and nothing to stop
    shoot(page, "lost-list")

    listed = howdah("list", "--state", "lost").text
    assert job_id in listed and "neither its coordinator nor its node daemon is alive" in listed
    shown = howdah("status", job_id).text
    assert shown.startswith(f"{job_id} lost")
    assert "Why           nobody runs" in shown
    assert shown.count("howdah attach --revive") == 1
    (view,) = howdah("status", job_id, "--json").documents()
    assert [task["state"] for task in view["tasks"]] == ["ended", "ended"]
    assert view["lost"] and "howdah attach --revive" in view["advice"]


def _write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda path: (path / name).write_bytes(content)


def _remove(name: str) -> Callable[[Path], object]:
    return lambda path: (path / name).unlink()


def _half(name: str) -> Callable[[Path], object]:
    return lambda path: (path / name).write_bytes((path / name).read_bytes()[:100])


def _a_folder(name: str) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        (path / name).unlink()
        (path / name).mkdir()

    return damage


def _all_but_meta(path: Path) -> None:
    for each in path.iterdir():
        if each.name != layout.META:
            shutil.rmtree(each) if each.is_dir() else each.unlink()


JOURNAL = "events-0001.jsonl"
METRICS = "metrics-0001.jsonl"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "meta-only": (_all_but_meta, "unreadable"),
    "no-job-file": (_remove(layout.JOB), "succeeded"),
    "half-job-file": (_half(layout.JOB), "succeeded"),
    "half-meta": (_half(layout.META), "succeeded"),
    "half-end": (_half(layout.FINAL), "unreadable"),
    "end-of-zeros": (_write(layout.FINAL, bytes(4096)), "unreadable"),
    "end-is-a-list": (_write(layout.FINAL, b"[1, 2]"), "unreadable"),
    "end-is-a-folder": (_a_folder(layout.FINAL), "unreadable"),
    "half-journal": (_half(JOURNAL), "succeeded"),
    "journal-of-zeros": (_write(JOURNAL, bytes(4096)), "succeeded"),
    "journal-is-a-folder": (_a_folder(JOURNAL), "succeeded"),
    "odd-measurements": (_write(METRICS, b'{"task": 7}\n\xff\xfe{]\nnull\n'), "succeeded"),
    "no-secrets": (lambda path: shutil.rmtree(path / "secrets"), "succeeded"),
    "no-logs": (lambda path: shutil.rmtree(path / "logs"), "succeeded"),
    "no-end-no-journal": (
        lambda path: [_remove(each)(path) for each in (layout.FINAL, JOURNAL)],
        "lost",
    ),
}


@pytest.fixture
def damaged(past: Past) -> Iterator[dict[str, str]]:
    """Copies of a job, each damaged in one way: how, by id."""
    made: dict[str, str] = {}
    for number, (name, (damage, _)) in enumerate(DAMAGES.items()):
        job_id = f"{name}-20261121-15{number:02d}00-k3f9"
        shutil.copytree(past.good.path, past.base / job_id)
        for file in (past.base / job_id).glob("*.json*"):
            file.write_text(file.read_text().replace(past.good.job_id, job_id))
        damage(past.base / job_id)
        made[job_id] = name
    yield made
    for job_id in made:
        shutil.rmtree(past.base / job_id)


def test_damaged_directories_are_shown_as_what_they_are_and_break_nothing(
    portal: Portal, past: Past, damaged: dict[str, str]
) -> None:
    expected = {name: state for name, (_, state) in DAMAGES.items()}

    def as_expected() -> dict[str, dict[str, Any]] | None:
        """Once a job without a coordinator has been given the time to begin."""
        found = {j["job_id"]: j for j in portal.get("/api/v1/jobs?limit=100").json()["jobs"]}
        states = {name: found[job_id]["state"] for job_id, name in damaged.items()}
        return found if states == expected else None

    rows = until(as_expected, f"the states are {expected}")
    for job_id in damaged:
        if rows[job_id]["state"] in ("unreadable", "lost"):
            assert rows[job_id]["reason"], job_id
        page = portal.get(f"/jobs/{job_id}/")
        assert page.status in (200, 404), job_id
        assert page.status == 200 or f"{job_id} cannot be read: " in page.body.decode()
        for path in (
            "job", "records", "series", "config", "logs/worker:0", "changes", "advice"
        ):  # fmt: skip
            answer = portal.get(f"/jobs/{job_id}/api/v1/{path}")
            assert answer.status in (200, 404), (job_id, path, answer.body)
        assert portal.get(f"/jobs/{job_id}/metrics").status in (200, 404), job_id
    # The others are as they were.
    assert rows[past.good.job_id]["state"] == "succeeded"
    listed = inside.howdah("list").text
    assert [name for job_id, name in damaged.items() if job_id not in listed] == []
    for job_id in damaged:
        shown = inside.howdah("status", job_id, code=None)
        assert shown.code in (0, 2), (job_id, shown.told)
        assert "Traceback" not in shown.told
