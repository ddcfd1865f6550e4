"""A whole job on a real YARN with all it ships: environment, source, files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from howdah.storage.hdfs.files import Hdfs
from tests.hadoop.cluster import Cluster
from tests.packing import environments, portable

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="environments are for Linux nodes"),
    pytest.mark.xdist_group("packing"),
    pytest.mark.timeout(300),  # two jobs, and an environment to be packed
]

JOB = """
name = "shipped"
command = "python show.py && tiny-says"
files = ["words.txt -> dictionary", "data -> set", "bundle.tar.gz -> bundle/"]
[environment]
venv = "env"
[master]
memory = "256m"
[roles.worker]
memory = "256m"
cores = 1
files = ["role.txt"]
"""
SHOW = """
import os, sys, tiny, threedee
print("python", sys.executable, sys.prefix)
print("tiny", tiny.__file__)
for name in ("dictionary", "role.txt", "set/inside", "bundle/packed", "link"):
    print(name, "says", open(name).read().strip())
print("executable", os.access("run.sh", os.X_OK))
"""


def folder(tmp_path: Path) -> Path:
    made = tmp_path / "job"
    environments.venv(
        tmp_path / "env",
        environments.wheel(tmp_path),
        environments.wheel(tmp_path, name="threedee"),
    )
    (made / "data").mkdir(parents=True)
    (tmp_path / "env").rename(made / "env")
    for name, text in {
        "job.toml": JOB,
        "show.py": SHOW,
        "words.txt": "hello",
        "role.txt": "worker",
        "data/inside": "deep",
        "run.sh": "#!/bin/sh\n",
        "packed": "unpacked",
    }.items():
        (made / name).write_text(text)
    (made / "run.sh").chmod(0o755)
    (made / "link").symlink_to("words.txt")
    subprocess.run(["tar", "-czf", "bundle.tar.gz", "packed"], cwd=made, check=True)
    (made / ".howdahignore").write_text("words.txt.bak\n")
    return made


def run(job: Path, cache: Path, cluster: Cluster, *options: str) -> tuple[str, str]:
    return howdah(job, cache, cluster, "run", "job.toml", "--backend", "yarn", *options)


def howdah(job: Path, cache: Path, cluster: Cluster, *arguments: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "howdah", *arguments],
        cwd=job,
        env={**os.environ, **cluster.env(), "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_a_job_finds_all_it_ships_and_the_second_one_uploads_none_of_it(
    tmp_path: Path, cache: Path, hadoop: Cluster
) -> None:
    environments.program()
    job = folder(tmp_path)
    out, err = run(job, cache, hadoop)
    for text in (
        "dictionary says hello",
        "role.txt says worker",
        "set/inside says deep",
        "bundle/packed says unpacked",
        "link says hello",
        "executable True",
        "tiny 1.0",
    ):
        assert text in out, out + err
    prefix = next(line.split()[-1] for line in out.splitlines() if "python /" in line)
    assert str(hadoop.folder) in prefix, "the shipped interpreter, on the node"
    # All that another submission would ship lies there already, and that is what it would use.
    out, _ = howdah(job, cache, hadoop, "pack", "job.toml", "--json")
    archives = json.loads(out)["archives"]
    kinds = {each["kind"] for each in archives}
    assert {"runtime", "howdah", "environment", "source", "files"} == kinds
    assert all(each["there"] for each in archives), archives


@pytest.mark.nightly
def test_an_environment_on_hdfs_may_be_a_folder_in_its_archive(
    tmp_path: Path, hadoop: Cluster
) -> None:
    """As ``tar czf train.tar.gz train/`` makes it: its Python and its commands are the programs'."""
    scripts = tmp_path / "train/bin"
    scripts.mkdir(parents=True)
    for name, text in (("python", f'exec {sys.executable} "$@"'), ("says", "echo a command")):
        (scripts / name).write_text(f"#!/bin/sh\necho {name} of the archive\n{text}\n")
        (scripts / name).chmod(0o755)
    (scripts / "python3").symlink_to("python")
    subprocess.run(["tar", "-czf", "train.tar.gz", "train"], cwd=tmp_path, check=True)
    hdfs = Hdfs(hadoop.default_fs, conf_dir=str(hadoop.conf_dir))
    url = f"{hadoop.default_fs}/envs-{tmp_path.name}/train.tar.gz"
    hdfs.mkdirs(url.rpartition("/")[0])
    hdfs.write(url, (tmp_path / "train.tar.gz").read_bytes())
    job = tmp_path / "job"
    job.mkdir()
    (job / "job.toml").write_text(SMALL.replace("echo it ran", "python -c 1 && says"))
    try:
        out, err = run(job, tmp_path / "cache", hadoop, "--set", f'environment.archive="{url}"')
    finally:
        hdfs.remove(url.rpartition("/")[0], recursive=True)
    for text in ("python of the archive", "says of the archive", "a command"):
        assert text in out, out + err


SMALL = """
name = "runtime"
command = "echo it ran"
[master]
memory = "256m"
[roles.worker]
memory = "256m"
cores = 1
"""


@pytest.mark.nightly
def test_a_job_runs_on_the_runtime_that_the_cluster_has_for_all(
    tmp_path: Path, hadoop: Cluster
) -> None:
    """One that was packed once, of a portable Python. It is not packed or uploaded again. That its Python is
    of another version than ours, as a link in it pretends, is said."""
    made = tmp_path / "runtime.tar.gz"
    subprocess.run(
        [sys.executable, "-m", "howdah", "pack", "--runtime", "-o", made],
        cwd=tmp_path,
        env={
            **os.environ,
            "XDG_CACHE_HOME": str(tmp_path / "another"),
            "UV_PYTHON_INSTALL_DIR": str(portable.folder()),
        },
        capture_output=True,
        check=True,
    )
    hdfs = Hdfs(hadoop.default_fs, conf_dir=str(hadoop.conf_dir))
    url = f"{hadoop.default_fs}/apps-{tmp_path.name}/howdah.tar.gz"
    hdfs.mkdirs(url.rpartition("/")[0])
    hdfs.write(url, _with_another_python(made).read_bytes())
    job = tmp_path / "job"
    job.mkdir()
    (job / "job.toml").write_text(SMALL)
    try:
        out, err = run(job, tmp_path / "cache", hadoop, "--set", f'hadoop.runtime="{url}"')
    finally:
        hdfs.remove(url.rpartition("/")[0], recursive=True)
    assert "it ran" in out, out + err
    assert "uploading runtime" not in err and "packing runtime" not in err
    assert not [*(tmp_path / "cache").rglob("runtime-*.tar.gz")]
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"the runtime {url} has Python 3.1, and Howdah is packed here for {ours}" in err


def _with_another_python(runtime: Path) -> Path:
    """The same, which its first file says to be of Python 3.1."""
    made = runtime.with_name("another.tar.gz")
    link = tarfile.TarInfo("bin/python3.1")
    link.type, link.linkname = tarfile.SYMTYPE, "python3"
    with tarfile.open(runtime) as old, tarfile.open(made, "w:gz", compresslevel=1) as new:
        new.addfile(link)
        for member in old:
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return made
