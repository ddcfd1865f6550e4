"""Source folders: what is shipped, what is not, and what is refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from howdah.packing import source as sources
from howdah.packing.archives import Archive, PackingError
from howdah.packing.source import source
from tests.packing.unpacking import names, unpack


def write(folder: Path, *files: str, text: str = "x") -> Path:
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "source", "train.py")


def pack(folder: Path) -> Archive:
    return source(folder, folder.parent / "cache")


def shipped(folder: Path) -> set[str]:
    return names(unpack(pack(folder), folder.parent / f"unpacked{os.urandom(3).hex()}"))


def test_caches_histories_and_environments_are_left_out(folder: Path) -> None:
    write(folder, "package/__init__.py", "package/__pycache__/x.pyc", ".git/config", ".venv/x")
    write(folder, "mine/pyvenv.cfg", "mine/lib/x.py", ".ipynb_checkpoints/a", ".mypy_cache/b")
    assert shipped(folder) == {"train.py", "package/__init__.py"}
    assert pack(folder).notes == ("mine: left out, it is a virtual environment",)


def test_what_git_itself_lists_is_what_is_shipped(folder: Path) -> None:
    write(folder, "a/b/c.txt", "a/b/c.bin", "build/x", "deep/build", "ä.txt", "x y.dat", "#1", "!2")
    write(folder, "doc/frotz/a", "frotz/b", "foo/bar/baz", "deep/foo/q", "hello.1", "hello.x")
    patterns = ["build/", "*.bin", "doc/frotz", "**/foo/q", r"\#1", r"\!2", "hello.[0-9]", "x y*"]
    write(folder, ".gitignore", text="\n".join(patterns) + "\n")
    write(folder / "deep", ".gitignore", text="*\n!build\n")
    git = ["git", "-C", str(folder), "-c", "core.quotepath=off"]
    try:
        subprocess.run([*git, "init", "--quiet"], check=True)
    except FileNotFoundError:
        pytest.skip("there is no git here to compare with")
    listed = subprocess.run(
        [*git, "ls-files", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True, env={"PATH": os.environ["PATH"], "HOME": "/"},
    )  # fmt: skip
    assert shipped(folder) == set(listed.stdout.splitlines())


def test_a_howdahignore_leaves_out_more_and_takes_in_what_git_ignores(folder: Path) -> None:
    write(folder, "generated/config.json", "docs/manual.md", "notes.txt")
    write(folder, ".gitignore", text="generated/\n")
    write(folder, ".howdahignore", text="!generated/\ndocs/\n.*ignore\n")
    assert shipped(folder) == {"train.py", "generated/config.json", "notes.txt"}


def test_ignore_files_above_count_up_to_the_root_of_the_repository(tmp_path: Path) -> None:
    write(tmp_path, ".gitignore", text="*.txt\n")
    repository = write(tmp_path / "repository", ".git/config")
    write(repository, ".gitignore", text="*.log\n")
    folder = write(repository / "job", "train.py", "a.log", "b.txt")
    assert shipped(folder) == {"train.py", "b.txt"}
    write(repository, ".gitignore", text="job/\n")
    assert shipped(folder) == {"train.py", "a.log", "b.txt"}, "it was named"


def test_executable_bits_empty_folders_and_names_of_any_language_are_kept(folder: Path) -> None:
    write(folder, "run.sh", "größe/数据.txt", "with space/a\nb")
    (folder / "run.sh").chmod(0o744)
    (folder / "empty" / "inside").mkdir(parents=True)
    unpacked = unpack(pack(folder), folder.parent / "unpacked")
    assert names(unpacked) == {"train.py", "run.sh", "größe/数据.txt", "with space/a\nb"}
    assert os.access(unpacked / "run.sh", os.X_OK)
    assert (unpacked / "train.py").stat().st_mode & 0o111 == 0
    assert (unpacked / "empty" / "inside").is_dir()


def test_links_inside_stay_links_also_those_with_absolute_targets(folder: Path) -> None:
    write(folder, "package/module.py")
    (folder / "short").symlink_to("package/module.py")
    (folder / "package" / "up").symlink_to(folder / "train.py")
    (folder / "dangling").symlink_to("nothing")
    (folder / "round").symlink_to("round")
    unpacked = unpack(pack(folder), folder.parent / "unpacked")
    assert (unpacked / "short").readlink() == Path("package/module.py")
    assert (unpacked / "package" / "up").readlink() == Path("../train.py")
    assert (unpacked / "package" / "up").resolve() == (unpacked / "train.py").resolve()
    assert (unpacked / "dangling").is_symlink() and (unpacked / "round").is_symlink()


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "package/../../secret"])
def test_a_link_that_leads_out_is_refused_with_what_to_do(folder: Path, target: str) -> None:
    write(folder.parent, "secret")
    write(folder, "package/x")
    (folder / "link").symlink_to(target)
    with pytest.raises(PackingError) as error:
        pack(folder)
    assert f"link is a link to {target}, outside of the folder" in str(error.value)
    assert ".howdahignore" in str(error.value) and "`files`" in str(error.value)
    write(folder, ".howdahignore", text="link\n")
    assert "link" not in shipped(folder)
    (folder / "up").symlink_to("..")
    (folder / "through").symlink_to("up/secret")
    with pytest.raises(
        PackingError, match=r"up is a link to \.\.; |through is a link to up/secret"
    ):
        pack(folder)


def test_pipes_and_sockets_are_left_out_and_told(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert shipped(folder) == {"train.py"}
    assert pack(folder).notes == ("pipe: left out, it is no regular file",)


def test_a_name_that_is_not_utf8_is_refused(folder: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9")).touch()
    except OSError:
        pytest.skip("this file system does not take such names")
    with pytest.raises(PackingError, match="not UTF-8"):
        pack(folder)


def test_a_surprising_size_is_told_with_the_biggest_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "SURPRISING", 1000)
    write(folder, "data/train.csv", text="x" * 5000)
    write(folder, "data/test.csv", text="x" * 2000)
    archive = pack(folder)
    assert (
        "the biggest files are data/train.csv (5.0 kB), data/test.csv (2.0 kB)" in archive.notes[0]
    )
    assert archive.rows[0].name == "data/" and archive.rows[0].size == 7000


def test_a_changed_file_changes_the_archive_and_the_same_content_has_the_same_digest(
    folder: Path,
) -> None:
    first = pack(folder)
    write(folder, "train.py", text="y")
    second = pack(folder)
    write(folder, "train.py", text="x")
    assert first.digest != second.digest
    assert pack(folder).digest == first.digest
    status = (folder / "train.py").stat()
    (folder / "train.py").write_text("z")  # and its time is set back
    os.utime(folder / "train.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert pack(folder).digest not in (first.digest, second.digest)


def test_job_directories_are_left_out_wherever_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOWDAH_HOME", str(folder / "state"))
    write(folder, "state/jobs/ann/job-1/agent.key", "state/notes")
    archive = source(folder, folder.parent / "cache")
    assert names(unpack(archive, folder.parent / "unpacked")) == {"train.py", "state/notes"}
