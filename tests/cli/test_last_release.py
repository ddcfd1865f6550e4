"""Looking at a job of the last release. Its directory is a real one, `tests.unit.storage` has it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from howdah.storage.jobdir import base_folder
from tests.cli.inside import howdah
from tests.unit.storage.test_last_release import DATA, JOB_ID


@pytest.fixture(autouse=True)
def old_job() -> Path:
    """The job among this user's."""
    folder = base_folder() / JOB_ID
    shutil.copytree(DATA, folder)
    return folder


def test_it_is_listed_with_its_outcome():
    assert JOB_ID in howdah("list").text
    (listed,) = json.loads(howdah("list", "--json").text)
    assert (listed["job_id"], listed["outcome"]) == (JOB_ID, "succeeded")


def test_its_status_says_what_failed_and_what_it_cost():
    text = howdah("status", JOB_ID).text
    assert f"{JOB_ID} succeeded after 8.0s, 2 restarts" in text
    assert (
        "generation 1: worker:1 exited with code 42 (user-code, counts against the restart budget)"
        in text
    )


def test_its_story_is_told():
    told = howdah("events", JOB_ID).text
    assert "worker:0 saved checkpoint 000004" in told
    assert "succeeded: all tracked tasks succeeded" in told


def test_its_logs_are_printed():
    assert "watcher:0 | nothing to watch yet" in howdah("logs", JOB_ID, "--tail", "all").text
