"""Steps a second of a synchronous training, under Howdah and without it."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
from pathlib import Path

import msgspec

from benchmarks.jobs import Place, Stuck, ended, place, python
from benchmarks.results import Goal, Measure, Of, measure, progress


class Settings(msgspec.Struct, frozen=True):
    runs: int = 9
    ranks: int = 2
    seconds: float = 10.0
    engine: str = "torch"
    """Or ``plain``: no package needed."""


QUICK = Settings(runs=1, seconds=0.2, engine="plain")


class Trained(msgspec.Struct, frozen=True):
    """What trainer.py reports, of rank 0."""

    steps: int
    seconds: float
    cpu_s: float

    @property
    def rate(self) -> float:
        return self.steps / self.seconds

    @property
    def cost(self) -> float:
        """Milliseconds of processor time a step: what other work on the machine changes least."""
        return self.cpu_s / self.steps * 1000


def benchmark(settings: Settings) -> tuple[list[Measure], list[str]]:
    """All measures, and what was left out."""
    engine, left_out = settings.engine, []
    if engine == "torch" and importlib.util.find_spec("torch") is None:
        left_out.append("torch is not installed (make bench installs it): a plain loop instead")
        engine = "plain"
    rounds: list[tuple[Trained, Trained]] = []
    with place() as there:
        for run in range(settings.runs):
            progress(f"{engine}, {settings.seconds:g} s each, {run + 1} of {settings.runs}")
            if run % 2:  # who goes first must not matter
                bare = _bare(there, settings, engine)
                rounds.append((_howdah(there, settings, engine), bare))
            else:
                ours = _howdah(there, settings, engine)
                rounds.append((ours, _bare(there, settings, engine)))
    return [
        measure(
            f"{settings.ranks} ranks, {engine}",
            "steps/s",
            [ours.rate for ours, _ in rounds],
            [bare.rate for _, bare in rounds],
            peer_name="bare processes",
            goal=Goal(Of.RATIO, 0.99, at_least=True),
        ),
        measure(
            "processor time a step, rank 0",
            "ms",
            [ours.cost for ours, _ in rounds],
            [bare.cost for _, bare in rounds],
            peer_name="bare processes",
        ),
    ], left_out


def _howdah(there: Place, settings: Settings, engine: str) -> Trained:
    report = _report(there)
    program = python("trainer.py", engine, report, settings.seconds)
    job = there.run(settings.ranks, program, "env.OMP_NUM_THREADS=1", framework="pytorch")
    with ended(job) as process:
        assert process.stdout is not None
        said = process.stdout.read()
    if process.returncode != 0:
        raise Stuck(f"the training job failed: {said[-2000:].decode(errors='replace')}")
    there.gone(there.newest())
    return _read(report)


def _bare(there: Place, settings: Settings, engine: str) -> Trained:
    report = _report(there)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    program = python("trainer.py", engine, report, settings.seconds)
    with contextlib.ExitStack() as all_of_them:
        started = []
        for rank in range(settings.ranks):
            env = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(settings.ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            }
            started.append(all_of_them.enter_context(ended(there.start(program, env))))
        for process in started:
            assert process.stdout is not None
            process.stdout.read()
            if process.wait() != 0:
                raise Stuck(f"the bare training failed with {process.returncode}")
    return _read(report)


def _report(there: Place) -> Path:
    report = there.folder / "report.json"
    report.unlink(missing_ok=True)
    return report


def _read(report: Path) -> Trained:
    return msgspec.json.decode(report.read_bytes(), type=Trained)
