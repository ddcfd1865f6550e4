"""Folders from which Howdah runs programs or trusts sockets: nobody else can have put anything there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from howdah.packing.archives import Archive, ArchiveKind, PackingError
from howdah.packing.cache import Cache
from howdah.portal.jobs import list_folder
from howdah.storage import ownership, runtime
from howdah.storage.jobdir import NotYours


def other_users(folder: Path) -> None:
    if os.getuid():
        pytest.skip("only root can give a folder to another user")
    os.chown(folder, 54321, 54321)


EXPOSED: dict[str, Callable[[Path], None]] = {
    "others write": lambda folder: folder.chmod(0o777),
    "others write above": lambda folder: folder.parent.chmod(0o777),
    "another user's": other_users,
    "another user's above": lambda folder: other_users(folder.parent),
}


@pytest.fixture(params=EXPOSED)
def exposed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder of programs that somebody else could replace."""
    folder = tmp_path / "above" / "folder"
    folder.mkdir(parents=True)
    EXPOSED[request.param](folder)
    return folder


def never(*_: object) -> Archive:
    raise AssertionError("something was put into a folder that is not the user's alone")


def test_no_environment_is_taken_from_a_cache_that_others_can_change(exposed: Path) -> None:
    """Finding 19: someone who may write to the cache of environments, or to a folder above it, puts a program
    there that the user's next job would run. Nothing is taken from such a cache."""
    for use in (
        lambda cache: cache.folder_of("environment", never),
        lambda cache: cache.get(ArchiveKind.ENVIRONMENT, "environment", never),
        lambda cache: cache.outdate_folder("environment"),
        lambda cache: cache.sweep(),
    ):
        with pytest.raises(PackingError, match="so that .*XDG_CACHE_HOME"):
            use(Cache(exposed))


def test_a_link_that_others_can_replace_leads_to_no_cache(tmp_path: Path) -> None:
    """Finding 19: the cache is reached through a link that someone else can replace. It is refused."""
    own, shared = tmp_path / "own", tmp_path / "shared"
    own.mkdir()
    shared.mkdir()
    (shared / "cache").symlink_to(own)
    shared.chmod(0o777)
    with pytest.raises(PackingError, match="others may write to"):
        Cache(shared / "cache")


def test_every_level_of_a_new_cache_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Cache(tmp_path / "home" / ".cache" / "howdah").folder_of("environment", Path.mkdir)
    finally:
        os.umask(before)
    made = [path for path in (tmp_path / "home").rglob("*") if path.is_dir()]
    folders = [path for path in made if path.parent.name != "folders"]
    assert {path.name for path in folders} >= {".cache", "howdah", "folders", "locks", "scratch"}
    assert [path for path in folders if path.stat().st_mode & 0o077] == []


def test_a_cache_of_an_earlier_release_is_closed_to_those_who_could_look_into_it(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "howdah"
    folder.mkdir(mode=0o755)
    Cache(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_sockets_are_in_no_folder_that_others_could_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 19: the folder above the private one for sockets is writable by others and not sticky, so that
    they could exchange it. It is refused."""
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="others may write to"):
        runtime.private_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv(ownership.TRUSTED, str(tmp_path))
    assert runtime.private_folder(tmp_path).is_dir()
    monkeypatch.delenv(ownership.TRUSTED)
    tmp_path.chmod(0o1777)  # as /tmp is
    assert runtime.private_folder(tmp_path).is_dir()


def test_what_portals_keep_is_in_no_folder_that_others_could_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 19: someone puts a list of jobs of theirs in the place of a portal's. It is refused."""
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))
    assert list_folder() == tmp_path / "home" / "portal"
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o777)
    with pytest.raises(NotYours, match="others may write to"):
        list_folder()
