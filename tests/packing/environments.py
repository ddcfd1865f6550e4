"""Small environments, made without a network."""

from __future__ import annotations

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
