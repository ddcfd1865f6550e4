"""The list of jobs, by what they are called, tagged, who submitted them and when."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from howdah.storage.jobdir import user_name
from tests.cli.finished import Finished
from tests.cli.inside import howdah


def test_jobs_are_listed_by_tag_name_user_state_and_time(looking: Finished) -> None:
    def names(*options: str) -> set[str]:
        return {view["name"] for view in howdah("list", "--json", *options).documents()[0]}

    both = {"digits", "letters"}
    assert names() == names("--tag", "night") == both
    assert names("--tag", "night", "--tag", "gpu") == {"digits"}
    assert names("--name", "let*") == names("--state", "failed") == {"letters"}
    assert names("--user", user_name(), "--since", "24h") == both
    assert names("--user", "somebody-else") == names("--since", "2999-01-01") == set()
    assert "letters-" in howdah("list", "-n", "1").text
    assert howdah("list", "--tag", "day").text.startswith("There are no such jobs in")
    assert howdah("list", "--state", "stopped").text.startswith("There are no stopped jobs in")
    assert "Did you mean 'yarn'?" in howdah("list", "--backend", "yarm", code=2).told
    refused = howdah("list", "--since", "yesterday", code=2).told
    assert "'yesterday' is neither a span of time such as 30m" in refused


def test_history_adds_up_what_jobs_held_and_answers_queries(looking: Finished) -> None:
    (rows,) = howdah("history", "--by", "tag", "--json").documents()
    held = {row["group"]: row for row in rows}
    assert {tag: (row["jobs"], row["succeeded"]) for tag, row in held.items()} == {
        "night": (2, 1),
        "gpu": (1, 1),
    }
    assert 0 < held["gpu"]["held_hours"] < held["night"]["held_hours"] < 1
    assert 0 < held["night"]["goodput"] <= 1
    sql = "select name, count(*) tasks, min(useful_s) > 0 ran from jobs join containers using (job_id) group by 1"
    assert howdah("history", "query", sql, "--csv").out[:2] == ["name,tasks,ran", "digits,2,1"]


def test_a_job_whose_directory_cannot_be_read_is_listed_as_that(finished: Finished) -> None:
    directory = finished.copy("digits-20261121-143502-k3f9")
    (directory.path / "final.json").write_text("{")
    assert re.search(rf"{directory.job_id} +unreadable ", howdah("list").text)
    assert directory.job_id in howdah("list", "--state", "unreadable").text
    shutil.rmtree(directory.path)


def test_jobs_are_looked_for_on_the_cluster_that_the_site_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOWDAH_SITE", str(tmp_path / "site.toml"))
    (tmp_path / "site.toml").write_text(f"[hadoop]\nconf = '{tmp_path}/cluster'\n")
    named = f"{tmp_path}/cluster is not a folder"
    assert named in howdah("list", "--backend", "yarn", code=3).told
    assert named in howdah("list", "--store", "hdfs://cluster/jobs", code=3).told
    assert named in howdah("status", "no-such-job", code=2).told
    assert named in howdah("status", "application_1_1", code=3).told
    assert named in howdah("doctor", "--backend", "yarn", code=3).text
