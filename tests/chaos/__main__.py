"""The kill drill, run by hand: ``python -m tests.chaos yarn --minutes 10 --seed 7``.

One resumable job after the other, while processes of jobs (and of the cluster) are killed or stopped
at random. Each fault is printed as it happens; at the end come figures as JSON. A job is *right* if it
succeeded and each of its programs came to its last step, with no two attempts of a task side by side;
*hung* if it had not ended long after it should. Exit status 0: all right, and nothing left behind.

With ``local`` the processes of the local backend are hit: programs, agents, watchdogs, coordinators and
node daemons; with ``yarn`` also the daemons of a real Hadoop, which the drill starts (see
CONTRIBUTING.md).
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from tests.chaos.judge import Truth, judge, lines
from tests.chaos.places import LocalPlace, Place, YarnPlace

PAUSE_S = (2.0, 6.0)
"""Between two faults."""
STOP_S = (1.0, 15.0)
"""How long a stopped process is stopped."""
STOPPED = 1 / 3
"""Part of the faults that stop instead of kill."""
TASKS = 2
LIMIT_S = 420.0
"""A job of half a minute's work that takes longer hangs."""
JOB = """
name = "drill"
command = "python3 program.py"
attempts = 1000
[env]
DRILL_LEDGER = "{ledger}"
DRILL_STEPS = "{steps}"
[roles.worker]
instances = {tasks}
memory = "256m"
[checkpoint]
folder = "checkpoints"
[master]
memory = "400m"
attempts = 30
validity = "1m"
[timeouts]
stop-grace = "2s"
"""


class Drill:
    """One run of it."""

    def __init__(self, place: Place, folder: Path, seed: int, steps: int) -> None:
        self._place = place
        self._folder = folder
        self._chance = random.Random(seed)
        self._steps = steps
        self._began = time.monotonic()
        self._faults: dict[str, Counter[str]] = {kind: Counter() for kind in place.kinds}
        self._jobs: Counter[str] = Counter()
        self._problems: dict[str, list[str]] = {}
        self._leftovers: list[str] = []
        self._restarts = self._steps_lost = 0

    def run(self, until: float) -> dict[str, Any]:
        """Jobs and faults until that moment (of the monotonic clock); the figures."""
        while time.monotonic() < until:
            self._job(until)
        faults = sum(sum(each.values()) for each in self._faults.values())
        return {
            "faults": {kind: dict(each) for kind, each in self._faults.items()},
            "faults in all": faults,
            "jobs": {kind: self._jobs[kind] for kind in ("right", "wrong", "hung")},
            "problems": self._problems,
            "program restarts": self._restarts,
            "steps done again": self._steps_lost,
            "leftovers": self._leftovers,
        }

    def _job(self, until: float) -> None:
        number = sum(self._jobs.values()) + 1
        source = self._folder / f"job-{number}"
        source.mkdir()
        ledger = self._folder / "ledger.jsonl"
        program = Path(__file__).with_name("program.py")
        (source / "program.py").write_text(program.read_text())
        text = JOB.format(ledger=ledger, steps=self._steps, tasks=TASKS)
        (source / "job.toml").write_text(text)
        log = source / "client.log"
        with log.open("wb") as out:
            client = subprocess.Popen(
                [sys.executable, "-m", "howdah", "run", str(source / "job.toml")],
                env=self._place.env(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        job_id, hung = self._torment(client, log, until)
        if hung:
            client.kill()
        code = client.wait()
        if not job_id:
            raise SystemExit(f"the job was not submitted:\n{log.read_text(errors='replace')}")
        self._place.heal()
        told = lines(ledger, job_id)
        truth = judge(told, TASKS, self._steps)
        problems = [*truth.problems] if code == 0 else [f"exit code {code}", *truth.problems]
        verdict = "hung" if hung else "wrong" if problems else "right"
        self._count(job_id, verdict, problems, truth, log)
        if hung:
            self._howdah("stop", "--now", job_id)
        if left := self._place.leftovers():
            self._leftovers += left
            self._say(f"left behind: {'; '.join(left)}")

    def _torment(
        self, client: subprocess.Popen[bytes], log: Path, until: float
    ) -> tuple[str, bool]:
        """Hit until the job is over or the time is; the job's id, and whether it hung."""
        limit = time.monotonic() + LIMIT_S
        next_hit = time.monotonic() + self._chance.uniform(*PAUSE_S)
        job_id = ""
        while client.poll() is None:
            time.sleep(0.1)
            now = time.monotonic()
            if now > limit:
                return job_id, True
            if not job_id:
                found = re.search(r"drill-\d{8}-\d{6}-\w{4}", log.read_text(errors="replace"))
                job_id = found[0] if found else ""
            elif next_hit < now < until:
                self._hit(job_id)
                next_hit = time.monotonic() + self._chance.uniform(*PAUSE_S)
        return job_id, False

    def _hit(self, job_id: str) -> None:
        kind = self._chance.choice(self._place.kinds)
        how = "stop" if self._chance.random() < STOPPED else "kill"
        stop_s = self._chance.uniform(*STOP_S) if how == "stop" else 0.0
        what = self._place.hit(kind, job_id, self._chance.randrange, stop_s)
        if what:
            self._faults[kind][how] += 1
            self._say(f"{how} {kind} {what}" + (f" for {stop_s:.1f} s" if stop_s else ""))

    def _count(
        self, job_id: str, verdict: str, problems: list[str], truth: Truth, log: Path
    ) -> None:
        self._jobs[verdict] += 1
        self._restarts += truth.restarts
        self._steps_lost += truth.steps_lost
        self._say(f"{job_id} {verdict}{': ' if problems else ''}{'; '.join(problems)}")
        if problems:
            self._problems[job_id] = problems
            (log.parent / "events.txt").write_text(self._howdah("events", job_id))
            self._say(f"see {log.parent}")

    def _howdah(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                [sys.executable, "-m", "howdah", *arguments],
                env=self._place.env(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"'howdah {' '.join(arguments)}' did not end within a minute"
        return done.stdout + done.stderr

    def _say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f}  {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description="Kill and stop processes under jobs, at random."
    )
    parser.add_argument("place", choices=["local", "yarn"])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--steps", type=int, default=250, help="of each program, 0.1 s each")
    given = parser.parse_args()
    seed = random.randrange(1 << 16) if given.seed is None else given.seed
    folder = Path(tempfile.mkdtemp(prefix="hwt-drill-"))
    print(f"seed {seed}; files are in {folder}", flush=True)
    place: Place = LocalPlace(folder) if given.place == "local" else YarnPlace(folder)
    try:
        drill = Drill(place, folder, seed, given.steps)
        figures = drill.run(time.monotonic() + 60 * given.minutes)
    finally:
        place.close()
    head = {"place": given.place, "seed": seed, "minutes": given.minutes}
    print(msgspec.json.format(msgspec.json.encode({**head, **figures}), indent=2).decode())
    jobs = figures["jobs"]
    return 1 if jobs["wrong"] or jobs["hung"] or figures["leftovers"] else 0


sys.exit(main())
