"""The list of many jobs: how fast it is made, asked and looked through, and what it holds in memory.

The jobs are generated: finished, and all different. `howdah ui` serves them as it serves anybody's.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec

from benchmarks.results import Goal, Measure, Of, measure, progress
from howdah.spec.model import Job, Role
from howdah.storage.jobdir import new_job_id, user_name
from howdah.storage.layout import FINAL, JOB, META, JobMeta
from howdah.wire.status import FailureView, JobView, TaskView

NAMES = ("digits", "letters", "faces", "prices", "clicks", "voices")
WORDS = ("shard", "tensor", "socket", "gradient", "bucket", "checkpoint", "kernel", "batch")
OUTCOMES = ("succeeded",) * 7 + ("failed",) * 2 + ("stopped",)


class Settings(msgspec.Struct, frozen=True):
    runs: int = 200
    """Times that each question is asked."""
    jobs: int = 100_000
    tasks: int = 5_000
    """Of one job among them, the largest."""


QUICK = Settings(runs=1, jobs=50, tasks=20)


def benchmark(settings: Settings) -> tuple[list[Measure], list[str]]:
    """All measures, and what was left out."""
    with _folder() as home:
        progress(f"making {settings.jobs} job directories")
        base = home / "jobs" / user_name()
        base.mkdir(mode=0o700, parents=True)
        for level in (home, home / "jobs", base):
            level.chmod(0o700)
        choose = random.Random(7)
        for number in range(settings.jobs):
            _make(base, choose, number, 1 + number % 4)
        large = _make(base, choose, settings.jobs, settings.tasks)
        with _served(home) as ask:
            progress("reading them all")
            begin = time.monotonic()
            while ask("api/v1/jobs?limit=1")["to_come"] != 0:
                time.sleep(0.2)
            indexed_s = time.monotonic() - begin
            total = ask("api/v1/jobs?limit=1")["total"]
            assert total == settings.jobs + 1, f"{total} jobs are listed"
            progress("asking")
            listed = _p95(ask, settings.runs, ("?", "?state=failed", "?sort=-took", "?page=40"))
            hits = _p95(ask, settings.runs, ("?text=digits", f"?text={WORDS[0]}+7"))
            misses = _p95(ask, settings.runs, ("?text=no-such-thing", "?text=zz"))
            page = _p95(ask, settings.runs, (f"jobs/{large}/", f"jobs/{large}/api/v1/changes"))
            progress("one more")
            more: list[float] = []
            for number in range(min(settings.runs, 10)):
                name = _make(base, choose, settings.jobs + 1 + number, 1)
                begin = time.monotonic()
                while ask(f"api/v1/jobs?text={quote(name)}")["total"] != 1:
                    time.sleep(0.02)
                more.append(time.monotonic() - begin)
            memory = ask.memory_mb()
    rate = (settings.jobs + 1) / max(indexed_s, 1e-3)
    return [
        measure("jobs read into the list", "jobs/s", [rate]),
        measure("list page, p95", "ms", [listed], goal=Goal(Of.OURS, 50)),
        measure("search with hits, p95", "ms", [hits], goal=Goal(Of.OURS, 100)),
        measure("search without hits, p95", "ms", [misses], goal=Goal(Of.OURS, 100)),
        measure("page of the largest job, p95", "ms", [page], goal=Goal(Of.OURS, 150)),
        measure("one more job is listed", "s", more),
        measure("memory at the end", "MB", [memory], goal=Goal(Of.OURS, 300)),
    ], ["Spark's history server over as many event logs: not measured yet"]


def _make(base: Path, choose: random.Random, number: int, tasks: int) -> str:
    """A job directory as a finished job leaves it, without its logs; its id."""
    name = choose.choice(NAMES)
    submitted = 1_790_000_000.0 + 30 * number
    job_id = new_job_id(name, submitted)
    outcome = choose.choice(OUTCOMES)
    reason = "all tracked tasks succeeded" if outcome == "succeeded" else ""
    failures: tuple[FailureView, ...] = ()
    if outcome == "failed":
        reason = (
            f"worker:{number % tasks} exited with code 1: {choose.choice(WORDS)} {number} is bad"
        )
        failures = (
            FailureView(task="worker:0", attempt=1, generation=1, cause="user-code", what=reason, advice=""),
        )  # fmt: skip
    view = JobView(
        job_id=job_id, name=name, framework=choose.choice(("tensorflow", "pytorch")),
        user=choose.choice(("ada", "grace", "alan")), backend=choose.choice(("local", "yarn")),
        phase="finished", outcome=outcome, reason=reason, submitted=submitted, failures=failures,
        finished=submitted + choose.expovariate(1 / 3600), directory=str(base / job_id),
        tasks=tuple(
            TaskView(
                task=f"worker:{index}", role="worker", index=index, state="succeeded", attempt=1,
                generation=1, host=f"node-{index % 50}", last_line=f"step {number} of worker {index}",
            )
            for index in range(tasks)
        ),
    )  # fmt: skip
    job = Job(
        name=name, framework=view.framework, roles={"worker": Role(instances=tasks, command="train")},
        tags=(choose.choice(("night", "day")), f"week-{number // 5000}"), queue=choose.choice(("gpu", "cpu")),
    )  # fmt: skip
    meta = JobMeta(job_id=job_id, user=view.user, backend="local", submitted=submitted)
    folder = base / job_id
    folder.mkdir(mode=0o700)
    for file, document in ((JOB, job), (META, meta), (FINAL, view)):
        (folder / file).write_bytes(msgspec.json.encode(document))
    return job_id


class _Ask:
    """Asks a running `howdah ui`, over one connection."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self._process = process
        parts = urlsplit(address)
        self._connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=120)
        self._headers: dict[str, str] = {}
        self._connection.request("GET", f"{parts.path}?{parts.query}")
        answer = self._connection.getresponse()
        answer.read()
        self._headers = {"Cookie": (answer.headers["Set-Cookie"] or "").partition(";")[0]}

    def read(self, path: str) -> bytes:
        self._connection.request("GET", f"/{path}", headers=self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        return content

    def __call__(self, path: str) -> dict:
        return json.loads(self.read(path))

    def memory_mb(self) -> float:
        """Largest resident memory of the process so far."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise OSError("the system does not tell how much memory a process uses")


def _p95(ask: _Ask, runs: int, paths: tuple[str, ...]) -> float:
    """Milliseconds in which 95 of 100 answers have come, of the slowest of these questions."""
    slowest = 0.0
    for path in paths:
        ask.read(path)
        times: list[float] = []
        for _ in range(runs):
            begin = time.perf_counter()
            ask.read(path)
            times.append(time.perf_counter() - begin)
        slowest = max(slowest, sorted(times)[int(len(times) * 0.95)] * 1000)
    return slowest


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="howdah-benchmark-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def _served(home: Path) -> Iterator[_Ask]:
    process = subprocess.Popen(
        [sys.executable, "-m", "howdah", "ui", "--json"],
        env={**os.environ, "HOWDAH_HOME": str(home), "HOWDAH_SITE": ""},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield _Ask(process, json.loads(process.stdout.readline())["address"])
    finally:
        process.terminate()
        process.wait()
