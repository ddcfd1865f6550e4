"""The portal over job directories that real runs have made."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from playwright.sync_api import Page, expect

from howdah.portal import jobs
from howdah.portal.access_control import Team
from howdah.portal.app import create_portal
from howdah.portal.jobs import Jobs
from howdah.storage.jobdir import JobDirectory, base_folder
from howdah.wire import tickets
from howdah.wire.status import JobView
from tests.browser.conftest import browser, context, page  # noqa: F401 - fixtures
from tests.cli.finished import made_once
from tests.cli.howdah import Run, ended_at_last, gone, howdah, job_file, newest, start
from tests.unit.web.fake_job import TOKEN
from tests.unit.web.serving import Served

MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"

LOSES = """
import time
from howdah import task

for step in range(3):
    task.report(step=step, loss=1 / (step + 1))
    print("step", step, flush=True)
raise SystemExit("ValueError: row 1798 of shard 3")
"""
HOLDS = """
import os, time
from howdah import task

task.report(step=1, total=4)
print("holding on", flush=True)
while not os.path.exists(os.environ["GOAL"]):
    time.sleep(0.05)
print("let go", flush=True)
"""


class Past(NamedTuple):
    """Jobs as a laptop has them after a day's work."""

    base: Path
    good: JobDirectory
    failed: JobDirectory
    hostile: JobDirectory


class Portal(Served):
    """A portal over a folder, on a free port of this machine."""

    jobs: Jobs

    def __init__(self, base: Path, folder: Path, team: Team | None = None) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.base, self.folder, self.team = base, folder, team

    def start(self) -> None:
        from howdah.coordinator.web.server import serve
        from howdah.wire.addresses import listening

        async def begin() -> None:
            self.jobs = Jobs(self.base, self.folder)
            self.app = create_portal(self.jobs, TOKEN, team=self.team)
            self.server = await serve(self.app, listening("127.0.0.1"))

        self._thread.start()
        self.run(begin())

    def stop(self) -> None:
        async def others_end() -> None:  # as at the end of `asyncio.run`
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for each in others:
                each.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self.run(self.server.close())
        self.run(others_end())
        super().stop()
        self.jobs.index.close()

    def login_link(self) -> str:
        return tickets.login_link(self.url, TOKEN, time.time())

    def sign_in(self, at: Page) -> None:
        """By the link, whose own page goes on by itself: until it has, it would break into another visit."""
        at.goto(self.login_link())
        expect(at).to_have_title("Jobs · Howdah", timeout=60_000)  # a first page on a busy machine


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first look at a list shows all of it, on a busy machine too."""
    monkeypatch.setattr(jobs, "PATIENCE_S", 30.0)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the module's jobs are."""
    folder = tmp_path_factory.mktemp("portal") / "home"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOWDAH_HOME", str(folder))
        patch.setenv("HOWDAH_SITE", "")
        with ended_at_last():
            yield folder


@pytest.fixture(scope="module")
def past(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    """Three jobs that have ended, and two folders that are none any more."""
    made, jobs = made_once(tmp_path_factory, "past", _make)
    shutil.copytree(made, home, dirs_exist_ok=True)
    base = base_folder()
    good, failed, hostile = (
        JobDirectory(base / jobs[name].job_id) for name in ("digits", "letters", "odd")
    )
    final = hostile.final()
    assert final is not None
    hostile.write_final(
        msgspec.structs.replace(
            final, name=MARKUP, outcome="failed", reason=MARKUP + "\x00\u202e" + "x" * 100_000
        )
    )
    (base / "half-20261121-143502-k3f9").mkdir(mode=0o700)
    damaged = base / "torn-20261121-143503-k3f9"
    damaged.mkdir(mode=0o700)
    (damaged / "meta.json").write_text("{")
    (damaged / "final.json").write_bytes(b"\xff\x00{]")
    yield Past(base, good, failed, hostile)
    shutil.rmtree(damaged)


def _make(folder: Path) -> None:
    fields = {"env": {"HF_TOKEN": "hf_secret_of_ada_123"}, "restart": "never"}
    for name, script, code, more in (
        ("digits", "print('all is well')", 0, {"tags": ["night"]}),
        ("letters", LOSES, 1, {"tags": ["night", "gpu"], **fields}),
        ("odd", "print('<b>bold</b>')", 0, {}),
    ):
        howdah("run", str(job_file(folder / name, script, name=name, **more)), code=code)


@pytest.fixture
def portal(past: Past, tmp_path: Path) -> Iterator[Portal]:
    running = Portal(past.base, tmp_path / "index")
    running.start()
    yield running
    running.stop()


class Holding(NamedTuple):
    """A running job, until it is let go."""

    run: Run
    directory: JobDirectory
    goal: Path

    def let_go(self) -> JobView:
        """Have it succeed."""
        self.goal.touch()
        assert self.run.end() == 0, self.run.told
        final = self.directory.final()
        assert final is not None
        return final


@pytest.fixture
def holding(past: Past, tmp_path: Path) -> Iterator[Holding]:
    """A job that runs."""
    goal = tmp_path / "goal"
    roles = {"worker": {"memory": "8g"}}
    file = job_file(tmp_path, HOLDS, name="holds", env={"GOAL": str(goal)}, roles=roles)
    run = start("run", str(file))
    run.until_line("holding on")
    yield Holding(run, newest(), goal)
    goal.touch()
    run.end()
    directory = newest()
    gone(directory)
    shutil.rmtree(directory.path)
