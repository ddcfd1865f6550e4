"""Howdah beside DistributedShell and skein, on one cluster, in turn."""

from __future__ import annotations

import contextlib
import functools
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.jobs import Stuck
from benchmarks.results import Goal, Measure, Of, measure, progress
from benchmarks.yarn import bare_command, distributed_shell, environment, howdah, skein
from benchmarks.yarn.timing import Submission, Submit, notes, settle
from tests.hadoop.cluster import Cluster
from tests.hadoop.errors import ClusterError
from tests.hadoop.leftovers import leftovers, wait_same
from tests.hadoop.options import Options
from tests.hadoop.shared import started

_SHELL = "DistributedShell"
_SKEIN_RUNS = 2
_SOONER = Goal(Of.RATIO, 0.25)
"""Four times sooner."""
_AT_MOST = {(100, 1, "first_ran"): 1.0, (100, 12, "last_ran"): 2.0, (1000, 12, "last_ran"): 3.0}
"""Seconds, by the nodes' beat in ms and the number of containers."""


class Settings(msgspec.Struct, frozen=True):
    runs: int = 5
    containers: tuple[int, ...] = (1, 4, 12, 16)
    beats_ms: tuple[int, ...] = (100, 1000)
    """How often nodes report; Hadoop's default is 1000."""
    skein: bool = True


QUICK = Settings(runs=1, containers=(1,), beats_ms=(100,), skein=False)


def benchmark(settings: Settings) -> tuple[list[Measure], list[str]]:
    """All measures, and what was left out."""
    measures: list[Measure] = []
    left_out: list[str] = []

    def add(what: str, measured: Callable[[], Sequence[Measure]]) -> None:
        try:
            measures.extend(measured())
        except (ClusterError, Stuck) as error:  # what was measured before is not lost
            left_out.append(f"{what}: {error}")

    with tempfile.TemporaryDirectory(prefix="hwb-") as folder:
        progress("pack an environment")
        archive = environment.pack(Path(folder))
        for beat in settings.beats_ms:
            progress(f"start a cluster with beats of {beat} ms")
            with _cluster(beat) as cluster:
                bench = Bench(cluster, archive, beat)
                if beat == settings.beats_ms[0]:
                    add("cold", functools.partial(bench.cold, settings.runs))
                for n in settings.containers:
                    add(f"{n} containers", functools.partial(bench.warm, n, settings.runs))
                if beat == settings.beats_ms[0]:
                    if settings.skein:
                        add("skein", functools.partial(bench.skein, settings.containers))
                    add("memory", bench.memory)
                add("leftovers", bench.left)
    return measures, left_out


@contextlib.contextmanager
def _cluster(beat_ms: int) -> Iterator[Cluster]:
    folder = Path(tempfile.gettempdir()) / f"hwt-hadoop-bench-{secrets.token_hex(4)}"
    # One node: with several, a later submission may be the first one on its node, and not warm.
    # With a core for each container, and one for the master.
    with started(folder, Options(heartbeat_ms=beat_ms)) as cluster:
        yield cluster


class Bench:
    """Submissions to one cluster, one at a time."""

    def __init__(self, cluster: Cluster, archive: Path, beat_ms: int) -> None:
        self._cluster = cluster
        self._archive = archive
        self._beat_ms = beat_ms
        self._label = f"{beat_ms} ms beats"
        self._home = f"/user/{cluster.site.user}/.howdah"

    def cold(self, runs: int) -> list[Measure]:
        """The first submission to a cluster, which has nothing of it yet, by a user who has packed nothing."""
        ours: list[float] = []
        shell: list[float] = []
        new: list[int] = []
        for _ in range(runs):
            progress(f"cold, in turn with {_SHELL}")
            self._cluster.hdfs(self._home, "DELETE", "DELETE", recursive="true")
            with tempfile.TemporaryDirectory(prefix="hwb-") as cache:
                submit = functools.partial(howdah.submit, cache=Path(cache))
                ours.append(self._run(submit, 1).first_ran)
                before = self._cached()
                self._run(submit, 1)
            new += [size for key, size in self._cached().items() if key not in before]
            shell.append(self._shell(1).first_ran)
        return [
            measure("cold, 1 container, first program runs", "s", ours, shell, peer_name=_SHELL),
            measure(
                "uploaded again by the second submission",
                "bytes",
                [float(sum(new))],
                goal=Goal(Of.OURS, 0),
            ),
        ]

    def warm(self, containers: int, runs: int) -> list[Measure]:
        """Later submissions, in turn with DistributedShell: shipping the same, and nothing."""
        progress(f"{self._label}, {containers} containers, in turn with {_SHELL}")
        for submit in (self._ours, self._shell):  # files not read yet: these do not count
            submit(containers)
        rounds = [
            (
                self._ours(containers),
                self._shell(containers),
                self._run(distributed_shell.submit, containers, ship=False),
            )
            for _ in range(runs)
        ]
        ours, shipping, bare = zip(*rounds)
        found = self._against(containers, ours, shipping, _SHELL, _SOONER)
        if containers == 1:
            least = [self._run(bare_command.submit, 1, ship=False).first_ran for _ in range(runs)]
            name = f"{self._label}, 1 container, a bare command by Howdah's library runs"
            found.append(measure(name, "s", least))
        found += self._against(containers, ours, bare, f"{_SHELL}, shipping nothing", None)[:1]
        for field, what in (("first_ran", "first"), ("last_ran", "last")):
            if limit := _AT_MOST.get((self._beat_ms, containers, field)):
                name = f"{self._label}, {containers} containers, {what} program runs, at most"
                told = [getattr(each, field) for each in ours]
                found.append(measure(name, "s", told, goal=Goal(Of.OURS, limit)))
        return found

    def skein(self, counts: Sequence[int]) -> list[Measure]:
        """Some rounds in turn with skein."""
        found: list[Measure] = []
        for containers in counts:
            progress(f"{self._label}, {containers} containers, in turn with skein")
            rounds = [
                (self._ours(containers), self._run(skein.submit, containers))
                for _ in range(_SKEIN_RUNS)
            ]
            ours, peer = zip(*rounds)
            found += self._against(containers, ours, peer, "skein", None)
        return found

    def memory(self) -> list[Measure]:
        """Most memory resident in the master and in an agent."""
        progress("memory")
        ours = self._run(howdah.submit, 1, weigh=True)
        peer = self._run(distributed_shell.submit, 1, weigh=True)
        return [
            measure(
                "master, most resident",
                "MiB",
                [ours.master_mib or 0.0],
                [peer.master_mib or 0.0],
                peer_name=_SHELL,
                goal=Goal(Of.OURS, 60),
            ),
            measure("agent, most resident", "MiB", [ours.agent_mib or 0.0], goal=Goal(Of.OURS, 30)),
        ]

    def left(self) -> list[Measure]:
        """Applications, containers, processes and folders on nodes that are still there once the
        nodes have had time to remove what is over."""
        settle(self._cluster)
        files = {each for each in leftovers(self._cluster) if each.startswith("hdfs ")}
        there = wait_same(self._cluster, frozenset(files))
        name = f"{self._label}, left on the cluster"
        return [measure(name, "", [float(len(there))], goal=Goal(Of.OURS, 0))]

    def _against(
        self,
        containers: int,
        ours: Sequence[Submission],
        peer: Sequence[Submission],
        peer_name: str,
        sooner: Goal | None,
    ) -> list[Measure]:
        def one(what: str, field: str, goal: Goal | None = None) -> Measure:
            return measure(
                f"{self._label}, {containers} containers, {what}",
                "s",
                [getattr(each, field) for each in ours],
                [getattr(each, field) for each in peer],
                peer_name=peer_name,
                goal=goal,
            )

        return [
            one("first program runs", "first_ran", sooner),
            one("last program runs", "last_ran"),
            one("exit", "exit"),
        ]

    def _ours(self, containers: int) -> Submission:
        return self._run(howdah.submit, containers)

    def _shell(self, containers: int) -> Submission:
        return self._run(distributed_shell.submit, containers)

    def _run(
        self, submit: Submit, containers: int, *, ship: bool = True, weigh: bool = False
    ) -> Submission:
        python, archive = (environment.PYTHON, self._archive) if ship else (sys.executable, None)
        with notes() as there:
            told = submit(
                self._cluster, there, containers, python=python, archive=archive, weigh=weigh
            )
        settle(self._cluster)
        return told

    def _cached(self) -> dict[tuple[str, int], int]:
        """Environments, source and runtime on HDFS: name and time of change to bytes."""
        told: Any = self._cluster.hdfs(f"{self._home}/cache", "LISTSTATUS", "GET")
        files = told["FileStatuses"]["FileStatus"]
        return {
            (each["pathSuffix"], each["modificationTime"]): each["length"]
            for each in files
            if each["type"] == "FILE"
        }
