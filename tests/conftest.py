"""What every test shares: a home of its own, a repeatable seed, and proof that nothing is left.

Every process a test starts inherits the marker ``HOWDAH_TEST_RUN``, also those that leave their
session or process group. At the end of the run no process may carry it any more, and no socket
may be left in the run's own folder for sockets.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from howdah.agent import ports
from tests import leaks
from tests.seed import IN_CI, SEED

pytest_plugins = ["tests.hadoop.plugin", "tests.schedule", "tests.story"]

settings.register_profile("dev", deadline=None, print_blob=True)
settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)

_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci" if IN_CI else "dev")
settings.load_profile(_PROFILE)


def pytest_configure(config: pytest.Config) -> None:
    """Give the run its marker, home and socket folder before any test module is imported."""
    # In the background of a script these are ignored, also by what is started here: a Ctrl-C would be in vain.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    # A worker that is killed, as by a second Ctrl-C, leaves to the process that started it what it has begun.
    run = (
        f"{os.environ[leaks.MARKER]}/{worker}"
        if worker
        else f"{os.getpid()}-{secrets.token_hex(4)}"
    )
    os.environ[leaks.MARKER] = run
    # Unix socket paths are limited to 107 bytes: pytest's own folders are too long for them.
    folder = Path(tempfile.mkdtemp(prefix="hwt-", dir="/tmp"))
    for name in ("run", "home"):
        (folder / name).mkdir(mode=0o700)
    os.environ["HOWDAH_RUNTIME_DIR"] = str(folder / "run")
    os.environ["HOWDAH_HOME"] = str(folder / "home")
    config.stash[_FOLDER] = folder
    config.stash[_LEFT] = []


_FOLDER = pytest.StashKey[Path]()
_LEFT = pytest.StashKey[list[str]]()
"""What xdist's workers have said is left of their parts of the run."""
_END_S = 60.0
"""Servers of whole files may still be ending, on a machine that does other things too."""


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Hear what a worker of xdist leaves behind: its own exit code goes nowhere."""
    node.config.stash[_LEFT] += getattr(node, "workeroutput", {}).get("left", ())


def pytest_report_header(config: pytest.Config) -> str:
    return f"hypothesis profile {_PROFILE}; seed {SEED} (HOWDAH_SEED={SEED} repeats it)"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the run if anything it started is left, naming the test that started it."""
    left = leaks.wait_gone(_END_S if exitstatus != pytest.ExitCode.INTERRUPTED else 1.0)
    sockets = leaks.sockets(Path(os.environ["HOWDAH_RUNTIME_DIR"]))
    lines = [f"  process {p.pid}: {p.command} (started in {p.test or 'no test'})" for p in left]
    lines += [f"  socket {path}" for path in sockets]
    leaks.end(left)
    getattr(session.config, "workeroutput", {})["left"] = lines
    lines += session.config.stash[_LEFT]
    if lines:
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line("")
            reporter.write_line("Left behind by this run:", red=True)
            for line in lines:
                reporter.write_line(line, red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    shutil.rmtree(session.config.stash[_FOLDER], ignore_errors=True)


@pytest.fixture(scope="session")
def seed() -> int:
    """The run's seed, printed in pytest's header."""
    return SEED


@pytest.fixture
def chance(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """A random source that is the same for the same seed and test."""
    return random.Random(f"{seed}:{request.node.nodeid}")


@pytest.fixture
def free_port() -> Iterator[Callable[[], int]]:
    """Gives ports that are free: agents and connections of other tests get none of them until the test has ended."""
    reserved: list[ports.Reservation] = []

    def free_port() -> int:
        reservation = ports.reserve(1, "127.0.0.1", (20000, 29999))
        reservation.let_go()
        reserved.append(reservation)
        return reservation.ports[0]

    yield free_port
    for reservation in reserved:
        reservation.release()


@pytest.fixture
def leaves_nothing() -> Iterator[None]:
    """Compare processes, listening ports and temporary folders before and after the test."""
    before = leaks.Picture.take()
    yield
    difference = leaks.Picture.wait_equal(before, timeout_s=30.0)
    assert not difference, "left behind:\n" + "\n".join(difference)
