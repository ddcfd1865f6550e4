"""Ready archives with an interpreter: looked into, to find it."""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from howdah.packing.archives import Archive, PackingError, Progress, quantity
from howdah.packing.cache import Cache
from howdah.packing.files import ARCHIVES

PYTHON = "bin/python"
ZIPS = (".zip", ".jar")
HEAD = 8 << 20
"""So many bytes of a runtime are read to know its Python: ``bin`` is at the beginning."""
_MINOR = re.compile(r"(?:\./)?bin/python(3\.\d+)")
_CANDIDATE = re.compile(r"(?:\./)?((?:[^/]+/)?bin/python3?)")


def looked_into(
    archive: Archive,
    place: str,
    cache: Path,
    progress: Progress,
    key: str = "[environment] archive",
    *,
    for_nodes: bool = True,
) -> Archive:
    """The archive, with the place of its interpreter. ``key`` is what named it.

    Args:
        for_nodes: it is YARN that unpacks it.

    Raises:
        PackingError: it is no archive that YARN unpacks, or there is no interpreter in it.
    """
    assert archive.path is not None
    path = archive.path
    check_ending(archive, place, key)

    def make(_scratch: Path) -> Archive:
        progress(f"looking into {place}", 0, None)
        return _with_contents(archive, path, place, key, for_nodes)

    what = "looked into for nodes" if for_nodes else "looked into"
    return Cache(cache).get(archive.kind, (what, archive.digest, str(path)), make)


def check_ending(archive: Archive, place: str, key: str = "[environment] archive") -> None:
    """Refuse an archive of another kind than those that YARN unpacks.

    Raises:
        PackingError: it is one.
    """
    if not archive.suffix:
        raise PackingError(
            f"{key}: {place} is none that the nodes unpack; it must be one of {', '.join(ARCHIVES)}"
        )


def python_minor(head: bytes) -> str:
    """``3.11``: of the interpreter in a runtime, by the first bytes of its ``tar.gz``; empty where they don't
    tell."""
    # What is cut off ends as one that is damaged.
    with contextlib.suppress(OSError, EOFError, tarfile.TarError, zlib.error):
        with tarfile.open(fileobj=gzip.GzipFile(fileobj=io.BytesIO(head)), mode="r|") as archive:
            for member in archive:
                if match := _MINOR.fullmatch(member.name):
                    return match[1]
    return ""


def _with_contents(archive: Archive, path: Path, place: str, key: str, for_nodes: bool) -> Archive:
    found: list[str] = []
    size = count = 0
    unpack = False
    links: set[str] = set()
    try:
        for name, length, link in _members(path, archive.suffix):
            _check_inside(name, links, place, key)
            if link:
                links.add(_plain(name))
            count += 1
            size += length
            unpack = unpack or name.endswith("bin/conda-unpack")
            if match := _CANDIDATE.fullmatch(name):
                found.append(match[1])
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise PackingError(f"{key}: {place} cannot be read as an archive: {error}") from error
    if not found:
        raise PackingError(
            f"{key}: there is no {PYTHON} in {place}, neither at its top nor in a folder there"
        )
    python = min(found, key=lambda name: (name.count("/"), len(name), name))
    if for_nodes and archive.suffix in ZIPS and python in links:
        raise PackingError(
            f"{key}: {python} in {place} is a symbolic link, of which Hadoop makes a file when it "
            "unpacks a zip; make a .tar.gz instead"
        )
    notes = [f"{place}, as it is; {quantity(archive.size)}"]
    if unpack:
        notes.append(
            "made by conda-pack: its conda-unpack is not run on the nodes, so programs that have "
            "the old folder written into them do not find it"
        )
    return msgspec.structs.replace(
        archive, python=python, files=count, unpacked_size=size, notes=tuple(notes)
    )


def _check_inside(name: str, links: set[str], place: str, key: str) -> None:
    """Refuse what would be unpacked outside of the folder it is unpacked in.

    What a node does with it is up to its version of Hadoop and tar.
    """
    plain = _plain(name)
    above = [plain[:end] for end, letter in enumerate(plain) if letter == "/"]
    if name.startswith("/") or ".." in plain.split("/") or links.intersection(above):
        raise PackingError(
            f"{key}: {place} has {name!r} in it, which leads out of the folder it is "
            "unpacked in. No packer of environments writes such a name: make the archive anew, and "
            "don't use this one"
        )


def _plain(name: str) -> str:
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def _members(path: Path, suffix: str) -> Iterator[tuple[str, int, bool]]:
    """Names and sizes of what is no folder, and whether it is a symbolic link."""
    if suffix in ZIPS:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                yield info.filename, info.file_size, stat.S_ISLNK(info.external_attr >> 16)
        return
    # Not as a stream ("r|*"): that stops at the end of the first gzip member, and ours have many.
    with tarfile.open(path, "r:*") as archive:
        for member in archive:
            if not member.isdir():
                yield member.name, member.size, member.issym()
