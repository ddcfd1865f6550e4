"""The list of jobs, by what they are called, tagged, who submitted them and when."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from howdah.cli.main import main
from howdah.storage.jobdir import user_name
from tests.cli.howdah import job_file
from tests.cli.inside import howdah


def test_jobs_are_listed_by_tag_name_user_and_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    howdah("run", str(job_file(tmp_path / "a", "pass", name="digits", tags=["night", "gpu"])))
    howdah("run", str(job_file(tmp_path / "b", "pass", name="letters", tags=["night"])))

    def names(*options: str) -> set[str]:
        assert main(["list", "--json", *options]) == 0
        return {view["name"] for view in json.loads(capsys.readouterr().out)}

    assert names() == {"digits", "letters"}
    assert names("--tag", "night") == {"digits", "letters"}
    assert names("--tag", "night", "--tag", "gpu") == {"digits"}
    assert names("--name", "let*") == {"letters"}
    assert names("--user", user_name(), "--since", "1h") == {"digits", "letters"}
    assert names("--user", "somebody-else") == set()
    assert names("--since", "2999-01-01") == set()
    assert howdah("list", "--tag", "day").text.startswith("There are no such jobs in")
    assert "Did you mean 'yarn'?" in howdah("list", "--backend", "yarm", code=2).told
    held = {
        row["group"]: row for row in json.loads(howdah("history", "--by", "tag", "--json").text)
    }
    assert {tag: (row["jobs"], row["succeeded"]) for tag, row in held.items()} == {
        "night": (2, 2),
        "gpu": (1, 1),
    }
    assert 0 < held["gpu"]["held_hours"] < held["night"]["held_hours"] < 1
    assert 0 < held["night"]["goodput"] <= 1
    sql = "select name, count(*) tasks, min(useful_s) > 0 ran from jobs join containers using (job_id) group by 1"
    assert main(["history", "query", sql, "--csv"]) == 0
    assert capsys.readouterr().out == "name,tasks,ran\ndigits,1,1\nletters,1,1\n"
    refused = howdah("list", "--since", "yesterday", code=2).told
    assert "'yesterday' is neither a span of time such as 30m" in refused


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
