"""One real master with thousands of containers, of a cluster that is simulated.

The master is the product's own, the YARN backend and all; ResourceManager and NodeManagers speak the
real protocols (`benchmarks.yarn.simulated`), the agents are those of the coordinator's benchmark.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks import processes, standin
from benchmarks.coordinator import Fleets, python, share, until_input_ends
from benchmarks.jobs import Stuck
from benchmarks.results import Measure, measure, progress
from howdah.backends.yarn.local_resources import FILE, LocalResources
from howdah.hadoop.security.credentials import AMRM_TOKEN, Credentials, Token
from howdah.storage.jobdir import JobDirectory

SITE = """<configuration>
<property><name>yarn.resourcemanager.scheduler.address</name><value>127.0.0.1:{}</value></property>
</configuration>
"""


class Settings(msgspec.Struct, frozen=True):
    runs: int = 2
    containers: tuple[int, ...] = (1000, 5000)
    nodes: int = 250
    fleets: int = 2
    settle_s: float = 5.0
    window_s: float = 15.0


QUICK = Settings(runs=1, containers=(40,), nodes=4, settle_s=0.5, window_s=1.0)


class Seen(msgspec.Struct, frozen=True):
    """One run."""

    launched_s: float
    """From the master's start until the last container was launched."""
    running_s: float
    """… until every agent runs its program."""
    cpu: float
    """Of one core, all running."""
    rss: float
    taken_over_s: float
    """From kill -9 of the master until the next attempt has all agents; its own start included."""


def benchmark(settings: Settings) -> tuple[list[Measure], list[str]]:
    """All measures, and what was left out."""
    measures: list[Measure] = []
    for containers in settings.containers:
        runs: list[Seen] = []
        for run in range(settings.runs):
            progress(f"{containers} containers, {run + 1} of {settings.runs}")
            runs.append(_run(settings, containers))
        measures += [
            measure(f"{containers} containers, {what}", unit, figures)
            for what, unit, figures in (
                ("start to all launched", "s", [r.launched_s for r in runs]),
                ("start to all running", "s", [r.running_s for r in runs]),
                ("master, of one core", "%", [100 * r.cpu for r in runs]),
                ("master RSS", "MB", [r.rss for r in runs]),
                ("kill -9 to all registered", "s", [r.taken_over_s for r in runs]),
            )
        ]
    return measures, []


def _run(settings: Settings, containers: int) -> Seen:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hwb-", dir="/tmp")))
        directory = JobDirectory(folder / "scale-20261121-120000-aaaa")
        standin.make_job(directory, containers, "yarn")
        cluster = python(
            "benchmarks.yarn.simulated",
            str(settings.nodes),
            str(containers),
            stdout=subprocess.PIPE,
        )
        stack.enter_context(until_input_ends(cluster))
        said = _said(cluster)
        env = _prepare(folder, directory, said["port"])
        begin = time.monotonic()
        with _master(directory, env) as master:
            _said(cluster)
            launched_s = time.monotonic() - begin
            fleets = Fleets(
                stack,
                directory,
                containers,
                settings.fleets,
                first=said["first"],
                pattern=said["pattern"],
            )
            fleets.until(incarnation=1, running=True)
            running_s = time.monotonic() - begin
            time.sleep(settings.settle_s)
            cpu, rss = share(master.pid, settings.window_s), processes.memory(master.pid).rss
            killed = time.monotonic()
            master.kill()
        assert cluster.stdin is not None
        cluster.stdin.write(b"lost\n")
        cluster.stdin.flush()
        with _master(directory, env):
            fleets.until(incarnation=2, running=True)
            taken_over_s = time.monotonic() - killed
        return Seen(
            launched_s=launched_s,
            running_s=running_s,
            cpu=cpu,
            rss=rss,
            taken_over_s=taken_over_s,
        )


def _said(cluster: subprocess.Popen[bytes]) -> dict[str, int]:
    """The simulated cluster's next word."""
    assert cluster.stdout is not None
    line = cluster.stdout.readline()
    if not line:
        raise Stuck("the simulated cluster has ended")
    return json.loads(line)


def _prepare(folder: Path, directory: JobDirectory, port: int) -> dict[str, str]:
    """What YARN and a client would have prepared; returns the master's environment."""
    conf = folder / "conf"
    conf.mkdir()
    (conf / "core-site.xml").write_text("<configuration/>\n")
    (conf / "yarn-site.xml").write_text(SITE.format(port))
    token = Token(b"master", b"-", AMRM_TOKEN, "")
    tokens = folder / "tokens"
    tokens.write_bytes(Credentials({"": token}, {}).to_bytes())
    shipment = LocalResources(application_id="application_1_0001", user="nobody", runtime=())
    (directory.path / FILE).write_bytes(msgspec.json.encode(shipment))
    return {
        **os.environ,
        "HADOOP_CONF_DIR": str(conf),
        "HADOOP_TOKEN_FILE_LOCATION": str(tokens),
        "NM_HOST": "127.0.0.1",
    }


@contextlib.contextmanager
def _master(directory: JobDirectory, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = python("howdah.coordinator", str(directory.path), stdout=subprocess.DEVNULL, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
