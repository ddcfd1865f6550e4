"""Small environments, made without a network."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from howdah.packing.python import uv


def wheel(folder: Path, *, name: str = "tiny", version: str = "1.0", text: str = "") -> Path:
    """A wheel of one package with a command, ``<name>-says``."""
    info = f"{name}-{version}.dist-info"
    module = text or f"import sys\ndef main(): print({name!r}, {version!r}, sys.prefix)\n"
    files = {
        f"{name}/__init__.py": module,
        f"{name}/broken.py.in": "not Python",
        f"{name}/template.py": "this is {{ not }} Python either\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-says = {name}:main\n",
    }
    record = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, content)
    return path


BACKEND = """
import pathlib, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None, editable=False):
    pathlib.Path("lib.egg-info").touch()
    info = "lib-1.dist-info"
    files = {
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: lib\\nVersion: 1\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    if editable:
        files["lib.pth"] = str(pathlib.Path("src").absolute())
    else:
        files["lib/__init__.py"] = pathlib.Path("src/lib/__init__.py").read_text()
    record = "".join(f"{name},,\\n" for name in files) + f"{info}/RECORD,,\\n"
    name = "lib-1-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        for file, content in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(file, content)
    return name

def build_editable(folder, config_settings=None, metadata_directory=None):
    return build_wheel(folder, editable=True)
"""


def project(folder: Path, more: str = "") -> Path:
    """A package ``lib`` that brings what builds it, and leaves something behind as setuptools does;
    ``src/lib/__init__.py`` is for the test to write."""
    (folder / "src/lib").mkdir(parents=True)
    (folder / "backend.py").write_text(BACKEND)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "lib"\nversion = "1"\nrequires-python = ">=3.8"\n'
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n' + more
    )
    return folder


def venv(folder: Path, *packages: Path) -> Path:
    """A virtual environment with these wheels or (in folders) development installs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    install = [
        program(),
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--python",
        folder / "bin/python",
    ]
    for package in packages:
        subprocess.run([*install, package], check=True)
    return folder


def program() -> str:
    """uv: `make test` has one on PATH."""
    return uv.find()


def zipped_with_links(folder: Path, file: Path) -> None:
    """The folder as a zip archive that keeps symbolic links, as ``zip -ry`` makes it."""
    with zipfile.ZipFile(file, "w") as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_symlink():
                info = zipfile.ZipInfo(name)
                info.external_attr = 0o120777 << 16
                archive.writestr(info, os.fspath(path.readlink()))
            else:
                archive.write(path, name)
