"""A job file becomes a job, and a job its file again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from howdah.spec.load import from_document, from_flags, from_job, load, substitute_job_id
from howdah.spec.model import Checkpoint, Job, Mode, Restart, Role, TensorBoard, Tracking
from howdah.spec.problems import JobFileError, JobFileProblem

ENV = {"HOWDAH_SITE": ""}

FULL = """\
name = "digits"
framework = "tensorflow"
mode = "each"
command = ["python", "train.py"]
tags = ["nightly"]

[env]
A = "commas, quotes ' \\" and\\nlines: ✓ = $HOME"

[roles.chief]

[roles.worker]
instances = "2..8"
processes = "gpus"
gpus = 2
memory = "2g"
after = ["ps"]
restart = "gang"

[roles.worker.resources]
"yarn.io/fpga" = 1

[roles.ps]
tracking = "untracked"
stop-on-failure = true

[checkpoint]

[tensorboard]
folder = "summaries"
"""


def write(folder: Path, text: str, name: str = "job.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def load_text(folder: Path, text: str, *overrides: str, **rest: str) -> Job:
    return load(write(folder, text), overrides, {**ENV, **rest}).job


def told(error: pytest.ExceptionInfo[JobFileError]) -> list[str]:
    return [str(problem) for problem in error.value.problems]


def test_everything_written_is_in_the_job(tmp_path: Path) -> None:
    job = load_text(tmp_path, FULL)
    assert job.mode is Mode.EACH
    assert job.env["A"] == "commas, quotes ' \" and\nlines: ✓ = $HOME"
    assert job.roles["worker"] == Role(
        instances="2..8",
        processes="gpus",
        gpus=2,
        memory="2g",
        after=("ps",),
        restart=Restart.GANG,
        resources={"yarn.io/fpga": 1},
    )
    assert job.roles["ps"].tracking is Tracking.UNTRACKED
    assert job.checkpoint == Checkpoint()
    assert job.tensorboard == TensorBoard(folder="summaries")


def test_a_stored_job_is_a_job_file(tmp_path: Path) -> None:
    job = load_text(tmp_path, FULL)
    stored = write(tmp_path, msgspec.json.encode(job).decode(), "job.json")
    assert msgspec.json.decode(stored.read_bytes(), type=Job) == job
    assert load(stored, env=ENV).job == job


def test_a_job_made_by_a_program_is_checked_like_a_file() -> None:
    job = Job(command="x", roles={"worker": Role(instances=2)})
    assert from_job(job, env=ENV).job == job
    with pytest.raises(JobFileError) as error:
        from_job(msgspec.structs.replace(job, roles={"worker": Role(instances=0)}), env=ENV)
    assert told(error)[0].startswith("roles.worker.instances: 0 is less than 1")


def test_a_document_may_hold_what_programs_hold(tmp_path: Path) -> None:
    document = {"command": ("python", "x.py"), "source": tmp_path, "roles": {"worker": {}}}
    loaded = from_document(document, env=ENV)
    assert loaded.job.command == ["python", "x.py"]
    assert loaded.source == tmp_path


def test_a_document_without_end_is_refused() -> None:
    document: dict[str, object] = {"command": "x", "roles": {"worker": {}}}
    document["env"] = document
    with pytest.raises(JobFileError, match="nested more than 32 levels deep"):
        from_document(document, env=ENV)


def test_the_source_folder_is_relative_to_the_file(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "code").mkdir()
    file = write(tmp_path / "jobs", 'command = "x"\nsource = "../code"\n[roles.worker]\n')
    monkeypatch.chdir(tmp_path)
    loaded = load(file.relative_to(tmp_path), env=ENV)
    assert loaded.source == tmp_path / "code"
    assert loaded.path == file
    assert loaded.job.source == "../code"


def test_stores_are_relative_to_the_file_and_kept_absolute(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "jobs").mkdir()
    file = write(
        tmp_path / "jobs",
        'command = "x"\nstore = "../all"\n[roles.worker]\n'
        '[checkpoint]\nstore = "saved/${job.id}"\n[outputs]\nstore = "s3://bucket/x"\n',
    )
    monkeypatch.chdir(tmp_path)
    job = load(file.relative_to(tmp_path), env=ENV).job
    assert job.store == str(tmp_path / "all")
    assert job.checkpoint is not None
    assert job.checkpoint.store == f"{tmp_path}/jobs/saved/${{job.id}}"
    assert job.outputs is not None
    assert job.outputs.store == "s3://bucket/x"


def test_an_empty_source_is_none(tmp_path: Path) -> None:
    file = write(tmp_path, 'command = "x"\nsource = ""\n[roles.worker]\n')
    loaded = load(file, env=ENV)
    assert loaded.source is None
    assert loaded.job.source is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [("train.toml", "train"), ("job.toml", "my-code"), ("night run.yaml", "night-run")],
)
def test_a_job_without_a_name_has_its_files(name: str, expected: str, tmp_path: Path) -> None:
    folder = tmp_path / "my code"
    folder.mkdir()
    text = '{"command": "x", "roles": {"worker": {}}}'
    file = write(folder, text if name.endswith("yaml") else 'command = "x"\n[roles.worker]', name)
    assert load(file, env=ENV).job.name == expected


def test_a_role_may_be_a_bare_name_in_yaml(tmp_path: Path) -> None:
    file = write(tmp_path, "command: x\nroles:\n  worker:\n", "job.yaml")
    assert load(file, env=ENV).job.roles == {"worker": Role()}


def test_off_is_a_time_in_yaml_without_quotes(tmp_path: Path) -> None:
    text = "command: x\nroles: {worker: {}}\ntimeouts: {startup: off}\n"
    assert load(write(tmp_path, text, "job.yaml"), env=ENV).job.timeouts.startup == "off"


def test_a_file_of_another_ending_is_toml_or_json(tmp_path: Path) -> None:
    assert load(write(tmp_path, 'command = "x"\n[roles.w]\n', "job"), env=ENV).job.roles
    text = '{"command": "x", "roles": {"w": {}}}'
    assert load(write(tmp_path, text, "job.conf"), env=ENV).job.roles


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    assert load_text(tmp_path, '\ufeffcommand = "x"\n[roles.worker]\n').roles


def test_problems_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = 'mode = "x"\ncommand = 1\nattempts = 0\n[roles.b]\ngpus = -1\n[roles.a]\ncores = 0\n'
    with pytest.raises(JobFileError) as error:
        load_text(tmp_path, text)
    assert [problem.line for problem in error.value.problems] == [1, 2, 3, 5, 7]
    assert str(error.value).splitlines()[0] == f"{tmp_path}/job.toml has 5 problems:"
    assert error.value.problems[0] == JobFileProblem(
        file=str(tmp_path / "job.toml"),
        line=1,
        key="mode",
        value='"x"',
        message='"x" is not "gang" or "each"',
    )


def test_a_problem_has_its_value_but_no_secret(tmp_path: Path) -> None:
    text = (
        'name = "a b"\ncommand = "x"\nfoo = 5\nenv = { HOWDAH_X = "secret" }\n'
        '[roles.worker]\nafter = ["worker"]\nprocesses = "gpus"\n'
    )
    with pytest.raises(JobFileError) as error:
        load_text(tmp_path, text)
    values = {problem.key: problem.value for problem in error.value.problems}
    assert values == {
        "name": '"a b"',
        "foo": "5",
        "env.HOWDAH_X": None,
        "roles.worker.after[0]": '"worker"',
        "roles.worker.processes": '"gpus"',
    }


def test_a_problem_that_only_follows_from_another_is_not_told(tmp_path: Path) -> None:
    text = 'comand = "x"\n[roles.worker]\nafter = ["pss"]\nprocesses = "gpus"\ngpus = "2"\n'
    with pytest.raises(JobFileError) as error:
        load_text(tmp_path, text + "[roles]\nps = 1\n".replace("[roles]\nps", "[rolls]\nps"))
    keys = [problem.key for problem in error.value.problems]
    # Not: that there is nothing to run, nor that the role has no GPU.
    assert keys == ["comand", "roles.worker.after[0]", "roles.worker.gpus", "rolls", "roles.ps"]


def test_a_file_of_mistakes_is_not_told_in_full(tmp_path: Path) -> None:
    text = 'command = "x"\n[roles.worker]\n' + "".join(f"k{i} = 1\n" for i in range(5000))
    with pytest.raises(JobFileError) as error:
        load_text(tmp_path, text)
    assert len(error.value.problems) == 100
    assert str(error.value).startswith(f"{tmp_path}/job.toml has 100 or more problems:")


def test_what_would_move_a_cursor_is_shown_as_text(tmp_path: Path) -> None:
    text = 'mode = "\\u001b[2J\\u202e\\n"\ncommand = "x"\n"\\u001b[31m" = 1\n[roles.worker]\n'
    with pytest.raises(JobFileError) as error:
        load_text(tmp_path, text)
    assert "\x1b" not in str(error.value)
    assert "\u202e" not in str(error.value)
    assert r'mode: "\u001b[2J\u202e\n" is not' in str(error.value)


def test_a_value_of_the_environment_is_not_shown_when_it_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(JobFileError) as error:
        load_text(tmp_path, 'command = "x"\n[env]\nKEY = "${env:KEY}"\n[roles.w]\n', KEY="s3\0cret")
    assert "s3" not in str(error.value)


def test_further_problems_are_told_with_their_line(tmp_path: Path) -> None:
    class Found(msgspec.Struct):
        key: str
        message: str

    def further(job: Job, source: Path | None) -> list[Found]:
        return [
            Found("roles.worker.instances", "must be even"),
            Found("roles.worker.gpus", "an echo of what is known"),
            Found("", "an echo of everything"),
        ]

    file = write(tmp_path, 'command = "x"\n[roles.worker]\ninstances = 3\ngpus = -1\n')
    with pytest.raises(JobFileError) as error:
        load(file, env=ENV, further=further)
    assert told(error) == [
        f"{file}:3: roles.worker.instances: must be even",
        f"{file}:4: roles.worker.gpus: -1 is less than 0",
    ]


def test_a_loaded_job_knows_where_its_values_are(tmp_path: Path) -> None:
    file = write(tmp_path, 'command = "x"\n[roles.worker]\ngpus = 3\n')
    problem = load(file, env=ENV).problem("roles.worker.gpus", "there are 2 here", "ask for less")
    assert str(problem) == f"{file}:3: roles.worker.gpus: there are 2 here; ask for less"


def test_the_id_comes_in_a_second_step(tmp_path: Path) -> None:
    text = 'command = "x ${job.id} $${job.id} $${HOME}"\nstore = "/d/${job.id}"\n[roles.worker]\n'
    job = substitute_job_id(load_text(tmp_path, text), "digits-1")
    assert job.command == "x digits-1 ${job.id} ${HOME}"
    assert job.store == "/d/digits-1"


def test_flags_make_a_job(tmp_path: Path) -> None:
    loaded = from_flags(
        "pytorch",
        ["worker=4", "ps=1..2", "chief"],
        ["python", "my train.py", "--lr", "0.1"],
        ["roles.worker.gpus=1", "env.LR=0.1"],
        ENV,
        folder=tmp_path,
    )
    job = loaded.job
    assert job.framework == "pytorch"
    assert {name: role.instances for name, role in job.roles.items()} == {
        "worker": 4,
        "ps": "1..2",
        "chief": 1,
    }
    assert job.roles["worker"].gpus == 1
    assert job.env == {"LR": "0.1"}
    assert job.command == ["python", "my train.py", "--lr", "0.1"]
    assert job.name == "my-train"
    assert loaded.source == tmp_path


def test_flags_without_a_role_are_one_worker() -> None:
    job = from_flags(None, [], ["echo hello | cat"], env=ENV).job
    assert job.roles == {"worker": Role()}
    assert job.command == "echo hello | cat"
    assert job.name == "echo"


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (["=4"], "--role =4: names no role; write --role worker=4"),
        (["a=1", "a=2"], "--role a=2: names a role twice; write --role worker=4"),
        (["w:1=1"], '--role w:1=1: roles."w:1": "w:1" is no role name; use letters'),
        (["w=many"], '--role w=many: roles.w.instances: "many" is not a number of tasks'),
        (["w=3..1"], '--role w=3..1: roles.w.instances: "3..1" runs backwards; did you'),
        (["w=0"], "--role w=0: roles.w.instances: 0 is less than 1"),
    ],
)
def test_a_wrong_flag_is_named(roles: list[str], expected: str) -> None:
    with pytest.raises(JobFileError) as error:
        from_flags("command", roles, ["x"], env=ENV)
    assert told(error)[0].startswith(expected)


def test_an_unknown_framework_of_a_flag_is_named() -> None:
    with pytest.raises(JobFileError) as error:
        from_flags("pytorhc", ["w=1"], ["x"], env=ENV, frameworks=["pytorch", "jax"])
    assert told(error) == [
        '--framework: framework: there is no framework "pytorhc"; did you mean "pytorch"?'
    ]


def test_no_command_at_all_is_told() -> None:
    with pytest.raises(JobFileError, match="there is nothing to run"):
        from_flags("command", ["w=1"], [], env=ENV)
