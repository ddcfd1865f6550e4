"""Every key of a job file is honoured, refused or noted by the backend the job runs on."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from howdah.backends.local import machine
from howdah.backends.support import Unsupported, unsupported
from tests.cli.howdah import gone, job_file, newest
from tests.cli.inside import howdah
from tests.packing import environments

VALUES: dict[str, Any] = {
    "roles.*.image": "repo/image:1",
    "roles.*.mounts": ["/data:/data:ro"],
    "roles.*.resources.*": 1,
    "roles.*.label": "a100",
    "roles.*.placement": {"spread": True},
    "roles.*.files": ["train.py -> again.py"],
    "roles.*.cores": 2,
    "in-place": True,
    "link": ["data"],
    "queue": "research",
    "priority": 3,
    "master": {"memory": "1g"},
    "acl": {"view": ["bob"]},
    "hadoop.classpath": True,
    "hadoop.container-env": {"A": "1"},
    "hadoop.docker": {"network": "bridge"},
    "hadoop.keytab": "train.py",
    "hadoop.tokens": {"features": {"url": "http://features"}},
    "spark.slots": "held",
    "environment.requirements": "train.py",
    "environment.project": ".",
    "environment.venv": ".",
    "environment.archive": "train.py",
    "files": ["train.py -> again.py"],
}
"""Something to write for each key of the table."""


def described(rule: Unsupported) -> tuple[str, dict[str, Any]]:
    """The key as it is written in a job file, and a job with it."""
    key = rule.key.replace("roles.*", "roles.worker").replace("*", "fpga")
    document: dict[str, Any] = {"roles": {"worker": {"instances": 2}}}
    *tables, last = key.split(".")
    table = document
    for name in tables:
        table = table.setdefault(name, {})
    table[last] = VALUES[rule.key]
    if rule.key == "roles.*.mounts":
        document["roles"]["worker"]["image"] = VALUES["roles.*.image"]
    return key, document


@pytest.mark.parametrize(
    ("backend", "rule"),
    [
        pytest.param(backend, rule, id=f"{backend}-{rule.key}")
        for backend, rules in unsupported().items()
        for rule in rules
    ],
)
def test_check_says_what_the_backend_does_not_honour(
    tmp_path: Path, backend: str, rule: Unsupported
) -> None:
    key, document = described(rule)
    file = job_file(tmp_path, "", **document)
    (file.parent / "pyproject.toml").write_text("[project]")
    code = 2 if rule.refused else 0
    checked = howdah("check", str(file), "--backend", backend, "--json", code=code).documents()[0]
    if rule.refused:
        assert [p["key"] for p in checked["problems"] if rule.why in p["message"]] == [key]
    else:
        assert [note for note in checked["notes"] if rule.why in note and note.startswith(key)]


def test_a_refused_key_is_named_with_its_line_by_every_command(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('command = "true"\n[roles.worker]\nimage = "repo/image:1"\n')
    for command in ("check", "run", "submit"):
        told = howdah(command, str(file), "--backend", "local", code=2).told
        assert "job.toml:3: roles.worker.image: the local backend does not honour it" in told
    assert "job.toml:3" in howdah("run", str(file), "--dry-run", code=2).told


def test_a_resource_that_is_a_key_of_its_own_elsewhere_is_recognised(tmp_path: Path) -> None:
    roles = {"worker": {"resources": {"yarn.io/gpus": 1}}}
    told = howdah("check", str(job_file(tmp_path, "", roles=roles)), code=2).told
    assert "did you mean the role's own key 'gpus'?" in told


def test_check_and_a_dry_run_say_that_this_machine_cannot_run_the_job(tmp_path: Path) -> None:
    """Which may be meant for another one."""
    large = job_file(tmp_path, "", roles={"worker": {"memory": "999t"}})
    assert "This machine can never run the job" in howdah("run", "--dry-run", str(large)).text
    told = howdah("check", str(large)).out
    assert told[0] == f"{large} is well-formed, but this machine can never run it as it is:"
    assert told[1].startswith("  roles.worker.memory: ") and len(told) == 2, told
    (checked,) = howdah("check", "--json", str(large)).documents()
    assert checked["ok"] and "worker" in checked["notes"][0]
    python = job_file(tmp_path / "other", "", environment={"python": "nowhere/python"})
    assert "environment.python" in howdah("check", str(python)).text
    absent = job_file(
        tmp_path / "absent",
        "",
        command="trian.sh --lr 1",
        store=str(python / "jobs"),
        network={"interface": "eth99"},
        hadoop={"keytab": "mine.keytab"},
    )
    noted = howdah("check", str(absent)).text
    assert "network.interface: This host has no network interface 'eth99'" in noted
    assert 'command: there is no program "trian.sh" on PATH here' in noted
    assert f"store: no job directory can be made in {python / 'jobs'}" in noted
    beside = tmp_path / "venv" / "bin"  # the interpreter's folder is first on the programs' PATH
    beside.mkdir(parents=True)
    (beside / "python").symlink_to(sys.executable)
    (beside / "train-it").write_text("#!/bin/sh\n")
    (beside / "train-it").chmod(0o755)
    of_venv = job_file(
        tmp_path / "of-venv",
        "",
        command="train-it --lr 1",
        environment={"python": str(beside / "python")},
    )
    assert "PATH" not in howdah("check", str(of_venv)).text
    assert "no network interface 'eth99'" in howdah("run", str(absent), code=3).told
    refused = howdah("check", str(absent), "--backend", "yarn", code=2).told
    assert f"hadoop.keytab: there is no file {absent.parent / 'mine.keytab'}" in refused
    refused = howdah("check", str(absent), "--backend", "yarm", code=2).told
    assert "There is no backend 'yarm'" in refused and "Did you mean 'yarn'?" in refused


def test_what_is_asked_for_beyond_this_machine_together_is_noted(tmp_path: Path) -> None:
    here, _ = machine.look(with_gpus=False)
    cores = here.cores
    large = {"instances": 2, "cores": cores, "memory": f"{here.memory_mb * 2 // 3}m"}
    file = str(job_file(tmp_path, "", roles={"worker": large, "fits": {"cores": 1}}))
    notes = howdah("check", "--json", file).documents()[0]["notes"]
    assert [note.partition(" are asked")[0].split()[0] for note in notes] == ["cores:", "memory:"]
    assert f"cores: {2 * cores + 1} are asked for at the same time" in howdah("check", file).text
    assert not howdah("check", "--json", "--backend", "yarn", file).documents()[0]["notes"]
    large["gpus"] = 1  # which they take turns with
    file = str(job_file(tmp_path, "", mode="each", roles={"worker": large, "fits": {"cores": 1}}))
    assert "at the same time" not in howdah("check", file).text


def test_what_a_site_writes_for_its_clusters_is_not_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site.toml"
    site.write_text('queue = "research"\n')
    monkeypatch.setenv("HOWDAH_SITE", str(site))
    assert "queue" not in howdah("check", str(job_file(tmp_path, ""))).text


def test_a_variable_that_howdah_sets_itself_is_noted_with_whose_programs_lose_it(
    tmp_path: Path,
) -> None:
    document = {
        "framework": "pytorch",
        "env": {"JOB_NAME": "mine", "MASTER_PORT": "29500", "MINE": "1", "OMP_NUM_THREADS": "4"},
        "hadoop": {"container-env": {"WORLD_SIZE": "7", "MINE": "2"}},
        "roles": {
            "worker": {"instances": 2, "env": {"RANK": "0"}},
            "logger": {"tracking": "sidecar", "env": {"RANK": "0"}},
        },
    }
    file = str(job_file(tmp_path, "", **document))
    notes = howdah("check", file, "--json").documents()[0]["notes"]
    lost = sorted(note for note in notes if "which do not get this value" in note)
    whose = "Howdah sets it for the programs of {}, which do not get this value"
    assert lost == [
        f"env.JOB_NAME: {whose.format('worker, logger')}",
        f"env.MASTER_PORT: {whose.format('worker')}",
        f"hadoop.container-env.WORLD_SIZE: {whose.format('worker')}",
        f"roles.worker.env.RANK: {whose.format('worker')}",
    ]


LOST = "env.JOB_NAME: Howdah sets it for the programs of worker, which do not get this value"


def test_what_run_notes_of_a_job_is_in_the_json_of_all_that_submit(tmp_path: Path) -> None:
    file = str(job_file(tmp_path, "", env={"JOB_NAME": "mine"}))
    for command in (("run", file), ("submit", file)):
        told = howdah(*command, "--json")
        assert told.documents()[0]["notes"] == [LOST], command
        assert told.told == ""
        gone(newest())
    assert LOST in howdah("rerun", "--detach", "test").told
    gone(newest())


# -- what is honoured on this machine --------------------------------------------------------------


READS = """
import os, pathlib
print(sorted(os.listdir()))
print(pathlib.Path("words").read_text(), pathlib.Path("settings/a.ini").read_text())
print(pathlib.Path("base/weights").read_text(), pathlib.Path("own.txt").read_text())
"""


def test_files_are_beside_the_source_on_this_machine(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("some words")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/a.ini").write_text("an ini")
    (tmp_path / "weights").write_text("the weights")
    (tmp_path / "own.txt").write_text("mine alone")
    with tarfile.open(tmp_path / "base.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "weights", "weights")
    file = job_file(
        tmp_path,
        READS,
        queue="research",  # which is only noted
        files=["../words.txt -> words", "../configs -> settings", "../base.tar.gz -> base/"],
        roles={"worker": {"files": ["../own.txt"]}},
    )
    run = howdah("run", str(file))
    assert "queue: the local backend does not honour it" in run.told
    for text in ("some words an ini", "the weights mine alone"):
        assert text in run.text


def test_a_missing_file_is_refused_with_its_key_before_anything_starts(tmp_path: Path) -> None:
    roles = {"worker": {"files": ["gone.json"]}}
    file = job_file(tmp_path, "", files=["../gone.txt"], roles=roles)
    told = howdah("run", str(file), code=2).told
    assert f"files: there is no file or folder {tmp_path / 'gone.txt'}" in told
    assert f"roles.worker.files: there is no file or folder {file.parent / 'gone.json'}" in told


IMPORTS = "import sys, tiny; tiny.main(); print(sys.executable)"


@pytest.mark.parametrize(
    "kind",
    [
        "requirements",
        *(
            pytest.param(each, marks=pytest.mark.nightly)
            for each in ("project", "venv", "archive", "zip")
        ),
    ],
)
def test_an_environment_is_the_programs_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    wheel = environments.wheel(tmp_path)
    (tmp_path / "requirements.txt").write_text(f"./{wheel.name}\n")
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nname = "p"\nversion = "1"\ndependencies = ["tiny @ {wheel.as_uri()}"]\n'
    )
    places = {
        "requirements": "../requirements.txt",
        "project": "..",
        "venv": "../env",
        "archive": "../env.tar.gz",
        "zip": "../env.zip",
    }
    if kind in ("venv", "archive", "zip"):
        environments.venv(tmp_path / "env", wheel)
        with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as archive:
            archive.add(tmp_path / "env", ".")
        environments.zipped_with_links(tmp_path / "env", tmp_path / "env.zip")
    key = "archive" if kind == "zip" else kind
    fields = {"environment": {key: places[kind]}, "command": "python train.py"}
    file = job_file(tmp_path, IMPORTS, **fields)
    out = howdah("run", str(file)).text
    assert "tiny 1.0" in out
    assert sys.executable not in out
    again = howdah("run", str(file))  # nothing is built a second time
    assert "tiny 1.0" in again.text and "installing packages" not in again.told


def test_an_environment_that_cannot_be_built_is_refused_with_what_uv_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = job_file(tmp_path, "", environment={"requirements": "r.txt"}, command="python train.py")
    (file.parent / "r.txt").write_text("no-such-package-of-howdahs==1.0\n")
    told = howdah("run", str(file), code=3).told
    assert "no-such-package-of-howdahs" in told
    assert json.loads(howdah("status", gone(newest()).job_id, "--json").text)["outcome"] == "failed"
