"""Manifests and archives that somebody else made, brought into a folder: nothing lands beside it."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from howdah.backends.spark.artifacts import ArtifactWriter
from howdah.backends.spark.launch_bundle import unpack_source, write_files
from howdah.backends.spark.messages import FilePart
from howdah.packing import in_place
from howdah.packing.archives import Archive, ArchiveKind, PackingError, quiet
from howdah.packing.python import prebuilt_archives
from howdah.spec.model import Job
from howdah.storage.checkpoints.restoring import restore
from howdah.storage.checkpoints.versions import CheckpointSpec, Manifest, SavedFile, checksum
from howdah.storage.folder_sync import Puller
from howdah.storage.stores.destinations import open_destination

TEXT = b"planted"
SOUND = {"weights": TEXT}


def version(store: Path, name: str, files: Mapping[str, bytes | str]) -> None:
    """A version of that name as whoever can write to the store can make it: contents by path, and
    of links where they point."""
    saved: list[SavedFile] = []
    (store / name).mkdir(parents=True)
    for number, (path, content) in enumerate(files.items()):
        if isinstance(content, str):
            saved.append(SavedFile(path=path, size=0, link=content))
            continue
        (store / name / str(number)).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        saved.append(SavedFile(path=path, size=len(content), sha256=digest, stored=str(number)))
    manifest = Manifest(files=tuple(saved), checksum=checksum(saved), created=time.time())
    (store / name / "manifest.json").write_bytes(msgspec.json.encode(manifest))


def everything(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The task's folder is three levels down, so that two levels up can be looked at."""
    (tmp_path / "home" / "container" / "task").mkdir(parents=True)
    return tmp_path / "home"


def spec(tmp_path: Path, home: Path) -> CheckpointSpec:
    return CheckpointSpec(
        folder=str(home / "container" / "task" / "checkpoint"), store=str(tmp_path / "store")
    )


HOSTILE: list[dict[str, bytes | str]] = [
    {"p/q": "..", "p/l": "q/../..", "p/l/x": TEXT},
    {"p/q": "..", "p/l": "q/../.."},
    {"l": "d", "l/x": TEXT},
    {"l/x": TEXT, "l": "../.."},
    {"a": "b", "b": "c/../..", "c": "."},
    {"f": TEXT, "f/x": TEXT},
    {"x\0y": TEXT},
    {"./x": TEXT},
    {"../x": TEXT},
    {"/tmp/howdah-planted": TEXT},
]


@pytest.mark.parametrize("files", HOSTILE)
def test_a_version_that_would_be_written_elsewhere_is_passed_over(
    tmp_path: Path, home: Path, files: dict[str, bytes | str]
) -> None:
    """Finding 5: A manifest has links, and a file below them that would be written two levels up.
    The version counts as damaged, and the one before it is restored."""
    version(tmp_path / "store", "000001", SOUND)
    version(tmp_path / "store", "000002", files)
    wanted = spec(tmp_path, home)
    restored = restore(wanted)
    assert restored.version == "000001"
    assert [each.version for each in restored.skipped] == ["000002"]
    assert "manifest.json" in restored.skipped[0].reason
    assert (Path(wanted.folder) / "weights").read_bytes() == TEXT
    task = "container/task"
    assert everything(home) == {
        *("container", task, f"{task}/checkpoint", f"{task}/checkpoint/weights")
    }


def test_a_link_in_place_of_the_folder_is_replaced_and_not_followed(
    tmp_path: Path, home: Path
) -> None:
    """There is a link where a checkpoint is to be restored. The link is replaced, and what it led
    to stays as it is."""
    version(tmp_path / "store", "000001", {"weights": TEXT, "latest": "weights"})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")
    wanted = spec(tmp_path, home)
    Path(wanted.folder).symlink_to(elsewhere)
    assert restore(wanted).version == "000001"
    assert everything(elsewhere) == {"kept"}
    assert not Path(wanted.folder).is_symlink()
    assert (Path(wanted.folder) / "latest").read_bytes() == TEXT


def test_what_a_container_sends_follows_no_link(tmp_path: Path) -> None:
    """A container of a Spark job sends a file below a link of the job directory. It is not written,
    and no folder is made where the link leads."""
    directory, elsewhere = tmp_path / "job", tmp_path / "elsewhere"
    (directory / "outputs").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "file").write_text("kept")
    (directory / "outputs" / "l").symlink_to(elsewhere)
    (directory / "outputs" / "f").symlink_to(elsewhere / "file")
    writer = ArtifactWriter(directory)
    for path in ("outputs/l/x", "outputs/l/deep/x", "outputs/f"):
        with pytest.raises(ValueError, match="outputs/"):
            writer.write(FilePart(path=path, offset=0, data=TEXT))
    assert everything(elsewhere) == {"file"} and (elsewhere / "file").read_text() == "kept"


def test_what_a_container_sends_waits_at_no_pipe(tmp_path: Path) -> None:
    """Finding 17: A program has made a named pipe in the place of a file of the job directory.
    Writing there would keep the driver waiting forever. It is refused at once."""
    (tmp_path / "outputs").mkdir()
    os.mkfifo(tmp_path / "outputs" / "x")
    with pytest.raises(ValueError, match="outputs/x"):
        ArtifactWriter(tmp_path).write(FilePart(path="outputs/x", offset=0, data=TEXT))


def test_event_files_are_not_pulled_through_links(tmp_path: Path) -> None:
    """A program has put a link into its TensorBoard folder. Files that are pulled there are not
    written through it."""
    there, here, elsewhere = tmp_path / "there", tmp_path / "here", tmp_path / "elsewhere"
    for folder in (there / "run", here, elsewhere):
        folder.mkdir(parents=True)
    (there / "run" / "events").write_bytes(TEXT)
    (here / "run").symlink_to(elsewhere)
    with pytest.raises(OSError, match="leads out"):
        Puller(open_destination(str(there)), here).pull()
    assert everything(elsewhere) == set()


def slip(path: str, link: tuple[str, str] | None = None) -> bytes:
    """A tar archive with that member, after a link if there is one."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        if link is not None:
            info = tarfile.TarInfo(link[0])
            info.type, info.linkname = tarfile.SYMTYPE, link[1]
            tar.addfile(info)
        info = tarfile.TarInfo(path)
        info.size = len(TEXT)
        tar.addfile(info, io.BytesIO(TEXT))
    return file.getvalue()


SLIPS = [
    ("../x", None),
    ("a/../../x", None),
    ("l/x", ("l", "..")),
    ("p/l/x", ("p/l", "../..")),
]


@pytest.mark.parametrize(("path", "link"), SLIPS)
def test_a_source_archive_is_unpacked_nowhere_else(
    tmp_path: Path, path: str, link: tuple[str, str] | None
) -> None:
    """A source archive with a path out of its folder reaches an executor. Nothing is written."""
    with pytest.raises(tarfile.FilterError):
        unpack_source(slip(path, link), tmp_path / "a" / "source")
    assert everything(tmp_path) <= {"a", "a/source", "a/source/p"}


@pytest.mark.parametrize("name", ["../agent.key", "/tmp/howdah-planted", "a/../../x", "l/x"])
def test_what_travels_to_an_executor_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    """A file for an executor has a name that leads out of its folder. It is refused."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    (folder / "l").symlink_to(tmp_path)
    with pytest.raises(OSError, match="folder|leads out"):
        write_files({name: TEXT}, folder)
    assert everything(tmp_path) == {"shipped", "shipped/l"}


def zipped(path: str, link: tuple[str, str] | None) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        if link is not None:
            info = zipfile.ZipInfo(link[0])
            info.external_attr = 0o120777 << 16
            archive.writestr(info, link[1])
        archive.writestr(path, TEXT)
        archive.writestr("bin/python", TEXT)
    return file.getvalue()


@pytest.mark.parametrize("suffix", [".tar.gz", ".zip"])
@pytest.mark.parametrize(("path", "link"), [*SLIPS, ("/x", None)])
def test_an_environment_with_a_path_out_of_its_folder_is_not_shipped(
    tmp_path: Path, path: str, link: tuple[str, str] | None, suffix: str
) -> None:
    """An environment archive has a path that leads out of its folder on the nodes. It is refused
    before anything is submitted."""
    file = tmp_path / f"environment{suffix}"
    file.write_bytes(zipped(path, link) if suffix == ".zip" else slip(path, link))
    archive = Archive(
        kind=ArchiveKind.ENVIRONMENT,
        digest=hashlib.sha256(file.read_bytes()).hexdigest(),
        path=file,
        size=file.stat().st_size,
        files=0,
        unpacked_size=0,
        suffix=suffix,
    )
    with pytest.raises(PackingError, match="leads out"):
        prebuilt_archives.looked_into(archive, os.fspath(file), tmp_path / "cache", quiet)


@pytest.mark.parametrize("target", ["..", "../..", None])
def test_a_zip_on_this_machine_is_unpacked_nowhere_else(tmp_path: Path, target: str | None) -> None:
    """A zip among the files of a job has a path that goes through a link in it. Nothing is written
    outside, and the job is refused."""
    where = target or os.fspath(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    file = tmp_path / "x.zip"
    file.write_bytes(zipped("p/l/x", ("p/l", where)))
    with pytest.raises(PackingError, match="x.zip cannot be unpacked"):
        in_place.files(Job(files=("x.zip -> x/",)), tmp_path, tmp_path / "cache")
    assert not any(name.endswith("/x") for name in everything(tmp_path))
