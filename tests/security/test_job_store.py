"""Job directories that somebody else has made, or could have put there: no command takes them."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from howdah.cli.main import main
from howdah.storage import layout
from howdah.storage.jobdir import JobDirectory
from tests.cli.howdah import HOWDAH, gone, job_file

STRANGER = 54321
COMMANDS = (
    ("status",),
    ("logs",),
    ("events",),
    ("attach",),
    ("attach", "--revive"),
    ("rerun", "--detach"),
    ("stop", "--now"),
    ("stack", "--task", "worker:0"),
)
PROGRAM = "import os, pathlib\npathlib.Path(os.environ['RAN']).touch()\n"


class Done(NamedTuple):
    """What came of a command."""

    returncode: int
    stdout: str
    stderr: str


class Store:
    """A user's job store with one job in it that has run, and a copy of that which somebody else put
    there: not over, so that it can be revived."""

    def __init__(self, folder: Path) -> None:
        self.ran = folder / "ran"
        self.home = folder / "home"
        line = [*HOWDAH, "run", str(job_file(folder, PROGRAM, env={"RAN": str(self.ran)}))]
        env = {**os.environ, "HOWDAH_HOME": str(self.home)}
        # Their umask lets everyone do everything.
        subprocess.run(line, env=env, umask=0, timeout=150, check=True, capture_output=True)
        assert self.ran.exists()
        self.ran.unlink()
        [self.own] = [path.parent for path in self.home.glob(f"jobs/*/*/{layout.META}")]
        self.base = self.own.parent
        name = self.own.name[:-4] + "evil"
        self.planted = self.base / name
        gone(JobDirectory(self.own))  # or it would still remove some of its files
        shutil.copytree(self.own, self.planted)
        (self.planted / layout.FINAL).unlink()
        directory = JobDirectory(self.planted)
        directory.write_meta(msgspec.structs.replace(directory.meta(), job_id=name))

    def howdah(self, *arguments: str, **variables: str) -> Done:
        """Run a command in this process."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"HOWDAH_HOME": str(self.home), **variables}.items():
                patch.setenv(name, value)
            out, err = io.StringIO(), io.StringIO()
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                return Done(main(list(arguments)), out.getvalue(), err.getvalue())

    def refuses(self, job: Path, text: str) -> None:
        """Every command refuses it, and nothing of it has run."""
        for command in COMMANDS:
            told = self.howdah(command[0], job.name, *command[1:])
            assert told.returncode not in (0, 1), f"{command}: {told.stdout}{told.stderr}"
            assert text in told.stderr and "can't be trusted" in told.stderr
            assert "Traceback" not in told.stderr
        assert not self.ran.exists()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture
def store(made: Store) -> Iterator[Store]:
    """The same for each test: it is put back as it was."""
    kept = made.home.with_name("kept")
    shutil.copytree(made.home, kept, symlinks=True)
    yield made
    shutil.rmtree(made.home)
    kept.rename(made.home)


def given_away(path: Path) -> None:
    if os.getuid():
        pytest.skip("only root can make a folder another user's")
    os.chown(path, STRANGER, STRANGER)


def test_a_job_that_another_user_has_planted_is_refused_by_every_command(store: Store) -> None:
    """Finding 9: Another user puts a job into the victim's store, and gets the victim to name its
    id. Every command refuses the job; `list` skips it and says so."""
    given_away(store.planted)
    store.refuses(store.planted, f"belongs to another user, uid {STRANGER}")
    listed = store.howdah("list")
    assert store.own.name in listed.stdout and store.planted.name not in listed.stdout
    assert "passed over" in listed.stderr and store.planted.name in listed.stderr
    assert "succeeded" in store.howdah("status", store.own.name).stdout


def test_a_job_folder_that_others_may_write_to_or_that_is_a_link_is_refused(store: Store) -> None:
    """Others may write to a job's folder, or it is a link to a folder elsewhere. The job is not
    run."""
    store.planted.chmod(0o770 if os.getgid() else 0o777)
    told = store.howdah("attach", "--revive", store.planted.name)
    assert f"others may write to {store.planted}" in told.stderr
    elsewhere = store.home / "elsewhere"
    store.planted.rename(elsewhere)
    elsewhere.chmod(0o700)
    store.planted.symlink_to(elsewhere)
    told = store.howdah("attach", "--revive", store.planted.name)
    assert told.returncode and f"{store.planted} is a link" in told.stderr
    assert not store.ran.exists()


def test_a_store_whose_folder_others_could_replace_is_refused(store: Store) -> None:
    """Others may write to a level above the job store and replace the folder of jobs. Every command
    refuses the whole store, for a new job too."""
    open_level = store.base.parent
    open_level.chmod(0o777)
    store.refuses(store.own, f"others may write to {open_level}")
    for command in (("list",), ("run", "--", sys.executable, "-c", "pass")):
        told = store.howdah(*command)
        assert told.returncode and f"others may write to {open_level}" in told.stderr
    assert len(list(store.base.iterdir())) == 2
    open_level.chmod(0o1777)  # sticky, as /tmp: nobody else can replace it
    assert store.howdah("status", store.own.name).returncode == 0


@pytest.mark.parametrize(
    "mode", [0o2775, pytest.param(0o777, marks=pytest.mark.nightly)], ids=["team", "emptyDir"]
)
def test_a_shared_folder_is_refused_until_its_user_says_that_it_is_trusted(
    store: Store, mode: int
) -> None:
    """A store is below a team's folder, or below one of root's that everyone may write to. It is
    refused with what to do. It is taken once the user trusts that folder, but what is below the
    folder is still checked."""
    shared = store.home
    if os.getuid() == 0:
        os.chown(shared, -1, STRANGER)
    shared.chmod(mode)
    told = store.howdah("status", store.own.name)
    assert told.returncode and f"others may write to {shared}" in told.stderr
    for way_out in ("chmod +t", "HOWDAH_TRUSTED_FOLDER", "HOWDAH_HOME"):
        assert way_out in told.stderr
    trusting = {"HOWDAH_TRUSTED_FOLDER": str(shared)}
    assert "succeeded" in store.howdah("status", store.own.name, **trusting).stdout
    store.base.parent.chmod(0o777)
    told = store.howdah("status", store.own.name, **trusting)
    assert told.returncode and f"others may write to {store.base.parent}" in told.stderr
    store.base.parent.chmod(0o700)
    given_away(store.planted)
    told = store.howdah("attach", "--revive", store.planted.name, **trusting)
    assert told.returncode and "belongs to another user" in told.stderr
    shared.chmod(mode | 0o1000)
    assert "succeeded" in store.howdah("status", store.own.name).stdout


def test_every_level_of_a_new_store_is_its_owners_alone(store: Store) -> None:
    """The victim's umask is 000 when they run their first job. Nobody else may enter any level of
    the store that Howdah has made."""
    made = [path for path in store.home.rglob("*") if path.is_dir()]
    assert len(made) > 6
    assert {path.stat().st_mode & 0o777 for path in [store.home, *made]} == {0o700}
