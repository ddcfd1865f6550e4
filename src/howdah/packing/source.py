"""The source folder as an archive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from howdah.packing import ignore_rules
from howdah.packing.archives import Archive, ArchiveKind, PackingError, Progress, quantity, quiet
from howdah.packing.cache import Cache, Content, tar_of
from howdah.packing.folders import MOST_FILES, FolderContent, look, too_many_files
from howdah.storage.jobdir import base_folder

SURPRISING = 100 * 10**6
"""Bytes of a source folder from which on its biggest files are told."""


def source(
    folder: Path, cache: Path, progress: Progress = quiet, *, ignore: Sequence[str] = ()
) -> Archive:
    """The archive of a source folder.

    Ignore files are respected (`howdah.packing.ignore_rules`), the job file's ``ignore`` and the executable bits too. Job directories
    and the cache are left out wherever they are.

    Raises:
        PackingError: what is wrong, and what to do.
    """
    if not folder.is_dir():
        raise PackingError(f"there is no source folder {folder}")
    progress("looking at the source folder", 0, None)
    found = look(
        folder, ignore_rules.rules(folder.resolve(), ignore), (base_folder(None).parent, cache)
    )
    if len(found.entries) > MOST_FILES:
        raise too_many_files(folder)

    def make(scratch: Path) -> Archive:
        content = Content(
            entries=found.entries,
            rows=found.by_top(),
            notes=(*_surprise(folder, found), *found.notes),
        )
        return tar_of(ArchiveKind.SOURCE, content, scratch, progress)

    return Cache(cache).get(ArchiveKind.SOURCE, (str(folder), found.stamps), make)


def _surprise(folder: Path, found: FolderContent) -> tuple[str, ...]:
    if not found.entries:
        return (f"{folder} has nothing to ship: it is empty, or all that is in it is ignored",)
    if found.size <= SURPRISING:
        return ()
    biggest = ", ".join(f"{row.name} ({quantity(row.size)})" for row in found.biggest(5))
    return (
        f"{folder} has {quantity(found.size)} to ship; the biggest files are {biggest}. Data is "
        "better read from a store; a .howdahignore file leaves out what the programs do not need",
    )
