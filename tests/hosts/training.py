"""A program whose ranks need each other at every step, and what its ledger proves afterwards; jobs of it.

Each rank writes a line for each step to a file that the test sees; the monotonic clock is the machine's,
so the times of different hosts compare.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from howdah.wire.status import JobView
from tests.hosts.hosts import Host, Hosts
from tests.yarn.runner import Yarn, YarnJob, until

LONG_S = 240.0
"""YARN gives a silent node up after 20 s and a master after 30 s, and an agent itself after 105 s."""

PROGRAM = r'''
"""Counts. Rank 0 waits for all others at every step, as an all-reduce would, and saves once a second or so."""
import json, os, socket, sys, threading, time
from pathlib import Path

rank, world = int(os.environ["HOWDAH_RANK"]), int(os.environ["HOWDAH_WORLD_SIZE"])
chief, port = json.loads(os.environ["HOWDAH_CLUSTER"])["worker"][0].rsplit(":", 1)
ledger = Path(os.environ["LEDGER"])
saved = Path(os.environ["HOWDAH_CHECKPOINT_DIR"])
who = f"{os.environ['HOWDAH_GENERATION']} {os.environ['HOWDAH_ATTEMPT']} {socket.gethostname()}"

def note(what, step):
    with ledger.joinpath(f"rank-{rank}").open("a") as file:
        file.write(f"{time.monotonic():.6f} {what} {step} {who} {time.time():.3f}\n")

def live():
    while True:
        note("live", 0)
        time.sleep(0.1)

step = max((int(path.name) for path in saved.glob("[0-9]*")), default=0)
note("begin", step)
note("restored", int(os.environ.get("HOWDAH_RESTORED", 0)))
threading.Thread(target=live, daemon=True).start()
if rank == 0:
    server = socket.create_server(("", int(port)))
    peers = [server.accept()[0] for _ in range(world - 1)]
else:
    deadline = time.monotonic() + 30
    while True:
        try:
            chief = socket.create_connection((chief, int(port)), timeout=5)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    chief.settimeout(None)  # as NCCL: who waits for a peer waits for ever
goal = Path(os.environ["GOAL"])
bulk = int(os.environ["BULK"])
every = 10 if bulk else 20
on = True
while on:
    step += 1
    if rank == 0:
        time.sleep(0.05)
        on = not goal.exists()
        for peer in peers:
            assert peer.recv(1) == b".", "a peer is gone"
        for peer in peers:
            peer.sendall(b"+" if on else b"-")
        if step % every == 0:
            saved.joinpath(f"{step}.tmp").write_text(str(step).ljust(bulk))
            saved.joinpath(f"{step}.tmp").rename(saved / str(step))
            note("saved", step)
            # Each version has all files: with ever more of them none would be saved before the next comes.
            saved.joinpath(str(step - 3 * every)).unlink(missing_ok=True)
            if bulk and step <= 200:  # a log of a size that does not depend on how long this takes
                print("saved", "." * bulk, flush=True)
    else:
        chief.sendall(b".")
        answer = chief.recv(1)
        assert answer, "the chief is gone"
        on = answer == b"+"
    note("step", step)
print("trained to step", step, flush=True)
'''


class Line(NamedTuple):
    """What a rank has noted."""

    at: float
    """Seconds of the machine's monotonic clock."""
    what: str
    """``begin``, ``step`` or ``saved``; ``live``: it runs, whether or not it makes steps;
    ``restored``: the checkpoint it began from, of that number."""
    step: int
    generation: int
    attempt: int
    host: str
    wall: float
    """Seconds of the host's wall clock."""


class Ledger:
    """What the ranks of one job have written."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder

    def lines(self, rank: int) -> list[Line]:
        """All of a rank, of all its attempts, oldest first."""
        path = self.folder / f"rank-{rank}"
        text = path.read_text() if path.exists() else ""
        found: list[Line] = []
        # The last one may be half written.
        for line in text.rpartition("\n")[0].splitlines():
            at, what, step, generation, attempt, host, wall = line.split()
            where = int(generation), int(attempt), host
            found.append(Line(float(at), what, int(step), *where, float(wall)))
        return found

    def last(self, rank: int) -> int:
        """The rank's newest step, 0 if there is none."""
        return next((line.step for line in self.steps(rank)[::-1]), 0)

    def steps(self, rank: int) -> list[Line]:
        """The rank's steps."""
        return [line for line in self.lines(rank) if line.what == "step"]

    def hosts(self, ranks: int) -> dict[int, str]:
        """Where each rank's newest attempt runs."""
        return {rank: self.lines(rank)[-1].host for rank in range(ranks) if self.lines(rank)}

    def check(self, ranks: int) -> None:
        """No generation ran beside the next."""
        spans: defaultdict[int, list[float]] = defaultdict(list)
        for rank in range(ranks):
            for line in self.lines(rank):
                spans[line.generation].append(line.at)
        order = sorted(spans)
        for former, later in itertools.pairwise(order):
            assert max(spans[former]) < min(spans[later]), (
                f"generation {former} still ran when {later} had begun"
            )


class Training:
    """A job of the program in `tests.hosts.training`, on the cluster."""

    def __init__(self, yarn: Yarn, workers: int = 2, more: str = "", bulk: int = 0) -> None:
        """``more``: tables of the job file; ``bulk``: bytes of each checkpoint, and of the first 20 as many of log."""
        self.workers = workers
        number = len(yarn.jobs)
        self.ledger = Ledger(yarn.folder / f"ledger-{number}")
        self.goal = yarn.folder / f"goal-{number}"
        text = f"""
command = "python3 train.py"
attempts = 100
env = {{ LEDGER = "{self.ledger.folder}", GOAL = "{self.goal}", BULK = "{bulk}" }}
[checkpoint]
settle = "200ms"
[roles.worker]
instances = {workers}
memory = "1g"
[roles.worker.placement]
spread = true
{more}"""
        self.job: YarnJob = yarn.submit(text, files={"train.py": PROGRAM})
        self.goes_on("training begins")
        self.job.until(lambda view: view.checkpoint, "a checkpoint is saved", LONG_S)

    def goes_on(self, what: str) -> None:
        """Wait until each rank has made steps from now on."""
        now = time.monotonic()
        self._until(what, lambda line: line.at > now)

    def host_of_master(self, hosts: Hosts) -> Host:
        namespace = Path(f"/proc/{self.job.master().pid}/ns/net").readlink()
        return next(
            host for host in hosts if Path(f"/proc/{host.pid}/ns/net").readlink() == namespace
        )

    def host_of_worker(self, hosts: Hosts) -> Host:
        """A worker's host, and not the master's."""
        master = self.host_of_master(hosts)
        names = set(self.ledger.hosts(self.workers).values()) - {master.name}
        return hosts[min(names)]

    def generation(self, number: int) -> None:
        """Wait until all ranks of that generation have made steps."""
        self._until(f"generation {number} trains", lambda line: line.generation == number)

    def _until(self, what: str, right: Callable[[Line], bool]) -> None:
        def all_are() -> bool:
            steps = [self.ledger.steps(rank) for rank in range(self.workers)]
            return all(each and right(each[-1]) for each in steps)

        until(all_are, f"{what}; {self.job.story()[-2000:]}", LONG_S)

    def next_coordinator(self, former: psutil.Process) -> None:
        """Wait until another one than that serves."""

        def there() -> bool:
            return any(each.pid != former.pid for each in self.job.masters())

        until(there, "another coordinator is started", LONG_S)
        self.job.until(lambda view: view.incarnation == 2, "it serves", LONG_S)

    def finish(self) -> JobView:
        """Let it reach its goal; how it ended, once the ledger has proved that all was in order."""
        self.goal.touch()
        view = self.job.wait(LONG_S)
        assert view.outcome == "succeeded", (view.reason, view.failures)
        assert view.unsaved == ()
        self.ledger.check(self.workers)
        self._nothing_saved_was_lost()
        return view

    def _nothing_saved_was_lost(self) -> None:
        """Each rank began with the newest checkpoint of the generations before its own."""
        saved = [
            (each.generation or 0, int(each.text.split()[-1]))
            for each in self.job.handle.events(follow=False)
            if each.kind == "checkpoint-saved"
        ]
        for rank in range(self.workers):
            for begun, line in itertools.pairwise(self.ledger.lines(rank)):
                if line.what == "restored":
                    newest = max((v for of, v in saved if of < line.generation), default=0)
                    assert line.step >= newest, (rank, line, saved)
                    assert (line.step > 0) == (begun.step > 0), (rank, begun, line)


def alone(yarn: Yarn, hosts: Hosts) -> Training:
    """A job of one worker, with a host between it and its master. YARN chooses the nodes."""
    for _ in range(10):
        training = Training(yarn, workers=1)
        if training.host_of_master(hosts).name not in training.ledger.hosts(1).values():
            return training
        training.finish()
    pytest.fail("the master was never alone on its node")
