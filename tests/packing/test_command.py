"""``howdah pack``: what is shown of what a job ships."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from howdah.cli.main import main
from howdah.packing import in_place
from howdah.spec.model import Environment, Job
from howdah.storage.hdfs.files import Hdfs
from tests.hadoop.cluster import Cluster
from tests.packing import environments, portable
from tests.unit.web import upstream

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="runtimes are for Linux nodes"),
    pytest.mark.xdist_group("packing"),
]

JOB = """
name = "digits"
command = "python train.py"
files = ["words.txt"]
[roles.worker]
instances = 1
"""
HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_HOME")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "train.py").write_text("print('hello')\n")
    (tmp_path / "words.txt").write_text("hello\n")
    return tmp_path


def howdah(
    folder: Path, cache: Path, *arguments: str, code: int = 0, **env: str
) -> tuple[str, str]:
    """Run ``howdah pack`` in that folder, in this process; what it says."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in HADOOP:
            patch.delenv(name, raising=False)
        for name, value in {"XDG_CACHE_HOME": str(cache), **env}.items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            ended = main(["pack", *arguments])
    told, errors = (stream.detach().getvalue().decode() for stream in (out, err))
    assert ended == code, errors
    return told, errors


def document(folder: Path, cache: Path, *arguments: str, **env: str) -> Any:
    return json.loads(howdah(folder, cache, "--json", *arguments, **env)[0])


def test_it_shows_what_goes_in_and_how_big_it_is(job: Path, cache: Path) -> None:
    out, err = howdah(job, cache)
    for words in ("runtime: ", "howdah: ", "source: ", "files: ", "    train.py", "byte code"):
        assert words in out
    assert "No environment is shipped: the programs use a Python of the nodes." in out
    assert "There is no cluster to compare with" in err and "none of HADOOP_CONF_DIR" in err
    told = document(job, cache, "-o", "kept.tar.gz")
    kinds = [archive["kind"] for archive in told["archives"]]
    assert kinds == ["runtime", "howdah", "source", "files"]
    for archive in told["archives"]:
        assert Path(archive["path"]).stat().st_size == archive["size"]
        assert archive["there"] is None and archive["url"] is None
        assert len(archive["digest"]) == 64
    assert told["archives"][0]["python"] == "bin/python3"
    assert told["seconds"] >= 0
    with tarfile.open(job / "kept.tar.gz") as kept:
        assert set(kept.getnames()) == {"job.toml", "train.py", "words.txt"}
    (job / "empty").mkdir()
    told = document(job / "empty", cache)  # without a job file: Howdah itself
    assert [archive["kind"] for archive in told["archives"]] == ["runtime", "howdah"]


def test_what_cannot_be_packed_is_told_without_a_traceback(job: Path, cache: Path) -> None:
    for arguments, told in (
        (("--set", 'environment.venv="gone"'), "[environment] venv: there is no folder"),
        (("--runtime", "job.toml"), "--runtime packs Howdah's own runtime: leave out"),
        (("--runtime", "--clean"), "--runtime packs Howdah's own runtime: leave out"),
    ):
        _, err = howdah(job, cache, *arguments, code=2)
        assert told in err
        assert "Traceback" not in err


@pytest.mark.nightly
def test_the_runtime_can_be_packed_of_a_portable_python_and_kept(
    job: Path, cache: Path, tmp_path: Path
) -> None:
    """Though there is a job file."""
    env = {"UV_PYTHON_INSTALL_DIR": str(portable.folder())}
    told = document(job, cache, "--runtime", "-o", "runtime.tar.gz", **env)
    assert [archive["kind"] for archive in told["archives"]] == ["runtime", "howdah"]
    assert f"Python {portable.VERSION} of" in told["archives"][0]["notes"][0]
    with tarfile.open(job / "runtime.tar.gz") as archive:
        assert "bin/python3" in archive.getnames()


def test_where_uv_cannot_fetch_a_portable_python_it_says_why(tmp_path: Path, cache: Path) -> None:
    env = {
        "UV_PYTHON_INSTALL_DIR": str(tmp_path / "none"),
        "UV_PYTHON_INSTALL_MIRROR": (tmp_path / "nowhere").as_uri(),
    }
    _, err = howdah(tmp_path, cache, "--runtime", code=2, **env)
    assert "uv could not fetch a portable Python. It said:\n" in err
    assert "nowhere" in err and "Traceback" not in err


def test_a_fresh_pack_fetches_again_what_lies_at_urls(job: Path, cache: Path) -> None:
    """Though the server says that it is the same."""
    pytest.importorskip("aiohttp")
    there = {"words": b"old", "env.tar.gz": environment("old")}
    answers: dict[str, upstream.Handler] = {
        name: lambda request: request.answer(200, there[request.path[1:]], {"ETag": "same"})
        for name in there
    }
    with upstream.program(**answers) as port:
        url = f"http://127.0.0.1:{port}"
        keys = (
            "--set",
            f'environment.archive="{url}/env.tar.gz"',
            "--set",
            f'files=["{url}/words"]',
        )

        def digests(*more: str) -> dict[str, str]:
            told = document(job, cache, *keys, *more)["archives"]
            return {each["kind"]: each["digest"] for each in told}

        before = digests()
        there.update({"words": b"new", "env.tar.gz": environment("new")})
        assert digests() == before
        after = digests("--fresh")
        assert {kind for kind in before if before[kind] != after[kind]} == {"environment", "files"}


@pytest.mark.nightly
def test_a_fresh_pack_has_jobs_of_this_machine_take_the_newest_versions_too(
    job: Path, cache: Path
) -> None:
    """Those that run keep what they have."""
    environments.program()
    environments.wheel(job, version="1.0")
    (job / "requirements.txt").write_text("--no-index\n--find-links .\ntiny\n")
    wanted = Job(environment=Environment(requirements="requirements.txt"))

    def python() -> Path:
        found = in_place.python(wanted, job, cache / "howdah")
        assert found is not None
        return Path(found)

    def says(python: Path) -> str:
        code = "import tiny; tiny.main()"
        return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout

    before = python()
    environments.wheel(job, version="2.0")
    assert python() == before
    howdah(job, cache, "--fresh", "--set", 'environment.requirements="requirements.txt"')
    after = python()
    assert after == python()
    assert [says(each).split()[1] for each in (before, after)] == ["1.0", "2.0"]


def environment(text: str) -> bytes:
    """A ready archive."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        member = tarfile.TarInfo("bin/python")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text.encode()))
    return made.getvalue()


def test_what_is_on_the_cluster_is_told(job: Path, cache: Path, hadoop: Cluster) -> None:
    store = f"{hadoop.default_fs}/pack-{job.name}"
    env = {"HADOOP_CONF_DIR": str(hadoop.conf_dir)}
    out, _ = howdah(job, cache, **env)
    assert f"cluster: {hadoop.default_fs}/user/" in out
    assert "to upload." in out
    told = document(job, cache, "--set", f"store={store!r}", **env)
    assert all(archive["url"].startswith(hadoop.default_fs) for archive in told["archives"])
    source = next(each for each in told["archives"] if each["kind"] == "source")
    assert source["there"] is False


def test_the_job_s_own_configuration_finds_what_lies_on_hdfs(
    job: Path, cache: Path, hadoop: Cluster
) -> None:
    """A name service is an address in that configuration alone."""
    conf = job / "conf"
    shutil.copytree(hadoop.conf_dir, conf)
    (conf / "core-site.xml").write_text(properties({"fs.defaultFS": "hdfs://prod"}))
    (conf / "hdfs-site.xml").write_text(
        properties(
            {
                "dfs.nameservices": "prod",
                "dfs.ha.namenodes.prod": "nn1",
                "dfs.namenode.rpc-address.prod.nn1": hadoop.default_fs.removeprefix("hdfs://"),
            }
        )
    )
    folder = f"/pack-{job.name}"
    hdfs = Hdfs(hadoop.default_fs, conf_dir=str(hadoop.conf_dir))
    names = ("words.txt", "env.tar.gz", "runtime.tar.gz")
    for name in names:
        hdfs.write(f"{folder}/{name}", b"x")
    words, environment, runtime = (f"hdfs://{folder}/{name}" for name in names)
    keys = {
        "hadoop.conf": str(conf),
        "files": [words],
        "environment.archive": environment,
        "hadoop.runtime": runtime,
    }
    try:
        told = document(job, cache, *(f"--set={key}={json.dumps(keys[key])}" for key in keys))
    finally:
        hdfs.remove(folder, recursive=True)
    there = {each["url"]: each["there"] for each in told["archives"] if each["path"] is None}
    assert there == {words: True, environment: True, runtime: True}


def properties(of: dict[str, str]) -> str:
    """A file of Hadoop's configuration."""
    each = "".join(
        f"<property><name>{k}</name><value>{v}</value></property>" for k, v in of.items()
    )
    return f"<configuration>{each}</configuration>"


def test_cleaning_says_what_it_removed(job: Path, tmp_path: Path) -> None:
    cache = tmp_path / "another cache"
    old = cache / "howdah" / "archives" / "source-0123.tar.gz"
    python = cache / "howdah" / "folders" / "0123" / "python"
    for path in (old, python):
        path.parent.mkdir(parents=True)
        path.write_text("x")
    for path in (old, python.parent):
        os.utime(path, (1, 1))
    told = document(job, cache, "--clean")
    assert [each["url"] for each in told["removed"]] == [str(python.parent), str(old)]
    assert [each["size"] for each in told["removed"]] == [1, 1]
    assert not old.exists() and not python.exists()
    out, _ = howdah(job, cache, "--clean")
    assert out == "there is nothing that has not been used for 90 days\n"
