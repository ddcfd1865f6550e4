"""Archives unpacked as a node does it, and programs run there as if the node had nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

from howdah.packing.archives import Archive


def unpack(archive: Archive, folder: Path) -> Path:
    """Unpack with the program a NodeManager uses (``FileUtil.unTarUsingTar``)."""
    assert archive.path is not None
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", archive.path, "-C", folder], check=True)
    return folder


def names(folder: Path) -> set[str]:
    """Relative paths of all files and links in it."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix() for path in paths}


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """Run it in an environment without anything, also without a Python on PATH."""
    done = subprocess.run(
        [str(word) for word in command],
        env={"PATH": "/nonexistent", **(env or {})},
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
