"""A portable Python, laid out as uv has those that it manages.

uv fetches its own from where tests do not reach. This one is from Maven Central, and was built for glibc
2.17 as well; unlike uv's it uses the node's zlib and bzip2, and lacks SQLite and lzma.
"""

from __future__ import annotations

import platform
import sys
import zipfile
from pathlib import Path

import pytest

from tests.hadoop import artifacts

VERSION = "3.11.3"
_JAR = f"org.bytedeco:cpython:{VERSION}-1.5.9:linux-x86_64"
_INSIDE = "org/bytedeco/cpython/linux-x86_64/"
_PARTS = ("bin/python3", "lib/python3.11/", "libpython", "libffi")


def folder() -> Path:
    """To be ``UV_PYTHON_INSTALL_DIR``."""
    if sys.version_info[:2] != (3, 11) or platform.machine() != "x86_64":
        pytest.skip("Maven Central has a portable Python 3.11 for x86-64 only")
    return artifacts.once(f"portable-python-{VERSION}", _make)


def _make(place: Path) -> None:
    (jar,) = (
        path
        for path in artifacts.fetch("portable-python-jars", [_JAR])
        if path.name.startswith("cpython-") and "linux" in path.name
    )
    target = place / f"cpython-{VERSION}-linux-x86_64-gnu"
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            inside = name.removeprefix(_INSIDE)
            if name.endswith("/") or not inside.startswith(_PARTS) or "/test/" in inside:
                continue
            (target / inside).parent.mkdir(parents=True, exist_ok=True)
            (target / inside).write_bytes(archive.read(name))
    for program in (target / "bin").iterdir():
        program.chmod(0o755)
