"""The programs' environment: built, taken as it is, or refused."""

from __future__ import annotations

import gzip
import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from howdah.packing import in_place
from howdah.packing.archives import Archive, PackingError
from howdah.packing.python import uv
from howdah.packing.python.environment import environment
from howdah.packing.python.scripts import relative
from howdah.spec.model import Environment, Job
from tests.packing import environments
from tests.packing.unpacking import run, unpack

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="environments are for Linux nodes"),
    pytest.mark.xdist_group("packing"),
]


@pytest.fixture(scope="module", autouse=True)
def offline() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UV_OFFLINE", "1")
        yield


def pack(folder: Path, cache: Path, *, fresh: bool = False, **wanted: str) -> Archive:
    job = Job(environment=Environment(**wanted))
    archive = environment(job, folder, cache, fresh=fresh)
    assert archive is not None
    return archive


def refused(folder: Path, cache: Path, **wanted: str) -> str:
    with pytest.raises(PackingError) as error:
        pack(folder, cache, **wanted)
    return str(error.value)


def test_requirements_become_an_interpreter_with_packages_and_their_commands(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built once, and anew with the edited code of a local package. What the user's shell sets has no
    part in it."""
    environments.program()
    for name, value in (("VIRTUAL_ENV", "/gone"), ("PYTHONPATH", "/gone"), ("PYTHONHOME", "")):
        monkeypatch.setenv(name, value)
    wheel = environments.wheel(tmp_path)
    code = environments.project(tmp_path / "lib") / "src/lib/__init__.py"
    code.write_text("def main(): print('old')\n")
    (tmp_path / "requirements.txt").write_text("-r more.txt\n-e lib\n")
    (tmp_path / "more.txt").write_text(f"./{wheel.name}\n")
    archive = pack(tmp_path, cache, requirements="requirements.txt")
    assert pack(tmp_path, cache, requirements="requirements.txt") == archive
    assert archive.python == "bin/python"
    assert "built from" in archive.notes[0]
    code.write_text("def main(): print('new')\n")
    second = pack(tmp_path, cache, requirements="requirements.txt")
    shutil.rmtree(tmp_path / "lib")
    wheel.unlink()
    place = unpack(archive, tmp_path / "elsewhere")
    told = run(place / "bin/python", "-c", "import tiny, lib; tiny.main(); lib.main()")
    assert told == f"tiny 1.0 {place}\nold"
    assert any(place.rglob("tiny/__pycache__/__init__.*.pyc"))
    says = run("/bin/sh", place / "bin/tiny-says", env={"PATH": "/usr/bin:/bin"})
    assert says == f"tiny 1.0 {place}"
    other = unpack(second, tmp_path / "edited")
    assert run(other / "bin/python", "-c", "import lib; lib.main()") == "new"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "line",
    [
        "-e .",
        "--editable=./lib",
        ".",
        "lib/[extra] ; python_version > '3'",
        "lib @ file://{folder}/lib",
        "lib @ ./lib",
        "-r more/names.txt",
    ],
)
def test_the_edited_code_of_a_local_package_is_shipped(
    tmp_path: Path, cache: Path, line: str
) -> None:
    environments.program()
    here = line in (".", "-e .")
    folder = environments.project(tmp_path if here else tmp_path / "lib")
    (tmp_path / "r.txt").write_text(line.format(folder=tmp_path) + "\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "more/names.txt").write_text("./lib\n")
    code = folder / "src/lib/__init__.py"

    def shipped(text: str) -> str:
        code.write_text(f"def main(): print({text!r})\n")
        first = pack(tmp_path, cache, requirements="r.txt")
        assert pack(tmp_path, cache, requirements="r.txt") == first
        place = unpack(first, tmp_path / text)
        return run(place / "bin/python", "-c", "import lib; lib.main()")

    assert [shipped("old"), shipped("new")] == ["old", "new"]


@pytest.mark.nightly
@pytest.mark.parametrize("locked", [True, False])
@pytest.mark.parametrize("source", ['{ path = "../lib" }', "{ workspace = true }"])
def test_the_edited_code_of_a_project_s_sources_is_shipped(
    tmp_path: Path, cache: Path, source: str, locked: bool
) -> None:
    uv = environments.program()
    code = environments.project(tmp_path / "lib") / "src/lib/__init__.py"
    (tmp_path / "app").mkdir()
    if "workspace" in source:
        (tmp_path / "pyproject.toml").write_text('[tool.uv.workspace]\nmembers = ["app", "l*"]\n')
        (tmp_path / "lecture notes").mkdir()
    (tmp_path / "app/pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.8"\n'
        f'dependencies = ["lib"]\n[tool.uv.sources]\nlib = {source}\n'
    )
    code.touch()
    if locked:
        subprocess.run([uv, "lock", "--quiet", "--offline"], cwd=tmp_path / "app", check=True)

    def shipped(text: str) -> str:
        code.write_text(f"def main(): print({text!r})\n")
        place = unpack(pack(tmp_path, cache, project="app"), tmp_path / text)
        return run(place / "bin/python", "-c", "import lib; lib.main()")

    assert [shipped("old"), shipped("new")] == ["old", "new"]


def test_an_editable_package_is_used_where_it_is_on_this_machine(tmp_path: Path) -> None:
    """The environment is not built again for each edit."""
    environments.program()
    code = environments.project(tmp_path / "lib") / "src/lib/__init__.py"
    (tmp_path / "r.txt").write_text("-e ./lib\n")
    job = Job(environment=Environment(requirements="r.txt"))

    def used(text: str) -> tuple[str | None, str]:
        code.write_text(f"def main(): print({text!r})\n")
        python = in_place.python(job, tmp_path, tmp_path / "cache")
        assert python is not None
        return python, run(Path(python), "-c", "import lib; lib.main()")

    # Of another length: byte code goes by that and by whole seconds.
    before, after = used("old"), used("edited")
    assert before[0] == after[0] and (before[1], after[1]) == ("old", "edited")


def test_what_uv_says_is_told(tmp_path: Path, cache: Path) -> None:
    environments.program()
    (tmp_path / "r.txt").write_text("no-such-package-anywhere==1\n")
    text = refused(tmp_path, cache, requirements="r.txt")
    assert text.startswith("uv could not build the environment. It said:")
    assert "no-such-package-anywhere" in text


@pytest.mark.nightly
def test_a_locked_project_is_built_by_its_lock_and_a_stale_lock_is_refused(
    tmp_path: Path, cache: Path
) -> None:
    uv = environments.program()
    wheel = environments.wheel(tmp_path)
    project = (
        '[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.8"\n'
        f'dependencies = ["tiny"]\n[tool.uv.sources]\ntiny = {{ path = "{wheel.name}" }}\n'
    )
    (tmp_path / "pyproject.toml").write_text(project)
    subprocess.run([uv, "lock", "--quiet", "--offline"], cwd=tmp_path, check=True)
    lock = (tmp_path / "uv.lock").read_bytes()
    archive = pack(tmp_path, cache, project=".")
    assert "by its lock file" in archive.notes[0]
    place = unpack(archive, tmp_path / "elsewhere")
    assert run(place / "bin/python", "-c", "import tiny; tiny.main()").startswith("tiny 1.0")
    (tmp_path / "pyproject.toml").write_text(project.replace('["tiny"]', '["tiny", "other"]'))
    assert "uv could not build the environment" in refused(tmp_path, cache, project=".")
    assert (tmp_path / "uv.lock").read_bytes() == lock, "the user's files are left alone"


def test_a_virtual_environment_becomes_one_that_needs_no_python(
    tmp_path: Path, cache: Path
) -> None:
    """A development install in it is copied."""
    environments.venv(tmp_path / "mine", environments.wheel(tmp_path))
    project = tmp_path / "project" / "src" / "dev_package"
    project.mkdir(parents=True)
    (project / "__init__.py").write_text("where = __file__\n")
    (site,) = (tmp_path / "mine" / "lib").glob("python3*/site-packages")
    (site / "_dev_package.pth").write_text(f"{project.parent}\n")
    archive = pack(tmp_path, cache, venv="mine")
    assert any("development install, copied" in note for note in archive.notes)
    shutil.rmtree(tmp_path / "mine")
    shutil.rmtree(tmp_path / "project")
    place = unpack(archive, tmp_path / "elsewhere")
    assert run(place / "bin/python", "-c", "import tiny; tiny.main()") == f"tiny 1.0 {place}"
    says = run("/bin/sh", place / "bin/tiny-says", env={"PATH": "/usr/bin:/bin"})
    assert says == f"tiny 1.0 {place}"
    assert not (place / "bin" / "activate").exists() and not (place / "pyvenv.cfg").exists()
    told = run(place / "bin/python", "-c", "import dev_package; print(dev_package.where)")
    assert Path(told).is_relative_to(place)


@pytest.mark.nightly
def test_a_conda_environment_is_shipped_with_commands_made_relative(
    tmp_path: Path, cache: Path
) -> None:
    made = environments.venv(tmp_path / "mine", environments.wheel(tmp_path))
    conda = unpack(pack(tmp_path, cache, venv=str(made)), tmp_path / "conda")
    (conda / "conda-meta").mkdir()
    (conda / "conda-meta" / "history").touch()
    (conda / "bin" / "tiny-says").write_text(f"#!{conda}/bin/python3\nimport tiny\ntiny.main()\n")
    archive = pack(tmp_path, cache, venv="conda")
    shutil.rmtree(conda)
    place = unpack(archive, tmp_path / "elsewhere")
    says = run("/bin/sh", place / "bin/tiny-says", env={"PATH": "/usr/bin:/bin"})
    assert says == f"tiny 1.0 {place}"


def test_broken_environments_are_refused(tmp_path: Path, cache: Path) -> None:
    made = tmp_path / "mine"
    made.mkdir()
    assert "neither a virtual environment" in refused(tmp_path, cache, venv="mine")
    (made / "bin").mkdir()
    (made / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (made / "bin" / "python").symlink_to("/gone/bin/python3.11")
    text = refused(tmp_path, cache, venv="mine")
    assert "leads to /gone/bin/python3.11, which is not there; make it anew" in text
    (made / "pyvenv.cfg").write_text("include-system-site-packages = true\n")
    assert "include-system-site-packages" in refused(tmp_path, cache, venv="mine")
    (made / "pyvenv.cfg").write_text("home = /opt/homebrew/bin\n")
    (made / "bin" / "python").unlink()
    (made / "bin" / "python").write_bytes(b"\xcf\xfa\xed\xfe" + bytes(100))
    text = refused(tmp_path, cache, venv="mine")
    assert "is a macOS environment" in text and "requirements or project" in text
    environments.venv(tmp_path / "hooked")
    (site,) = (tmp_path / "hooked" / "lib").glob("python3*/site-packages")
    (site / "__editable___mine_1_finder.py").write_text("MAPPING = {}\n")
    assert "install that package without -e" in refused(tmp_path, cache, venv="hooked")
    for key in ("requirements", "project", "venv", "archive"):
        assert refused(tmp_path, cache, **{key: "gone.tar.gz"}).startswith(f"[environment] {key}:")
    for wanted in (Environment(), Environment(python="/usr/bin/python3.9")):
        assert environment(Job(environment=wanted), tmp_path, cache) is None, "one of the nodes'"


@pytest.mark.parametrize("ending", ["tar.gz", "zip"])
def test_a_ready_archive_is_taken_as_it_is(tmp_path: Path, cache: Path, ending: str) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\n")
    for number, inside in enumerate(("bin/python", "./bin/python3", "env/bin/python")):
        file = tmp_path / f"ready-{number}.{ending}"
        if ending == "zip":
            with zipfile.ZipFile(file, "w") as zipped:
                zipped.write(tmp_path / "python", inside)
        else:
            with tarfile.open(file, "w:gz") as tar:
                tar.add(tmp_path / "python", inside)
        for _ in range(2):
            archive = pack(tmp_path, cache, archive=file.name)
            found = (archive.path, archive.python, archive.suffix)
            assert found == (file, inside.removeprefix("./"), f".{ending}")
            assert file.exists() and not archive.cached


def test_a_ready_archive_may_be_several_gzip_members_in_a_row(tmp_path: Path, cache: Path) -> None:
    """As ``howdah pack`` makes them: each core compresses a part."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name in ("numpy/core.py", "bin/python"):
            member = tarfile.TarInfo(name)
            member.size = 20_000
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    plain = made.getvalue()
    path = tmp_path / "ready.tar.gz"
    path.write_bytes(gzip.compress(plain[:10_000]) + gzip.compress(plain[10_000:]))
    archive = pack(tmp_path, cache, archive=path.name)
    assert (archive.python, archive.files) == ("bin/python", 2)


def test_archives_that_nodes_cannot_use_are_refused(tmp_path: Path, cache: Path) -> None:
    (tmp_path / "a.tar.zst").touch()
    assert "is none that the nodes unpack" in refused(tmp_path, cache, archive="a.tar.zst")
    (tmp_path / "b.tar.gz").write_text("no archive")
    assert "cannot be read as an archive" in refused(tmp_path, cache, archive="b.tar.gz")
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as zipped:
        zipped.writestr("data", "x")
    assert "there is no bin/python in" in refused(tmp_path, cache, archive="c.zip")


def test_a_zip_whose_interpreter_is_a_link_is_used_here_and_not_shipped(
    tmp_path: Path, cache: Path
) -> None:
    """Hadoop makes a file of a link that is in a zip."""
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/bin/python3.11").write_text("#!/bin/sh\n")
    (tmp_path / "env/bin/python3.11").chmod(0o755)
    (tmp_path / "env/bin/python").symlink_to("python3.11")
    environments.zipped_with_links(tmp_path / "env", tmp_path / "env.zip")
    job = Job(environment=Environment(archive="env.zip"))
    for _ in range(2):
        python = in_place.python(job, tmp_path, cache)
        assert python is not None and Path(python).readlink() == Path("python3.11")
        assert "bin/python in env.zip is a symbolic link" in refused(
            tmp_path, cache, archive="env.zip"
        )


def test_an_archive_on_the_cluster_is_not_touched(tmp_path: Path, cache: Path) -> None:
    archive = pack(tmp_path, cache, archive="hdfs://nn:8020/envs/a.tar.gz")
    assert (archive.url, archive.path) == ("hdfs://nn:8020/envs/a.tar.gz", None)
    assert archive.python == "bin/python" and archive.suffix == ".tar.gz"
    place = "hdfs://nn:8020/envs/a.tar.xz"
    assert f"{place} is none that the nodes unpack" in refused(tmp_path, cache, archive=place)


BIN = Path("/envs/mine/bin")


def test_commands_find_the_python_beside_them() -> None:
    for script in (
        b"#!/envs/mine/bin/python\nprint(1)\n",
        b"#!/envs/mine/bin/python3.11\nprint(1)\n",
        b"#!/bin/sh\n'''exec' \"/envs/mine/bin/python3\" \"$0\" \"$@\"\n' '''\nprint(1)\n",
    ):
        made = relative(script, BIN)
        assert made is not None
        assert made.startswith(b"#!/bin/sh\n'''exec' \"$(dirname --")
        assert made.endswith(b"' '''\nprint(1)\n")
        compile(made, "script", "exec")
        assert relative(made, BIN) is None, "it is as it should be"
    made = relative(b"#!/envs/mine/bin/python -sE\nprint(1)\n", BIN)
    assert made is not None and b"/python -sE " in made
    assert relative(b"#!/before/bin/python3\nprint(1)\n", BIN) is not None, "it was moved"
    this = f"#!{sys.executable}\n".encode()
    for other in (b"", b"\x7fELF...", b"#!/bin/bash\necho\n", this, b"#!/usr/bin/env python\n"):
        assert relative(other, BIN) is None


def test_without_uv_it_is_said_where_one_was_looked_for_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requirements.txt").write_text("tiny\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(
        PackingError, match=rf"there is none in {tmp_path}/bin or on PATH; install it"
    ):
        uv.of_requirements(tmp_path / "requirements.txt")


def test_what_wheels_put_beside_the_packages_is_shipped_too(tmp_path: Path, cache: Path) -> None:
    """MPI, MKL and TBB have libraries in ``lib``, Jupyter has data in ``share`` and settings in ``etc``."""
    folder = environments.venv(tmp_path / "env", environments.wheel(tmp_path))
    (folder / "lib/mpi").mkdir()
    (folder / "lib/libmpi.so.12.0").write_text("ELF")
    (folder / "lib/libmpi.so.12").symlink_to("libmpi.so.12.0")
    for name in ("share/jupyter/kernel.json", "etc/settings.cfg", "bin/data.txt", "bin/tools/run"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    archive = pack(tmp_path, cache, venv=str(folder))
    place = unpack(archive, tmp_path / "elsewhere")
    assert (place / "lib/libmpi.so.12").readlink() == Path("libmpi.so.12.0")
    assert (place / "lib/libmpi.so.12").read_text() == "ELF"
    for name in ("share/jupyter/kernel.json", "etc/settings.cfg", "bin/data.txt", "bin/tools/run"):
        assert (place / name).read_text() == name
    assert not (place / "pyvenv.cfg").exists() and not (place / "bin/activate").exists()
    assert any(note.startswith("left out: byte code") for note in archive.notes)
    assert run(place / "bin/python", "-c", "import tiny; tiny.main()") == f"tiny 1.0 {place}"
