"""What is installed beside Howdah: exactly what was pinned, byte by byte."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = shutil.which("uv") or next(
    (str(path) for path in ROOT.glob(".venv-tools/*/**/uv") if path.is_file()), None
)
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


@pytest.mark.parametrize(
    "name",
    [
        "constraints.txt",
        "constraints-spark35.txt",
        *(f"tests/programs/mpi/{n}.txt" for n in ("mpich", "openmpi4", "openmpi5")),
    ],
)
def test_every_dependency_is_pinned_with_its_hashes_and_no_index(name: str) -> None:
    """An index, or someone on the way to it, gives another version of a dependency, or other bytes.
    Every dependency is pinned with hashes, and no index is named that someone could take over."""
    text = (ROOT / name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines
    for line in lines:
        assert re.match(r"[a-z0-9.-]+==\S+ ", line) and HASH.search(line), line
    assert "://" not in text and " @ " not in text and "--index" not in text


def wheel(folder: Path, text: str) -> Path:
    """A package with one module, made the same way each time."""
    folder.mkdir()
    path = folder / "pinned-1.0-py3-none-any.whl"
    info = "pinned-1.0.dist-info"
    files = {
        "pinned.py": text,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: pinned\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest())
        record += f"{name},sha256={digest.decode().rstrip('=')},{len(content)}\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return path


@pytest.mark.skipif(UV is None, reason="there is no uv here; tools/setup installs it")
@pytest.mark.parametrize("planted", [False, True])
def test_a_download_that_was_tampered_with_is_not_installed(tmp_path: Path, planted: bool) -> None:
    """Finding 14: The download of a pinned dependency has been changed. It fails when tools/setup
    installs it, and nothing is installed."""
    assert UV is not None
    setup = (ROOT / "tools" / "setup").read_text()
    assert "--constraint constraints.txt" in setup and "--no-verify-hashes" not in setup
    good = wheel(tmp_path / "good", "x = 1\n")
    digest = hashlib.sha256(good.read_bytes()).hexdigest()
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(f"pinned==1.0 --hash=sha256:{digest}\n")
    served = wheel(tmp_path / "bad", "x = 'planted'\n").parent if planted else good.parent
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "1"\n[dependency-groups]\ndev = ["pinned"]\n'
    )
    there = tmp_path / "there"
    done = subprocess.run(
        [
            *(
                UV,
                "pip",
                "install",
                "--group",
                "dev",
                "--constraint",
                str(constraints),
                "--offline",
            ),
            *("--no-index", "--find-links", str(served), "--target", str(there), "--no-cache"),
            *("--python", sys.executable),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode != 0) is planted, done.stderr
    assert ("Hash mismatch" in done.stderr) is planted
    assert (there / "pinned.py").exists() is not planted
