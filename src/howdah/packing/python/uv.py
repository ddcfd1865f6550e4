"""Environments built with uv, from requirements or from a project.

What is built once is kept under what it was built from: the text of the requirements and of all
files they name, not what an index has to offer that day. So a second submission ships the same
environment, until the text changes or one asks for a fresh one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from howdah.packing.archives import Archive, ArchiveKind, PackingError, Progress
from howdah.packing.cache import Cache, tar_of
from howdah.packing.python import venv
from howdah.packing.python.interpreter import base_executable, minor
from howdah.packing.python.local_packages import LocalPackages

_NESTED = re.compile(r"^\s*(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)", re.MULTILINE)
_TOLD_LINES = 12


class Recipe(msgspec.Struct, frozen=True):
    """How an environment is built, and from what."""

    inputs: object
    """What it is built from, as far as that can be told without building it."""
    edited: object
    """What an archive of it is built from besides: editable packages, which it has copies of."""
    build: Callable[[Path, Progress], None]
    """Build it in a folder that is not there yet."""
    note: str


def of_requirements(path: Path) -> Recipe:
    """An environment with what the requirements file names, for the Python that Howdah runs in.

    Raises:
        PackingError: there is no uv, or a file cannot be read.
    """
    uv = find()
    python = base_executable()
    packages = LocalPackages()
    texts = _read(path, set())
    for _, text in texts:
        # Relative to where uv is run, also in a file that lies elsewhere.
        packages.add_requirements(text, path.parent)
    inputs = ("requirements", _python_stamp(python), texts, packages.stamps)

    def build(target: Path, progress: Progress) -> None:
        _make_venv(uv, python, target, progress)
        what = (*packages.reinstalling(), "-r", str(path))
        _install(uv, target, what, path.parent, progress)

    return Recipe(inputs, packages.edited, build, f"built from {path}")


def of_project(folder: Path) -> Recipe:
    """An environment with a project and its dependencies, as its lock file has them if there is one.

    Raises:
        PackingError: there is no uv, no Python that suits the project, or its file cannot be read.
    """
    uv = find()
    text = (folder / "pyproject.toml").read_bytes()
    try:
        project = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PackingError(f"{folder}/pyproject.toml cannot be read: {error}") from error
    locked = (folder / "uv.lock").is_file()
    # Without a build system it is no package, and its own code is not installed.
    package = "build-system" in project
    packages = LocalPackages()
    if package:
        packages.add(folder)
    else:
        packages.add_named_by(folder)
    lock = (folder / "uv.lock").read_bytes() if locked else b""
    python = _project_python(uv, folder)
    inputs = ("project", str(folder), _python_stamp(python), text, lock, packages.stamps)

    def build(target: Path, progress: Progress) -> None:
        _make_venv(uv, python, target, progress)
        if locked:
            options = ("--locked", "--no-dev", "--no-editable", "--project", str(folder))
            options = (*options, *packages.reinstalling())
            env = {"UV_PROJECT_ENVIRONMENT": str(target)}
            _run([uv, "sync", *options, "--python", str(target / "bin/python")], folder, env)
        else:
            what = (str(folder),) if package else ("-r", str(folder / "pyproject.toml"))
            _install(uv, target, (*packages.reinstalling(), *what), folder, progress)

    how = "its lock file" if locked else "its pyproject.toml; it has no uv.lock"
    return Recipe(inputs, packages.edited, build, f"built from {folder}, by {how}")


def packed(recipe: Recipe, cache: Path, progress: Progress, *, fresh: bool = False) -> Archive:
    """The environment as an archive that runs wherever it is unpacked. Where it is to be ``fresh``, the next
    job of this machine has it built again, too.

    Raises:
        PackingError: it cannot be built, with what uv said, or not for a cluster.
    """
    if fresh:
        Cache(cache).outdate_folder(_folder_inputs(recipe))
    _refuse_other_systems()

    def make(scratch: Path) -> Archive:
        target = scratch / "environment"
        recipe.build(target, progress)
        day = time.strftime("%Y-%m-%d")
        content = venv.look(target, progress).content(scratch, progress)
        notes = (f"{recipe.note}, on {day}", *content.notes)
        content = msgspec.structs.replace(content, notes=notes)
        return tar_of(ArchiveKind.ENVIRONMENT, content, scratch, progress)

    inputs = (recipe.inputs, recipe.edited)
    return Cache(cache).get(ArchiveKind.ENVIRONMENT, inputs, make, fresh=fresh)


def built(recipe: Recipe, cache: Path, progress: Progress) -> Path:
    """The environment as a folder for jobs of this machine, built unless it is there.

    Raises:
        PackingError: it cannot be built, with what uv said.
    """
    return Cache(cache).folder_of(
        _folder_inputs(recipe), lambda target: recipe.build(target, progress)
    )


def _folder_inputs(recipe: Recipe) -> object:
    return ("environment", recipe.inputs)


def find() -> str:
    """The uv to use: the one beside this interpreter, or on PATH.

    Raises:
        PackingError: there is none.
    """
    own = Path(sys.prefix, "bin", "uv")
    found = str(own) if os.access(own, os.X_OK) else shutil.which("uv")
    if found is None:
        raise PackingError(
            "environments are built, and Pythons fetched, with uv, and there is none in "
            f"{Path(sys.prefix, 'bin')} or on PATH; install it (pip install uv), or give a virtual "
            "environment (venv) or an archive"
        )
    return found


def install_portable(progress: Progress) -> None:
    """Have uv fetch a Python that runs on any node, of the minor version that this process has.

    Raises:
        PackingError: there is no uv, or it cannot fetch one.
    """
    progress("fetching a portable Python", 0, None)
    # No program called python3.11 on the user's PATH.
    env = {"UV_PYTHON_INSTALL_BIN": "0"}
    command = [find(), "python", "install", minor()]
    _run(command, None, env, "fetch a portable Python")


def _make_venv(uv: str, python: Path, target: Path, progress: Progress) -> None:
    progress("building the environment", 0, None)
    _run([uv, "venv", "--quiet", "--relocatable", "--python", str(python), str(target)])


def _install(uv: str, target: Path, what: Sequence[str], folder: Path, progress: Progress) -> None:
    progress("installing packages", 0, None)
    python = str(target / "bin/python")
    _run([uv, "pip", "install", "--quiet", "--python", python, *what], folder)


def _run(
    arguments: Sequence[str],
    folder: Path | None = None,
    env: dict[str, str] | None = None,
    what: str = "build the environment",
) -> str:
    # An active environment is none of uv's business here.
    inherited = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    # The files are read once, to be packed; links to uv's cache are cheapest where they are copies.
    inherited.setdefault("UV_LINK_MODE", "hardlink")
    try:
        run = subprocess.run(
            arguments,
            cwd=folder,
            env={**inherited, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    except OSError as error:
        raise PackingError(f"{arguments[0]} cannot be run: {error.strerror or error}") from error
    if run.returncode != 0:
        said = [line for line in run.stderr.splitlines() if line.strip()][-_TOLD_LINES:]
        raise PackingError(f"uv could not {what}. It said:\n  " + "\n  ".join(said or ["nothing"]))
    return run.stdout


def _project_python(uv: str, folder: Path) -> Path:
    """The interpreter that suits a project (``requires-python``, ``.python-version``): ours if it
    does."""
    command = [uv, "python", "find", "--system", "--no-python-downloads"]
    try:
        found = _run([*command, "--project", str(folder)], folder).strip()
    except PackingError as error:
        raise PackingError(f"no Python here suits the project in {folder}: {error}") from error
    own = base_executable()
    return own if Path(found).resolve().name == own.name else Path(found).resolve()


def _read(path: Path, seen: set[Path]) -> list[tuple[str, str]]:
    """The text of a requirements file and of those it names."""
    path = path.resolve()
    if path in seen:
        return []
    seen.add(path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PackingError(f"requirements in {path} cannot be read: {error}") from error
    found = [(str(path), text)]
    for name in _NESTED.findall(text):
        if "://" not in name:
            found += _read(path.parent / name, seen)
    return found


def _python_stamp(python: Path) -> tuple[object, ...]:
    return (str(python), python.stat().st_mtime_ns)


def _refuse_other_systems() -> None:
    if not sys.platform.startswith("linux"):
        raise PackingError(
            f"an environment built on {sys.platform} does not run on a cluster of Linux nodes; "
            "build it on Linux once and give the archive ([environment] archive), or name the "
            "nodes' Python ([environment] python)"
        )
