"""A job's environment and files for programs of this machine: where they are, or in the cache."""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
from pathlib import Path

from howdah.packing import files as lines
from howdah.packing.archives import Archive, ArchiveKind, PackingError, Progress, quiet
from howdah.packing.cache import Cache
from howdah.packing.files import FilesLine, fetched, is_url, path_of, understand
from howdah.packing.folders import MOST_FILES
from howdah.packing.python import prebuilt_archives, uv
from howdah.packing.unpacking import unpack
from howdah.spec.model import Job
from howdah.storage.stores import file_system

_PYTHON = "bin/python"


def python(job: Job, folder: Path, cache: Path, progress: Progress = quiet) -> str | None:
    """The interpreter of the job's environment, which is built or unpacked unless it is there;
    None if the job has none but an interpreter.

    Paths are relative to ``folder``, the job file's.

    Raises:
        PackingError: what is wrong, and what to do.
    """
    wanted = job.environment
    if wanted.venv is not None:
        found = path_of(wanted.venv, folder) / _PYTHON
    elif wanted.archive is not None:
        found = _unpacked_environment(wanted.archive, folder, cache, progress)
    elif wanted.requirements is not None:
        recipe = uv.of_requirements(path_of(wanted.requirements, folder))
        found = uv.built(recipe, cache, progress) / _PYTHON
    elif wanted.project is not None:
        recipe = uv.of_project(path_of(wanted.project, folder))
        found = uv.built(recipe, cache, progress) / _PYTHON
    else:
        return None
    if not os.access(found, os.X_OK):
        raise PackingError(f"[environment]: there is no interpreter {found}")
    return str(found)


def files(
    job: Job, folder: Path, cache: Path, progress: Progress = quiet
) -> dict[str, dict[str, str]]:
    """What is put beside the source, by role (``""`` for all) and name: paths of this machine.

    Raises:
        PackingError: something is not there, or cannot be what is said.
    """
    return {
        role: dict(
            pair for one in understand(of_role) for pair in _placed(one, folder, cache, progress)
        )
        for role, of_role in job.files_by_role.items()
    }


def _placed(
    wanted: FilesLine, folder: Path, cache: Path, progress: Progress
) -> list[tuple[str, str]]:
    """Names and paths of one line; several of a folder on HDFS, which are the files in it."""
    place = wanted.place.removeprefix("file://")
    if is_url(place):
        inside = _inside(place) if place.startswith(lines.READY) and not wanted.unpack else None
        if inside is not None:
            pairs: list[tuple[str, str]] = []
            for url in inside:
                pairs += _placed(
                    FilesLine(url, url.rpartition("/")[2], False), folder, cache, progress
                )
            return pairs
        archive = fetched(place, ArchiveKind.FILES, cache, progress)
        if not wanted.unpack:
            Cache(cache).hold(archive)
    else:
        path = path_of(place, folder)
        if path.is_dir():
            _refuse_many(path)
            return [(wanted.name, str(path))]
        if path.is_file() and not wanted.unpack:
            return [(wanted.name, str(path))]
        if not path.is_file():
            raise PackingError(f"files: there is no file or folder {path}")
        if not path.name.endswith(lines.ARCHIVES):
            raise lines.not_an_archive(str(path))
        archive = lines.ready(path, ArchiveKind.FILES, cache)
    if wanted.unpack:
        return [(wanted.name, str(_unpacked(archive, cache, progress)))]
    return [(wanted.name, str(archive.path))]


def _refuse_many(folder: Path) -> None:
    files = 0
    for _, _, names in os.walk(folder):
        files += len(names)
        if files > MOST_FILES:
            raise PackingError(
                f"files: {folder} has more than {MOST_FILES:,} files, and each task gets a folder with all of "
                "them; leave it out, and let the programs open it by its path"
            )


def _unpacked_environment(place: str, folder: Path, cache: Path, progress: Progress) -> Path:
    if is_url(place) and not place.startswith("file://"):
        archive = fetched(place, ArchiveKind.ENVIRONMENT, cache, progress)
    else:
        path = path_of(place, folder)
        if not path.is_file():
            raise PackingError(f"[environment] archive: there is no file {path}")
        archive = lines.ready(path, ArchiveKind.ENVIRONMENT, cache)
    archive = prebuilt_archives.looked_into(archive, place, cache, progress, for_nodes=False)
    return _unpacked(archive, cache, progress) / (archive.python or _PYTHON)


def _unpacked(archive: Archive, cache: Path, progress: Progress) -> Path:
    path = archive.path
    assert path is not None
    is_zip = archive.suffix in prebuilt_archives.ZIPS

    def make(target: Path) -> None:
        progress(f"unpacking {path.name}", 0, None)
        target.mkdir(mode=0o700)
        try:
            if is_zip:
                _unzip(path, target)
            else:
                with tarfile.open(path, "r:*") as tar:
                    unpack(tar, target, links_outside=True)
        except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
            raise PackingError(f"{path} cannot be unpacked: {error}") from error

    # Earlier versions unpacked links in a zip as files; those folders are not used again.
    what = "unpacked with links" if is_zip else "unpacked"
    return Cache(cache).folder_of((what, archive.digest, archive.suffix), make)


def _unzip(path: Path, target: Path) -> None:
    """All that is in it. Links may lead anywhere, as those of an environment do; nothing is written through
    them.

    Raises:
        zipfile.BadZipFile: two of its names can't both be there, or it is damaged.
    """
    links: dict[Path, str] = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            try:
                made = Path(archive.extract(info, target))
            except (NotADirectoryError, IsADirectoryError, FileExistsError) as error:
                raise zipfile.BadZipFile(f"{info.filename!r} is below a link or a file") from error
            if stat.S_ISLNK(info.external_attr >> 16):
                links[made] = os.fsdecode(archive.read(info))
            elif mode := info.external_attr >> 16 & 0o777:
                made.chmod(mode | 0o600)
    # Last of all, and each in the place of the file that it was unpacked as: till then there are no links
    # that something could be written through.
    for made, leads_to in links.items():
        made.unlink()
        made.symlink_to(leads_to)


def _inside(url: str) -> list[str] | None:
    """URLs of the files in a folder; None if it is none."""
    try:
        fs, root = file_system(url, written=False)
        if not fs.isdir(root):
            return None
        found = [entry["name"] for entry in fs.ls(root, detail=True) if entry["type"] == "file"]
    except Exception as error:  # whatever an fsspec implementation raises
        raise PackingError(f"{url} cannot be read: {error or type(error).__name__}") from error
    return [f"{url.rstrip('/')}/{str(name).rpartition('/')[2]}" for name in sorted(found)]
