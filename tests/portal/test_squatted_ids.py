"""A team's portal: a folder of one's own with the id of somebody else's job takes nothing from them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from howdah.portal.copies import JOB_ID, Copies, FolderStore
from howdah.storage.copies.local_copy import origin_of
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import JobMeta

ID = "digits-20261121-143502-k3f9"


def job_of(store: Path, user: str, job_id: str = ID) -> None:
    directory = JobDirectory(store / user / job_id)
    directory.path.mkdir(parents=True)
    directory.write_meta(
        JobMeta(job_id=job_id, user=user, backend="local", submitted=time.time(), howdah="1")
    )


def shown(copies: Copies) -> dict[str, tuple[str, ...]]:
    """Users by the names of the copies."""
    copies.bring(lambda: False)
    assert copies.unread == {}
    return {
        path.name: tuple(Path(origin_of(path).folder).parts[-2:]) for path in copies.base.iterdir()
    }


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_a_squatted_id_displaces_nobodys_job(store: Path, tmp_path: Path) -> None:
    """Finding 21: someone gives a folder of theirs the id of somebody else's job. Both are shown, each as its own
    user's, and neither under the id."""
    job_of(store, "victim")
    job_of(store, "attacker")
    job_of(store, "victim", "other-20261121-143502-aaaa")
    copies = Copies(FolderStore(store), tmp_path / "portal")
    try:
        found = shown(copies)
    finally:
        copies.close()
    assert found.pop("other-20261121-143502-aaaa")[0] == "victim"
    assert sorted(found.values()) == [("attacker", ID), ("victim", ID)]
    # Nobody can choose to be called so.
    assert not any(JOB_ID.fullmatch(name) for name in found) and max(map(len, found)) <= 63


def test_a_job_that_is_known_keeps_its_id_when_it_is_squatted(store: Path, tmp_path: Path) -> None:
    job_of(store, "victim")
    for attackers in ((), ("attacker",), ("attacker", "zoe")):
        for attacker in attackers[-1:]:
            job_of(store, attacker)
        copies = Copies(FolderStore(store), tmp_path / "portal")
        try:
            found = shown(copies)
        finally:
            copies.close()
        assert found.pop(ID) == ("victim", ID)
        assert sorted(user for user, _ in found.values()) == sorted(attackers)


def test_what_is_gone_leaves_the_others_of_its_id(store: Path, tmp_path: Path) -> None:
    job_of(store, "victim")
    job_of(store, "attacker")
    copies = Copies(FolderStore(store), tmp_path / "portal")
    try:
        assert len(shown(copies)) == 2
        (store / "attacker" / ID).rename(store / "attacker" / ".gone")
        assert list(shown(copies).values()) == [("victim", ID)]
    finally:
        copies.close()
