"""The command line starts quickly, documents itself, and refuses what is wrong in words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from howdah.cli.main import COMMANDS, LazyGroup, cli, main

HEAVY = ("msgspec", "asyncio", "ssl", "cryptography", "rich", "yaml", "starlette", "fsspec")


def imported_by(*arguments: str) -> set[str]:
    """Modules that the command line has imported when it is done."""
    code = (
        "import sys\n"
        "from howdah.cli.main import main\n"
        f"code = main({list(arguments)!r})\n"
        "print('\\n'.join(['MODULES', *sys.modules]), file=sys.stderr)\n"
        "sys.exit(code)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(result.stderr.rpartition("MODULES\n")[2].split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--help"),
        pytest.param(("--help",), marks=pytest.mark.nightly),
        pytest.param(("--version",), marks=pytest.mark.nightly),
    ],
)
def test_help_imports_little(arguments: tuple[str, ...]) -> None:
    modules = imported_by(*arguments)
    assert not modules & set(HEAVY)
    ours = {name for name in modules if name.split(".")[0] == "howdah"}
    cli_modules = {
        f"howdah.cli.{name}"
        for name in (
            *("main", "arguments", "tony_options"),
            *("commands", "commands.run", "display", "display.terminal"),
        )
    }
    assert ours <= {"howdah", "howdah.cli", "howdah.version", *cli_modules}
    bare = subprocess.run(
        [sys.executable, "-c", "import click, sys; print(len(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(modules) < int(bare.stdout) + 30


@pytest.mark.nightly
def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, howdah; print(*[m for m in sys.modules if m.startswith(('howdah.', 'msgspec'))])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == ""


def test_each_command_is_the_one_its_table_promises() -> None:
    context = click.Context(cli)
    assert isinstance(cli, LazyGroup)
    for name, help_line in COMMANDS.items():
        found = cli.get_command(context, name)
        assert found is not None and found.name == name
        assert found.help is not None
        first = found.help.split("\n\n")[0].replace("\n", " ").strip()
        assert first == help_line or first.startswith(help_line.removesuffix(".")), name


def test_every_command_that_prints_data_has_json() -> None:
    context = click.Context(cli)
    for name in COMMANDS.keys() - {
        "completion",
        "exec",
        "schema",
    }:  # a script for a shell; another program's output; JSON without being asked
        found = cli.get_command(context, name)
        assert found is not None
        assert any("--json" in parameter.opts for parameter in found.params), name
        assert "--json" in (found.help or ""), f"{name} does not say what --json prints"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("howdah 0.")


WRONG = {
    # No or unknown command, options in the wrong place
    "unknown command": (["rnu"], "no command 'rnu'", "Did you mean 'run'?"),
    "unknown command, nothing near": (["xyzzy"], "no command 'xyzzy'", "--help"),
    "a job file without a command": (["job.toml"], "no command", "howdah run job.toml"),
    "unknown option": (["run", "--jsno"], "No such option", "--json"),
    "a job to be left running": (
        ["run", "job.toml", "--detach"],
        "howdah submit",
        "same arguments",
    ),
    "unknown global option": (["--bogus"], "No such option", "--bogus"),
    # What to run
    "nothing to run": (["run", "--role", "worker=2"], "nothing to run", "-- python train.py"),
    "an empty command": (["run", "--"], "nothing to run", "behind two dashes"),
    "no dashes": (["run", "python", "train.py"], "one argument too many", "run -- python train.py"),
    "file and command": (["run", "job.toml", "--", "true"], "give one of them", "--set command="),
    "file and --role": (["run", "job.toml", "--role", "w=1"], "--role", "--set roles.worker"),
    "file and --framework": (
        ["run", "job.toml", "--framework", "jax"],
        "--framework is for jobs without a job file",
        "--set framework=",
    ),
    "file and --name": (["submit", "job.toml", "--name", "x"], "--name", "--set name="),
    "no such file": (["run", "missing.toml"], "missing.toml", ""),
    "a folder": (["check", "folder"], "folder", ""),
    "no known suffix": (["check", "job.xyz"], "job.xyz", ""),
    "unknown framework": (
        ["run", "--framework", "pytroch", "--", "true"],
        "no framework",
        "pytorch",
    ),
    "role count": (["run", "--role", "worker=many", "--", "true"], "many", "--role"),
    "role twice": (["run", "--role", "w=1", "--role", "w=2", "--", "true"], "twice", "--role"),
    "role without name": (["run", "--role", "=2", "--", "true"], "names no role", "--role"),
    "role name": (["run", "--role", "a b=2", "--", "true"], "a b", ""),
    "set without value": (["run", "--set", "name", "--", "true"], "no setting", "key=value"),
    "set of unknown key": (
        ["check", "job.toml", "--set", "roles.worker.instnaces=2"],
        "instnaces",
        "instances",
    ),
    "set of wrong type": (["check", "job.toml", "--set", "attempts=lots"], "attempts", "lots"),
    "unknown backend": (["run", "--backend", "yran", "--", "true"], "backend", "local"),
    "value missing": (["run", "--name"], "--name", "requires an argument"),
    # Which job
    "no id": (["rerun"], "Missing argument", "ID"),
    "no jobs yet": (["status"], "no jobs yet", "howdah run"),
    "no jobs to follow yet": (["attach"], "no jobs yet", "howdah run"),
    "unknown job": (["status", "nobody"], "no job 'nobody'", ""),
    "unknown job to stop": (["stop", "nobody"], "no job 'nobody'", ""),
    "unknown job to follow": (["attach", "nobody"], "no job 'nobody'", ""),
    "unknown job to rerun": (["rerun", "nobody"], "no job 'nobody'", ""),
    "store that is no folder": (["list", "--store", "s3://x/y"], "s3://x/y", "local"),
    # Details
    "attempt 0": (["logs", "--attempt", "0"], "--attempt", "0"),
    "tail": (["logs", "--tail", "few"], "'few'", "number of lines"),
    "regular expression": (["logs", "--grep", "("], "no regular expression", "("),
    "events after": (["events", "--after", "x"], "--after", "'x'"),
    "limit": (["list", "-n", "0"], "-n", "0"),
    "state": (["list", "--state", "done"], "done", "succeeded"),
    "stack of an unknown job": (["stack", "nobody"], "no job 'nobody'", ""),
    "init of unknown framework": (
        ["init", "--framework", "tenserflow"],
        "tenserflow",
        "tensorflow",
    ),
    "init over a file": (["init", "job.toml"], "job.toml is there already", "--force"),
    "init into no folder": (["init", "no/such/job.toml"], "cannot be written", "No such"),
}


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a job file, and no jobs anywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOWDAH_SITE", "")
    (tmp_path / "job.toml").write_text('command = "true"\n[roles.worker]\ninstances = 2\n')
    (tmp_path / "job.xyz").write_text("")
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_command_line_is_refused_in_words(
    case: str, workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, what, hint = WRONG[case]
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert what in told.err
    assert hint in told.err
    assert "Traceback" not in told.err
    assert not (workplace / "home").exists(), "nothing half-started"


def test_init_has_a_job_file_for_parameter_servers(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--framework", "tensorflow-ps", "ps.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": "ps.toml", "framework": "tensorflow"}
    assert "[roles.ps]" in Path("ps.toml").read_text()
