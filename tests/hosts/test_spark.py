"""Spark Standalone with its workers on three hosts: training over all of them, and networks that fail between."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts.conftest import folder
from tests.hosts.hosts import Host, Hosts
from tests.processes import name, runs
from tests.spark.programs import Program
from tests.spark.servers import Server
from tests.spark.versions import environment, settings

pytestmark = [pytest.mark.timeout(400), pytest.mark.nightly]

WORKERS = 3
SHORT_S = 5.0
SOON_S = 180.0
PORT = 7077
OPEN = range(7000, 7200)
"""What a firewall leaves; Spark keeps to its first half, Howdah is told of the other."""
PORTS = {
    "spark.driver.port": "7002",
    "spark.driver.blockManager.port": "7003",
    "spark.blockManager.port": "7010",
}
OWN_FOLDERS = {"HOWDAH_RUNTIME_DIR": "/tmp"}
"""Each host has its own; the one of these tests is on none of them."""

SESSION = """
import json, os, socket, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
builder = SparkSession.builder
for name, value in json.loads(os.environ["SPARK_SETTINGS"]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
"""

FED = """
from howdah.spark import Cluster

def train(folder, ctx):
    folder, rows = Path(folder), 0
    for batch in ctx.feed().batches(10):
        rows += len(batch["id"])
        (folder / f"{ctx.rank}.at").write_text(f"{rows} {socket.gethostname()} {os.getpid()}")
        if not (folder / "go").exists():
            time.sleep(0.1)  # its rows outlast the cut
    return socket.gethostname(), rows

with Cluster.start(spark, train, sys.argv[1], workers=2, on_log=None) as cluster:
    print("begun", flush=True)
    report = cluster.train(spark.range(0, 30000, 1, 3), align="none")
    print("rows=" + str(report.rows), flush=True)
    print("restarts=" + str(report.restarts), flush=True)
    print("results=" + json.dumps(list(cluster.results(timeout_s=100).values())), flush=True)
spark.stop()
"""

SPANS = """
import howdah
from howdah.spark import run

def where():
    chief, port = json.loads(os.environ["HOWDAH_CLUSTER"])["worker"][0].rsplit(":", 1)
    rank, names = int(os.environ["HOWDAH_RANK"]), [socket.gethostname()]
    if rank == 0:
        with socket.create_server(("", int(port))) as server:
            for _ in range(2):
                peer, _ = server.accept()
                names.append(peer.makefile().readline().strip())
        return sorted(names)
    while True:
        try:
            with socket.create_connection((chief, int(port)), timeout=30) as chief:
                chief.sendall(names[0].encode() + b"\\n")
            return int(port)
        except ConnectionRefusedError:
            time.sleep(0.1)

print("met=" + json.dumps(run(where, workers=3, on_log=None, **json.loads(sys.argv[1]))), flush=True)
spark.stop()
"""


class Spark:
    """A master on one host, a worker with two slots on each of three, and the driver's host."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.folder = hosts.folder / "spark"
        self.folder.mkdir()
        self._servers: list[Server] = []
        self.url = f"spark://head:{PORT}"
        # A worker that is not heard of is given up after these seconds.
        master = ["master.Master", "--host", "head", "--port", str(PORT)]
        self.master = self._start("head", master, SPARK_MASTER_OPTS="-Dspark.worker.timeout=15")
        for i in range(WORKERS):
            name = f"node{i + 1}"
            work = self.folder / name
            work.mkdir()
            worker = ["worker.Worker", self.url, "--host", name, "--port", "7001"]
            worker += ["--cores", "2", "--memory", "2g", "--work-dir", str(work)]
            self._start(name, worker)
        self.master.wait_for("Registering worker", WORKERS)

    def _start(self, name: str, command: list[str], **more: str) -> Server:
        host = self.hosts[name]
        env = {**environment(), "SPARK_LOCAL_IP": host.address, **OWN_FOLDERS, **more}
        java = str(Path(env["SPARK_HOME"]) / "bin" / "spark-class")
        kind = f"org.apache.spark.deploy.{command[0]}"
        line = host.enter(java, kind, *command[1:], "--webui-port", "0")
        server = Server(line, self.folder / f"{name}.log", env)
        self._servers.append(server)
        return server

    def start(self, text: str, *arguments: str) -> Program:
        """Start a driver's program on the client's host."""
        client = self.hosts["client"]
        chosen = {
            **settings(self.folder),
            **PORTS,
            "spark.master": self.url,
            "spark.driver.host": client.address,
            "spark.driver.bindAddress": client.address,
            "spark.executor.cores": "2",
            "spark.cores.max": str(2 * WORKERS),
            "spark.network.timeout": "30s",
            "spark.network.timeoutInterval": "5s",
            "spark.executor.heartbeatInterval": "3s",
        }
        file = self.folder / f"program-{secrets.token_hex(4)}.py"
        file.write_text(SESSION + text)
        env = {
            **environment(),
            **OWN_FOLDERS,
            "SPARK_LOCAL_IP": client.address,
            "SPARK_SETTINGS": json.dumps(chosen),
            "HOWDAH_HOME": str(self.folder / "home"),
        }
        return Program(client.enter(sys.executable, str(file), *arguments), self.folder, env)

    def close(self) -> None:
        for server in reversed(self._servers):
            server.end()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Spark]:
    names = ["head", *(f"node{i + 1}" for i in range(WORKERS)), "client"]
    with Hosts(folder(), names) as hosts:
        spark = Spark(hosts)
        try:
            yield spark
        finally:
            spark.close()


@pytest.fixture
def spark(cluster: Spark) -> Iterator[Spark]:
    """All its hosts are connected before and after."""
    yield cluster
    for host in cluster.hosts:
        host.plug_in()
        host.drop_nothing()


class Fed:
    """Two ranks that are fed, slowly, until `finish`."""

    def __init__(self, spark: Spark) -> None:
        self._spark = spark
        self.folder = spark.folder / secrets.token_hex(4)
        self.folder.mkdir()
        self.program = spark.start(FED, str(self.folder))
        self.program.wait_line("begun", SOON_S)
        self.goes_on()

    def at(self, rank: int) -> tuple[int, str, int]:
        """The rows it has trained on, its host, and its process there."""
        for _ in range(100):
            try:
                rows, host, pid = (self.folder / f"{rank}.at").read_text().split()
            except (OSError, ValueError):  # it is just being written
                time.sleep(0.02)
                continue
            return int(rows), host, int(pid)
        return 0, "", 0

    def goes_on(self, *ranks: int) -> None:
        """Wait until ranks have been fed since now."""
        before = {rank: self.at(rank) for rank in ranks or (0, 1)}
        deadline = time.monotonic() + SOON_S
        while any(self.at(rank) == was for rank, was in before.items()):
            assert self.program.process.poll() is None, self.program.said()
            assert time.monotonic() < deadline, self.program.said()
            time.sleep(0.1)

    def host(self, rank: int) -> Host:
        return self._spark.hosts[self.at(rank)[1]]

    def again_without(self, host: Host) -> None:
        """Wait until both ranks are fed on other hosts."""
        deadline = time.monotonic() + SOON_S
        while any(self.at(rank)[1] == host.name for rank in (0, 1)):
            assert self.program.process.poll() is None, self.program.said()
            assert time.monotonic() < deadline, self.program.said()
            time.sleep(0.1)
        self.goes_on()

    def finish(self, restarts: int = 0) -> int:
        """Feed the rest at full speed; the rows its functions have counted."""
        (self.folder / "go").touch()
        done = self.program.wait(SOON_S)
        assert done.code == 0, done.out
        assert done.told("rows") == "30000"
        assert done.told("restarts") == str(restarts)
        return sum(rows for _, rows in json.loads(done.told("results")))


@pytest.mark.fault(
    "Spark",
    "firewalls let in only the ports of `[network] ports`, and those that Spark is told to use",
    "always",
    "the job runs over three hosts",
)
def test_training_spans_three_hosts_behind_firewalls_that_leave_a_range_of_ports(
    spark: Spark,
) -> None:
    for host in spark.hosts:
        host.let_in_only({"eth0": OPEN})
    program = spark.start(SPANS, json.dumps({"network": {"ports": "7100-7199"}}))
    met = json.loads(program.wait(SOON_S).told("met"))
    assert met[0] == ["node1", "node2", "node3"]
    assert {met[1], met[2]} <= set(OPEN)


@pytest.mark.fault(
    "Spark", "a worker's host is cut off", "5 s", "nothing is lost: the same programs are fed on"
)
@pytest.mark.fault(
    "Spark", "the driver's host is cut off", "5 s", "nothing is lost: the same programs are fed on"
)
@pytest.mark.parametrize("what", ["worker", "driver"])
def test_five_seconds_of_silence_cost_no_row(spark: Spark, what: str) -> None:
    fed = Fed(spark)
    host = fed.host(1) if what == "worker" else spark.hosts["client"]
    with host.cut_off():
        time.sleep(SHORT_S)
    fed.goes_on()
    assert fed.finish() == 30000


@pytest.mark.fault(
    "Spark",
    "a worker's host is cut off",
    "longer than every limit",
    "the gang is formed again on other hosts and gets every row; nothing is left on the one that was away",
)
def test_a_worker_whose_host_stays_away_is_replaced(spark: Spark) -> None:
    fed = Fed(spark)
    host = fed.host(1)
    there = [each for each in host.processes() if "howdah" in name(each) and runs(each)]
    assert there
    with host.cut_off():
        fed.again_without(host)
        assert fed.finish(restarts=1) == 30000
    deadline = time.monotonic() + SOON_S
    while left := [each for each in there if runs(each)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
