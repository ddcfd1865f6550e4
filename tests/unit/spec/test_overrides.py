"""``--set`` and variables: values that come from outside the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from howdah.spec.load import load
from howdah.spec.model import Job, Role
from howdah.spec.problems import JobFileError

TEXT = 'command = "python train.py"\n[roles.worker]\ninstances = 2\n'


def load_with(folder: Path, *overrides: str, text: str = TEXT, **env: str) -> Job:
    (folder / "job.toml").write_text(text)
    return load(folder / "job.toml", overrides, {"HOWDAH_SITE": "", **env}).job


def told(folder: Path, *overrides: str, text: str = TEXT, **env: str) -> list[str]:
    with pytest.raises(JobFileError) as error:
        load_with(folder, *overrides, text=text, **env)
    return [str(problem).replace(f"{folder}/", "") for problem in error.value.problems]


def test_a_setting_is_put_over_the_file(tmp_path: Path) -> None:
    job = load_with(
        tmp_path,
        "roles.worker.instances=4",
        "roles.worker.memory=2g",
        "roles.worker.placement.spread=true",
        'roles.worker.resources."yarn.io/fpga"=1',
        "roles.ps={instances = 2, tracking = 'untracked'}",
        'roles.worker.after=["ps"]',
        "timeouts.hang=10s",
        "name=digits",
        "command=python train.py --lr 0.1 --name 'a = b'",
    )
    assert job.roles["worker"].instances == 4
    assert job.roles["worker"].memory == "2g"
    assert job.roles["worker"].placement.spread
    assert job.roles["worker"].resources == {"yarn.io/fpga": 1}
    assert job.roles["worker"].after == ("ps",)
    assert job.roles["ps"].instances == 2
    assert job.timeouts.hang == "10s"
    assert job.name == "digits"
    assert job.command == "python train.py --lr 0.1 --name 'a = b'"


@pytest.mark.parametrize(
    "value", ["32", "1e-3", "true", "007", "2026-11-21", "nan", "", "a=b", " x ", "a\nb = 1", "{x"]
)
def test_text_is_taken_as_it_is_where_text_is_wanted(value: str, tmp_path: Path) -> None:
    assert load_with(tmp_path, f"env.V={value}").env == {"V": value}


def test_quotes_of_toml_are_taken_off(tmp_path: Path) -> None:
    assert load_with(tmp_path, 'env.V="a b"').env == {"V": "a b"}


def test_the_last_of_two_settings_holds(tmp_path: Path) -> None:
    assert load_with(tmp_path, "attempts=2", "attempts=5").attempts == 5


def test_a_setting_heals_a_file(tmp_path: Path) -> None:
    text = TEXT + 'memory = "2"\n'
    assert load_with(tmp_path, "roles.worker.memory=2g", text=text).roles["worker"].memory == "2g"


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("attempts", '--set: "attempts" is no setting; write key=value, such as'),
        ("=4", '--set: "=4" is no setting; write key=value'),
        ("a..b=4", '--set: "a..b=4" is no setting; write key=value'),
        (".".join("a" * 40) + "=4", '--set: "a.a.a.a'),
        ("name.x=4", "--set: name: a table is not text"),
        (
            "roles.wroker.gpus=1",
            '--set: roles.wroker: there is no role "wroker"; did you mean "worker"? '
            "--set 'roles.wroker={}' first adds one",
        ),
        ("command.x=4", "--set: command.x: cannot be set, for command is not a table"),
        ("roles.worker.gpus=one", '--set: roles.worker.gpus: "one" is text, not a whole number'),
        ("roles.worker.cpus=1", "--set: roles.worker.cpus: unknown key; did you mean cores?"),
        ("roles.wroker=4", "--set: roles.wroker: 4 is a number, not a table; write roles.wro"),
        ("attempts=0", "--set: attempts: 0 is less than 1"),
        ("tags=" + "[" * 100, "--set: tags: the value has nested more than 32 levels deep"),
        ("roles.worker.after=[ps", '--set: roles.worker.after: "[ps" is text, not a list'),
        ("limits.max-gpus=99", "--set: limits: only a site file may set limits"),
    ],
)
def test_a_wrong_setting_is_named(override: str, expected: str, tmp_path: Path) -> None:
    assert told(tmp_path, override)[0].startswith(expected)


def test_variables_are_put_in(tmp_path: Path) -> None:
    text = (
        'command = "train ${env:LR} ${env:NONE:-x y} ${env:EMPTY:-z} ${HOME} $$ $${env:LR}"\n'
        'queue = "${env:EMPTY:-}q"\n[roles.worker]\ninstances = "${env:N}"\n'
        'gpus = "${env:N:-1}"\nstop-on-failure = "${env:FLAG}"\n'
    )
    job = load_with(tmp_path, text=text, LR="0.1", EMPTY="", N="4", FLAG="true")
    assert job.command == "train 0.1 x y z ${HOME} $$ ${env:LR}"
    assert job.queue == "q"
    assert job.roles["worker"] == Role(instances=4, gpus=4, stop_on_failure=True)


def test_what_the_shell_means_by_env_is_left_to_it(tmp_path: Path) -> None:
    text = 'command = "echo ${env:-x} ${env} ${env:0:2} ${job:-y} ${environ}"\n[roles.worker]\n'
    expected = "echo ${env:-x} ${env} ${env:0:2} ${job:-y} ${environ}"
    assert load_with(tmp_path, text=text).command == expected


def test_a_variable_is_not_looked_into(tmp_path: Path) -> None:
    text = 'command = "${env:A}"\n[roles.worker]\n'
    assert load_with(tmp_path, text=text, A="${env:B} $${x}").command == "${env:B} $${x}"


def test_variables_cannot_make_a_job_huge(tmp_path: Path) -> None:
    text = 'command = "x"\ntags = [' + '"${env:BIG}",' * 1000 + "]\n[roles.worker]\n"
    lines = told(tmp_path, text=text, BIG="x" * 100_000)
    assert any("BIG makes the job larger than 4 MiB" in line for line in lines)


def test_every_missing_variable_is_told(tmp_path: Path) -> None:
    text = 'command = "x"\nqueue = "${env:Q}"\n[roles.worker]\nmemory = "${env:M}"\ngpus = "a"\n'
    assert [line.partition(":")[2].split(";")[0] for line in told(tmp_path, text=text)] == [
        "2: queue: the environment variable Q is not set",
        "4: roles.worker.memory: the environment variable M is not set",
        '5: roles.worker.gpus: "a" is text, not a whole number',
    ]


def test_a_role_without_its_table_and_the_place_to_run_are_told_where_they_belong(
    tmp_path: Path,
) -> None:
    assert told(tmp_path, "worker.instances=3", "backend=yarn") == [
        "--set: worker: unknown key; did you mean roles.worker?",
        "--set: backend: unknown key; a job file does not say where it runs: --backend, HOWDAH_BACKEND or the site "
        "file does",
    ]
