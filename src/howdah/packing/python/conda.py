"""A conda environment, shipped as it is.

Its interpreter and libraries find each other relative to themselves, so they run wherever they are
unpacked; commands are made relative here. What else has the old folder written into it is not
changed: nobody knows before the container starts where its environment will be.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from pathspec import GitIgnoreSpec

from howdah.packing.archives import PackingError, Progress, SizeRow
from howdah.packing.cache import Content
from howdah.packing.folders import FolderContent
from howdah.packing.folders import look as look_at
from howdah.packing.ignore_rules import Rules
from howdah.packing.python.bytecode import with_byte_code
from howdah.packing.python.scripts import relative
from howdah.packing.tarball import TarEntry

_LEFT_OUT = (
    "__pycache__/",
    "*.py[co]",
    "/pkgs/",
    "/envs/",
)
_MACH_O = (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xfe\xed\xfa\xcf")


class CondaContents(msgspec.Struct, frozen=True):
    """What was found in a conda environment."""

    folder: Path
    found: FolderContent

    @property
    def inputs(self) -> object:
        """What changes when the environment does."""
        return ("conda", self.found.stamps)

    def content(self, scratch: Path, progress: Progress) -> Content:
        """What goes into the archive.

        Raises:
            PackingError: its interpreter does not run.
        """
        bin_ = self.folder / "bin"
        entries = [_relative(entry, bin_) for entry in self.found.entries]
        compiled = with_byte_code(entries, bin_ / "python", scratch / "pyc", progress)
        rows = [*self.found.by_top(), SizeRow("byte code", _total(compiled[len(entries) :]))]
        return Content(
            entries=compiled,
            python="bin/python",
            rows=tuple(sorted(rows, key=lambda row: -row.size)),
            notes=(
                f"the conda environment {self.folder}, as it is; what has that folder written into "
                "it, other than commands of Python, does not find it on the nodes",
                "left out: byte code, and conda's own pkgs and envs",
            ),
        )


def look(folder: Path, progress: Progress) -> CondaContents:
    """Look at a conda environment.

    Raises:
        PackingError: it has no interpreter, or one for macOS.
    """
    progress("looking at the environment", 0, None)
    python = folder / "bin/python"
    if not python.exists():
        raise PackingError(f"the conda environment {folder} has no Python: conda install python")
    with python.resolve().open("rb") as file:
        if file.read(4) in _MACH_O:
            raise PackingError(
                f"{folder} is a macOS environment: its interpreter and compiled packages do not run "
                "on Linux nodes. Name an archive made on Linux ([environment] archive)"
            )
    whole = folder.resolve()
    rules = Rules([(whole, GitIgnoreSpec.from_lines(_LEFT_OUT))], fixed=True)
    return CondaContents(whole, look_at(whole, rules, links_out=True))


def _relative(entry: TarEntry, folder: Path) -> TarEntry:
    if entry.path is None or not entry.executable or not entry.name.startswith("bin/"):
        return entry
    with entry.path.open("rb") as file:
        if file.read(2) != b"#!":
            return entry
    script = relative(entry.path.read_bytes(), folder)
    return entry if script is None else TarEntry(entry.name, content=script, executable=True)


def _total(entries: tuple[TarEntry, ...]) -> int:
    return sum(entry.path.stat().st_size for entry in entries if entry.path)
