"""Howdah's own runtime: it runs in any folder, on a node without Python."""

from __future__ import annotations

import ast
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import howdah
from howdah.packing.archives import ArchiveKind, PackingError
from howdah.packing.python import elf
from howdah.packing.python import runtime as runtimes
from howdah.packing.python.prebuilt_archives import HEAD, python_minor
from howdah.packing.python.runtime import SUBMITTERS, runtime
from tests.packing import portable
from tests.packing.unpacking import names, run, unpack

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="runtimes are for Linux nodes"),
    pytest.mark.xdist_group("packing"),
]

MODULES = (
    "howdah.coordinator.main",
    "howdah.coordinator.job_page",
    "howdah.agent.main",
    "howdah.storage.checkpoints.upload",
    "howdah.storage.checkpoints.restoring",
    "howdah.frameworks.planning",
    "howdah.frameworks.helpers.ray_main",
    "howdah.hadoop",
    "howdah.storage.hdfs.files",
    "msgspec",
    "google.protobuf.descriptor_pool",
    "hdfs_native",
    "fsspec.implementations.local",
    "starlette.applications",
    "uvicorn.protocols.http.h11_impl",
    "jinja2",
    "prometheus_client",
)
"""What coordinator, agents and helpers import, at once or when they need it."""


class Ready:
    """The runtime, packed into a cache and unpacked somewhere else."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.cache = cache
        self.base, self.howdah = runtime(self.cache)
        self.place = unpack(self.base, folder / "somewhere else")
        self.code = unpack(self.howdah, folder / "code") / runtimes.CODE
        assert self.base.python is not None
        self.python = self.place / self.base.python

    def run(self, program: str) -> str:
        return run(self.python, "-s", "-c", program, env={"PYTHONPATH": str(self.code)})


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Ready]:
    folder = tmp_path_factory.mktemp("runtime")
    # A copy: who works on Howdah while its tests run changes what is packed.
    shutil.copytree(Path(howdah.__file__).parent, folder / "src" / "howdah")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(howdah, "__file__", str(folder / "src" / "howdah" / "__init__.py"))
        patch.setenv("UV_PYTHON_INSTALL_DIR", str(folder / "none"))
        yield Ready(folder, cache / "howdah")


def test_it_runs_anywhere_and_uses_nothing_outside_but_what_every_linux_has(ready: Ready) -> None:
    """All that coordinator, agents and helpers import is in it, extension modules and all libraries they
    link too. The compiler's own are as the node's: what is built there may want newer ones than ours.
    Nothing is compiled on a node, and nothing written."""
    program = f"""
import {", ".join(MODULES)}
import ssl, sqlite3, ctypes, lzma, bz2, zlib, uuid, decimal, multiprocessing, asyncio, sys, os
for path in sys.path + [getattr(m, "__file__", None) or "" for m in list(sys.modules.values())]:
    assert not path or path.startswith(({str(ready.place)!r}, {str(ready.code)!r})), path
for name, module in list(sys.modules.items()):
    cached = getattr(module, "__cached__", None)
    assert not cached or not module.__file__.endswith(".py") or os.path.exists(cached), cached
print(sys.executable, sys.prefix, sys.version.split()[0], sep="\\n")
for line in open("/proc/self/maps"):
    path = line.split(None, 5)[5].strip() if len(line.split(None, 5)) == 6 else ""
    if ".so" in path and not path.startswith({str(ready.place)!r}):
        print(path.rpartition("/")[2])
"""
    before = names(ready.place)
    executable, prefix, version, *libraries = ready.run(program).splitlines()
    assert names(ready.place) == before
    assert Path(executable).is_relative_to(ready.place) and Path(prefix) == ready.place
    assert version == sys.version.split()[0]
    outside = {name.partition(".so")[0] for name in libraries}
    outside = {name for name in outside if not name.startswith(("ld-", "libnss"))}
    glibc = {"libc", "libm", "libdl", "libpthread", "librt", "libutil", "libresolv"}
    assert outside <= glibc | {"libgcc_s", "libstdc++"}
    assert run(ready.place / "bin" / "py-spy", "--version").startswith("py-spy")


def test_it_is_small_byte_code_and_what_is_told_of_it_is_true(ready: Ready) -> None:
    """A node takes its time with each file, and no process of ours reads sources."""
    assert [*ready.place.rglob("*.py")] == []
    assert len([*ready.place.rglob("*.pyc")]) > 500
    assert ready.base.size < 40e6 and ready.howdah.size < 5e6
    rows = ready.base.rows
    assert sum(row.files for row in rows) == ready.base.files
    assert list(rows) == sorted(rows, key=lambda row: -row.size)
    assert 0.99 < sum(row.size for row in rows) / ready.base.unpacked_size < 1.01
    (note,) = ready.base.notes
    assert "needs glibc 2." in note and sys.version.split()[0] in note
    assert ready.base.path is not None
    assert ready.base.path.name == f"runtime-{ready.base.digest[:32]}.tar.gz"


def test_what_runs_on_a_cluster_has_byte_code(ready: Ready) -> None:
    """All that it imports of Howdah, at once or later."""
    root = ready.code / "howdah"
    waiting = [
        path
        for folder in ("coordinator", "agent", "frameworks", "backends/yarn/master")
        for path in (root / folder).rglob("*.py")
    ]
    seen = {*waiting}
    while waiting:
        path = waiting.pop()
        assert not str(path.relative_to(root)).startswith(SUBMITTERS)
        assert (
            path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"
        ).is_file()
        found = {*imported(path, root)} - seen
        seen |= found
        waiting += found
    assert len(seen) > 200
    for folder in SUBMITTERS:
        assert not [*(root / folder).rglob("*.pyc")]


def imported(path: Path, root: Path) -> Iterator[Path]:
    """Files of Howdah's that a module imports anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                modules = [module, *(f"{module}.{each.name}" for each in names)]
            case ast.Import(names=names):
                modules = [each.name for each in names]
            case _:
                continue
        for module in modules:
            place = root.parent / module.replace(".", "/")
            for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
                # The package itself has doors to everything, which open when somebody asks.
                if file.is_file() and file.is_relative_to(root) and file.parent != root:
                    yield file


@pytest.mark.nightly
def test_a_portable_python_runs_on_nodes_as_old_as_glibc_2_17(
    ready: Ready, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is shipped with it as well."""
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(portable.folder()))
    archive = runtimes.base(tmp_path / "cache")
    assert archive.notes[0].startswith(f"Python {portable.VERSION} of {portable.folder()}")
    assert archive.notes[0].endswith("needs glibc 2.17 or newer on the nodes")
    place = unpack(archive, tmp_path / "place")
    files = [path for path in place.rglob("*") if path.is_file()]
    wanted = {path.name: elf.glibc(path.read_bytes()) for path in files if is_program(path)}
    assert len(wanted) > 50 and max(wanted.values()) == 17, wanted
    assert archive.python is not None
    env = {"PYTHONPATH": str(ready.code)}
    program = f"import {', '.join(MODULES)}, ssl, ctypes, sys; print(sys.prefix, sys.version)"
    told = run(place / archive.python, "-s", "-c", program, env=env)
    assert told.startswith(f"{place} {portable.VERSION} ")


def is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return elf.is_elf(file.read(6))


def test_the_second_time_nothing_is_packed(ready: Ready) -> None:
    files = (ready.base.path, ready.howdah.path)
    before = [file.stat() for file in files]
    assert runtime(ready.cache) == (ready.base, ready.howdah)
    after = [file.stat() for file in files]
    assert [(each.st_ino, each.st_mtime_ns) for each in after] == [
        (each.st_ino, each.st_mtime_ns) for each in before
    ]


@pytest.mark.nightly
def test_two_machines_make_the_same_archives(ready: Ready, tmp_path: Path) -> None:
    base, code = runtime(tmp_path / "other cache")
    assert (base.digest, code.digest) == (ready.base.digest, ready.howdah.digest)
    assert (base.kind, code.kind) == (ArchiveKind.RUNTIME, ArchiveKind.HOWDAH)


def test_the_beginning_of_a_runtime_tells_its_python(ready: Ready) -> None:
    assert ready.base.path is not None
    data = ready.base.path.read_bytes()
    assert python_minor(data[:HEAD]) == f"{sys.version_info[0]}.{sys.version_info[1]}"
    for unsaid in (data[:1000], b"PK\x03\x04 a zip", b""):
        assert python_minor(unsaid) == ""


@pytest.mark.nightly
def test_further_packages_come_along_with_what_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "site" / "completer-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: completer\nVersion: 1.0\nRequires-Dist: argcomplete\n"
    )
    (info / "RECORD").write_text("completer-1.0.dist-info/METADATA,,\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    archive = runtimes.base(tmp_path / "cache", further=["completer", "pyyaml"])
    for name in ("argcomplete ", "pyyaml "):
        assert any(row.name.lower().startswith(name) for row in archive.rows)


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a plug-in's installation: a development install, so far without any file."""
    site = tmp_path / "site"
    info = site / "toy-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[howdah.frameworks]\ntoy = toy_framework:NAME\n")
    names = ("METADATA", "entry_points.txt", "RECORD")
    record = "".join(f"toy-1.dist-info/{name},,\n" for name in names)
    (info / "RECORD").write_text(f"_toy.pth,,\n__editable___toy_1_finder.py,,\n{record}")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr("site.getsitepackages", lambda: [str(site)])
    return site


@pytest.mark.nightly
def test_a_plug_in_that_is_a_development_install_comes_along(plugin: Path, tmp_path: Path) -> None:
    code = tmp_path / "toy/src/toy_framework/__init__.py"
    code.parent.mkdir(parents=True)
    (plugin / "_toy.pth").write_text(f"{tmp_path}/toy/src\n")

    def shipped(text: str) -> str:
        code.write_text(f"NAME = {text!r}\n")
        archive = runtimes.base(tmp_path / "cache")
        assert runtimes.base(tmp_path / "cache") == archive
        place = unpack(archive, tmp_path / text)
        (of_plugin,) = [row for row in archive.rows if row.name == "toy 1"]
        assert of_plugin.files == 4, "the code, its .pth and its metadata"
        program = (
            "from importlib.metadata import entry_points\n"
            "(point,) = entry_points(group='howdah.frameworks')\n"
            "import sys; assert point.load.__self__.module == 'toy_framework'\n"
            "name = point.load()\n"
            "assert sys.modules['toy_framework'].__file__.startswith(sys.prefix)\n"
            "print(name)\n"
        )
        return run(place / str(archive.python), "-s", "-c", program)

    assert [shipped("old"), shipped("new")] == ["old", "new"]


@pytest.mark.nightly
def test_a_plug_in_that_is_installed_for_the_user_after_a_first_job_comes_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``pip install --user``. The folder may also not be there before."""
    site = tmp_path / "user"
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr("site.getusersitepackages", lambda: str(site))

    def shipped() -> list[str]:
        archive = runtimes.base(tmp_path / "cache")
        assert runtimes.base(tmp_path / "cache") == archive
        return [row.name for row in archive.rows if row.name.startswith("toy")]

    assert shipped() == []
    for version in ("1", "2"):
        shutil.rmtree(site, ignore_errors=True)
        info = site / f"toy-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: toy\nVersion: {version}\n")
        (info / "entry_points.txt").write_text("[howdah.frameworks]\ntoy = toy:NAME\n")
        names = ("METADATA", "entry_points.txt", "RECORD")
        (info / "RECORD").write_text("".join(f"{info.name}/{name},,\n" for name in names))
        assert shipped() == [f"toy {version}"]


def test_a_plug_in_that_is_found_by_an_import_hook_is_refused(plugin: Path, tmp_path: Path) -> None:
    (plugin / "__editable___toy_1_finder.py").write_text("MAPPING = {}\n")
    with pytest.raises(PackingError, match="install toy without -e"):
        runtimes.base(tmp_path / "cache")


def test_a_package_that_is_missing_here_is_told(tmp_path: Path) -> None:
    with pytest.raises(PackingError, match="the package no-such-package is not installed"):
        runtimes.base(tmp_path / "cache", further=["no-such-package"])
