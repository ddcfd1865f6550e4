"""``howdah run --tony`` and ``howdah init --from-tony``."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from howdah.cli import tony_options as tony
from howdah.cli.main import cli
from howdah.client.submission.loading import load_file
from howdah.compat.tony import java
from howdah.spec.load import LoadedJob
from tests.cli.howdah import howdah, newest
from tests.compat.given import xml

RICH = {
    "tony.application.name": "digits",
    "tony.worker.instances": "2",
    "tony.worker.memory": "1g",
    "tony.worker.resources": "data/a.txt::b.txt,data",
    "tony.chief.instances": "1",
    "tony.evaluator.instances": "1",
    "tony.ps.instances": "1",
    "tony.ps.command": 'python ps.py --text "a\\b" # \x7f',
    "tony.loader.instances": "1",
    "tony.application.prepare-stage": "loader",
    "tony.application.group.A": "worker,chief",
    "tony.application.dependency.evaluator.timeout.after.A": "3600",
    "tony.containers.envs": "A=${undefined},B=x,y",
    "tony.worker.placement-spec": "NOTIN,NODE,worker",
    "tony.yarn.queue": "ml",
    "tony.application.tags": "a,b",
    "tony.application.timeout": "60000",
    "tony.am.retry-count": "2",
    "tony.am.memory": "1g",
    "tony.task.executor.jvm.opts": "-Xmx1g",
    "tony.docker.enabled": "true",
    "tony.docker.containers.image": "image",
    "tony.other.namenodes": "hdfs://other:8020",
    "tony.application.tensorboard-log-dir": "logs",
}
OPTIONS = ("-executes", "train.py", "-python_binary_path", "python", "-src_dir", "src")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a TonY job in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOWDAH_SITE", "")
    monkeypatch.delenv("TONY_CONF_DIR", raising=False)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text(
        "import os\n"
        "for name in ('JOB_NAME', 'TASK_INDEX', 'A', 'RANK'):\n"
        "    print(name, os.environ.get(name))\n"
    )
    (tmp_path / "tony.xml").write_text(xml(RICH))
    return tmp_path


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, standalone_mode=False)


def options(**given: Any) -> dict[str, Any]:
    return {"executes": "train.py", "python_binary_path": "python", "src_dir": "src", **given}


def run(folder: Path) -> LoadedJob:
    """What ``run --tony`` runs."""
    return tony.load(folder / "tony.xml", options())


def test_a_job_of_tonys_runs_with_its_own_command_line(folder: Path) -> None:
    small = {
        "tony.worker.instances": "1",
        "tony.worker.memory": "256m",
        "tony.application.framework": "pytorch",
        "tony.task.executor.jvm.opts": "-Xmx1g",
        "tony.wroker.memory": "1g",
    }
    (folder / "tony.xml").write_text(xml(small))
    ran = howdah(
        *("run", "--tony", "tony.xml", *OPTIONS, "-conf", "tony.worker.instances=2"),
        *("--shell_env", "A=1,2", "--backend", "local"),
        cwd=folder,
    )
    for line in ("JOB_NAME worker", "TASK_INDEX 1", "A 1,2", "RANK 1"):
        assert f"worker:1 | {line}" in ran.out
    told = [line for line in ran.err if "tony.xml" in line]
    assert told == [
        "howdah: tony.xml: tony.wroker.memory: it has no effect: the job has no wroker "
        "(tony.wroker.instances); did you mean tony.worker.memory?",
        "howdah: tony.xml: tony.task.executor.jvm.opts: not needed: there is no JVM beside your "
        "programs",
    ]
    assert newest().job().attempts == 1
    assert newest().meta().job_file == str(folder / "tony.xml")


VALUES: dict[str, tuple[str, str, Any]] = {
    "executes": ("-x train.py", "command", "python -x train.py"),
    "task_params": ("--steps 5 -v", "command", "python train.py --steps 5 -v"),
    "python_binary_path": ("bin/python3.12", "environment.python", "bin/python3.12"),
    "python_venv": ("venv.zip", "files", ["venv.zip -> venv/"]),
    "src_dir": ("other", "source", "other"),
    "shell_env": ("A=-1", "env.A", "-1"),
    "container_env": ("B=--x", "env.B", "--x"),
    "conf": ("tony.worker.command=-x --y", "roles.worker.command", "-x --y"),
    "conf_file": ("-other.xml", "roles.worker.instances", 7),
    "sidecar_tensorboard_log_dir": ("--logs", "tensorboard.folder", "--logs"),
}
"""Options of TonY's: what is written, and what of the job it then is."""
FORMS = ("-{} {}", "--{} {}", "-{}={}", "--{}={}")


@pytest.fixture
def plain(folder: Path) -> Path:
    """The current folder, with a job in it that this machine can run."""
    made = {"tony.application.name": "digits", "tony.worker.instances": "2"}
    (folder / "tony.xml").write_text(xml(made))
    return folder


def dry(*arguments: str) -> Any:
    """The document of the job that ``howdah tony`` would run."""
    result = invoked("tony", *arguments, "--backend", "local", "--dry-run", "--json")
    assert result.exception is None, result.exception
    return json.loads(result.stdout)["job"]


@pytest.mark.parametrize("name", VALUES)
def test_an_option_of_tonys_takes_its_value_in_every_form(name: str, plain: Path) -> None:
    for place in ("other", "logs"):
        (plain / place).mkdir()
    (plain / "other" / "train.py").touch()
    with zipfile.ZipFile(plain / "venv.zip", "w") as archive:
        archive.writestr("bin/python", "")
    (plain / "-other.xml").write_text(xml({"tony.worker.instances": "7"}))
    value, place, made = VALUES[name]
    beside = [("-executes", "train.py"), ("-python_binary_path", "python")]
    for form in FORMS:
        option, _, rest = form.format(name, "VALUE").partition(" ")
        words = [word.replace("VALUE", value) for word in (option, rest) if word]
        found = dry(*words, *(word for pair in beside if pair[0] != f"-{name}" for word in pair))
        for key in place.split("."):
            found = found[key]
        assert found == made, form


@pytest.mark.usefixtures("plain")
def test_options_are_read_as_tony_reads_them() -> None:
    for words in (("hdfs_classpath", "/yarn/lib"), ("debug",), ("hdfs_classpath", "-x")):
        for dashes in ("-", "--"):
            given = (f"{dashes}{words[0]}", *words[1:])
            result = invoked("tony", "--dry-run", *OPTIONS, *given, "--backend", "local")
            assert result.exception is None, result.exception
            assert f"howdah: -{words[0]}: not needed: " in result.stderr
    for word in ("-help", "--help", "-h"):
        assert "Run a job of TonY by its own command line" in invoked("tony", word).stdout
    # Quotes around a whole value are taken away.
    assert dry(*OPTIONS, "-task_params", '"--steps 5"')["command"].endswith("train.py --steps 5")
    assert dry(*OPTIONS, "-task_params", '--text "a b"')["command"].endswith('--text "a b"')


SUBMITTER = "com.linkedin.tony.cli.ClusterSubmitter"


def test_a_line_of_tonys_runs_with_howdah_tony_before_it(plain: Path) -> None:
    assert dry(SUBMITTER, *OPTIONS)["name"] == dry("ClusterSubmitter", *OPTIONS)["name"] == "digits"
    (plain / "conf").mkdir()
    (plain / "tony.xml").rename(plain / "conf" / "tony.xml")
    (plain / "conf" / "mine.xml").write_text(xml({"tony.application.name": "mine"}))
    before = ("java", "-cp", "/opt/hadoop/*:conf", SUBMITTER)
    assert dry(*before, *OPTIONS)["name"] == "digits"
    before = ("/usr/bin/java", "-Xmx1g", "-Dx=y", "--class-path=lib/*:conf", SUBMITTER)
    assert dry(*before, *OPTIONS, "-conf_file", "mine.xml")["name"] == "mine"
    for submitter, backend in (("ClusterSubmitter", "yarn"), ("LocalSubmitter", "local")):
        words = ["java", "-cp", "x", f"com.linkedin.tony.cli.{submitter}", "-debug"]
        line = java.command_line(words)
        assert (line.backend, line.arguments) == (backend, ("-debug",))


def test_what_is_no_line_of_tonys_is_refused_in_words(folder: Path) -> None:
    for words, told in (
        (("java", "-cp", "x"), "java is told to run no class"),
        (("java", "-cp", "x", "org.Other", "-executes", "x"), "is no submitter of TonY's"),
        (("java", "-cp", "x", "a.NotebookSubmitter"), "use howdah notebook --backend yarn"),
        (("job.toml",), "job.toml is a job file, and howdah tony is for jobs of TonY"),
        (("-nonsense", "x"), "No such option"),
    ):
        assert told in str(getattr(invoked("tony", *words).exception, "message", ""))
    (folder / "tony.xml").write_text(
        xml({"tony.trainer.instances": "1", "tony.application.framework": "pytorch"})
    )
    result = invoked("run", "--tony", "tony.xml", *OPTIONS)
    assert "tony.xml: roles: pytorch needs a role named chief or worker" in str(result.exception)


def test_settings_come_from_the_file_of_the_folder_or_options_alone(folder: Path) -> None:
    loaded = tony.load(folder / "tony.xml", options(), ("roles.worker.instances=7",))
    assert loaded.job.roles["worker"].instances == 7, "settings of Howdah's are put over TonY's"
    assert tony.load(None, options()).job.name == "digits"
    (folder / "tony.xml").unlink()
    loaded = tony.load(None, options(conf=("tony.worker.instances=3",)))
    assert loaded.job.roles["worker"].instances == 3
    assert loaded.path is None


def test_a_configuration_may_be_a_url(folder: Path) -> None:
    (folder / "far").mkdir()
    (folder / "far" / "mine.xml").write_text(
        xml({"tony.application.name": "mine", "tony.nonsense": "1"})
    )
    url = (folder / "far" / "mine.xml").as_uri()
    result = invoked("tony", *OPTIONS, "-conf_file", url, "--dry-run", "--backend", "local")
    assert result.exception is None, result.exception
    assert f"howdah: {url}: tony.nonsense: TonY has no such key" in result.stderr
    missing = invoked("tony", *OPTIONS, "-conf_file", f"{url}.bak", "--dry-run")
    assert f"{url}.bak: it cannot be read" in str(missing.exception)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "job.toml", "--tony", "tony.xml"), "job.toml is a job file, and --tony is for"),
        (("run", "job.toml", "-executes", "x"), "job.toml is a job file, and -executes is for"),
        (
            ("run", "--tony", "tony.xml", "--framework", "jax"),
            "--framework does not go with --tony",
        ),
        (("run", "--tony", "tony.xml", "--", "x"), "a command behind -- does not go with --tony"),
        (("run", "--tony", "a.xml", "-conf_file", "b.xml"), "name the same"),
        (("init", "-", "-executes", "x"), "-executes is an option of TonY"),
        (("init", "-", "--from-tony", "tony.xml", "--framework", "jax"), "--framework does not go"),
    ],
)
def test_what_does_not_go_together_is_refused_in_words(
    arguments: tuple[str, ...], words: str
) -> None:
    result = invoked(*arguments)
    assert words in str(result.exception)


def test_the_job_file_that_init_writes_is_the_job_that_run_runs(folder: Path) -> None:
    result = invoked("init", "--from-tony", "tony.xml", "--json", *OPTIONS)
    assert result.exception is None, result.exception
    assert json.loads(result.stdout) == {"path": "job.toml", "framework": "tensorflow"}
    written, ran = load_file("job.toml"), run(folder)
    assert written.job == ran.job
    assert written.source == ran.source
    assert written.job.env == {"B": "x,y"}
    assert written.job.hadoop.container_env == {"A": "${undefined}"}
    assert written.job.roles["ps"].command == RICH["tony.ps.command"]


def test_the_job_file_may_be_written_elsewhere(folder: Path) -> None:
    (folder / "jobs" / "deep").mkdir(parents=True)
    path = Path("jobs/deep/job.toml")
    assert invoked("init", str(path), "--from-tony", "tony.xml", *OPTIONS).exception is None
    written = load_file(path)
    assert written.source == run(folder).source
    entries = [entry.partition(" -> ")[0] for entry in written.job.roles["worker"].files]
    places = [os.path.normpath(path.parent / entry) for entry in entries]
    assert places == ["data/a.txt", "data"]


def test_the_job_file_says_where_each_value_came_from_and_what_was_left_out(folder: Path) -> None:
    text = invoked("init", "-", "--from-tony", "tony.xml", *OPTIONS).stdout
    for line in (
        "# Made of tony.xml by 'howdah init --from-tony'.",
        'name = "digits"  # tony.application.name',
        'queue = "ml"  # tony.yarn.queue',
        "[roles.worker]",
        'memory = "1g"  # tony.worker.memory',
        "[roles.evaluator.linger]",
        "# Left out:",
        "# tony.task.executor.jvm.opts: not needed: there is no JVM beside your programs",
    ):
        assert line in text.splitlines()
