"""[secrets]: a job holds where its secrets come from, and never what they are."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from howdah.client.submission.loading import load_again
from howdah.client.submission.secret_values import look, take
from howdah.spec.load import LoadedJob, from_job, load
from howdah.spec.problems import JobFileError
from howdah.spec.secrets import LONGEST, references, value_of
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import JobMeta

ENV = {"HOME": "/home/me", "WHO": "me", "HOWDAH_SITE": ""}

SECRET = "hf_5151secret"
ROLE = 'command = "true"\n[roles.worker]\n'


def loaded(folder: Path, text: str) -> LoadedJob:
    file = folder / "job.toml"
    file.write_text(text)
    return load(file, env={**ENV, "HF_TOKEN": SECRET})


def wrong(folder: Path, text: str) -> str:
    with pytest.raises(JobFileError) as caught:
        loaded(folder, text)
    return "\n".join(map(str, caught.value.problems))


@pytest.mark.parametrize(
    "text",
    [
        ROLE + '[secrets]\nHF_TOKEN = "${env:HF_TOKEN}"\n',
        'secrets = ["HF_TOKEN"]\n' + ROLE,
    ],
)
def test_a_job_has_references_and_no_values(text: str, tmp_path: Path) -> None:
    job = loaded(tmp_path, text).job
    assert references(job) == {"HF_TOKEN": "${env:HF_TOKEN}"}
    document = msgspec.json.encode(job)
    assert SECRET.encode() not in document
    again = from_job(msgspec.json.decode(document, type=type(job)), env=ENV).job
    assert references(again) == references(job), "and so when it is loaded from its directory"


def test_values_come_from_the_submitters_environment_and_from_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    (tmp_path / "password").write_text("two lines\nof it\n")
    text = '[secrets]\nTOKEN = "${env:HF_TOKEN}"\nDB = "${file:password}"\n'
    values = take(loaded(tmp_path, ROLE + text), {})
    assert values == {"TOKEN": SECRET, "DB": "two lines\nof it"}


def test_a_value_that_is_not_there_is_a_problem_with_its_line_unless_an_earlier_run_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    text = '[secrets]\nTOKEN = "${env:HF_TOKEN}"\nDB = "${file:none}"\n'
    job = loaded(tmp_path, ROLE + text)
    with pytest.raises(JobFileError) as caught:
        take(job, {})
    first, second = caught.value.problems
    assert (first.line, first.key) == (4, "secrets.TOKEN")
    assert "environment variable HF_TOKEN is not set" in first.message
    assert f"{tmp_path}/none cannot be read: No such file" in second.message
    assert look(job, {"TOKEN": "old", "DB": "old"}) == ({"TOKEN": "old", "DB": "old"}, [])


def test_a_value_in_the_job_file_is_refused_and_not_repeated(tmp_path: Path) -> None:
    told = wrong(tmp_path, ROLE + f'[secrets]\nHF_TOKEN = "{SECRET}"\n')
    assert "secrets.HF_TOKEN: a secret's value does not belong into a job file" in told
    assert "${file:path}" in told and SECRET not in told
    told = wrong(tmp_path, ROLE + f'[secrets]\nHF_TOKEN = ["{SECRET}"]\n')
    assert "secrets.HF_TOKEN" in told and SECRET not in told


def test_names_are_those_of_variables_and_nobody_elses(tmp_path: Path) -> None:
    told = wrong(
        tmp_path,
        'secrets = ["A B", "HOWDAH_X", "A"]\n' + ROLE + 'env.A = "1"\n',
    )
    assert '"A B" is no name of an environment variable' in told
    assert "names that begin with HOWDAH_ are Howdah's own" in told
    assert "roles.worker.env has the variable A too" in told


@pytest.mark.parametrize("content", [b"\xff", b"a\0b", b"x" * (LONGEST + 1)])
def test_a_file_that_no_variable_can_hold_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="no UTF-8 text|no variable can hold it"):
        value_of("${file:file}", tmp_path, {})


def test_a_job_that_runs_again_has_its_references_still(tmp_path: Path) -> None:
    text = '[env]\nCOST = "$${env:5}"\n[secrets]\nA = "${env:HF_TOKEN}"\nB = "${file:x}"\n'
    directory = JobDirectory(tmp_path / "digits-20261121-143502-k3f9")
    meta = JobMeta(job_id=directory.job_id, user="ann", backend="local", submitted=1.0)
    directory.create(loaded(tmp_path, ROLE + text).job, meta)
    again = load_again(directory).job
    assert again.env == {"COST": "${env:5}"}
    assert again.secrets == {"A": "${env:HF_TOKEN}", "B": "${file:x}"}
