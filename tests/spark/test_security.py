"""Another application's tasks, on the hosts of a training job's executors, against the job's ports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from howdah.core.messages import Held, HeldPhase, Task
from howdah.spark import Cluster
from howdah.spark.feed.messages import Begin
from howdah.wire.authority import create
from howdah.wire.frames import encode
from howdah.wire.messages import AgentHello, ClientHello
from tests.spark.conftest import RunProgram
from tests.spark.servers import Standalone

# Another application needs a process of its own, and another worker.
pytestmark = pytest.mark.nightly

ATTACKS = """
import json, os

told = json.loads(os.environ["TOLD"])

def attack(_):
    import itertools, socket, ssl, tempfile
    from concurrent.futures import ThreadPoolExecutor
    folder = tempfile.mkdtemp()
    files = {}
    for name, text in told["files"].items():
        files[name] = os.path.join(folder, name)
        with open(files[name], "w") as file:
            file.write(text)
    def context(role):
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        if role:
            made.load_cert_chain(files[role + ".pem"], files[role + ".key"])
        return made
    def speak(port, role, words):
        got = b""
        try:
            with socket.create_connection(("127.0.0.1", port), 20) as link:
                link.settimeout(5)
                if role != "plain":
                    link = context(role).wrap_socket(link, server_hostname="any")
                link.sendall(bytes.fromhex(words))
                while piece := link.recv(4096):
                    got += piece
        except OSError:
            pass
        return port, role, got.decode("latin-1")
    everything = itertools.product(told["ports"], ("plain", "", *told["roles"]), told["words"])
    with ThreadPoolExecutor(64) as pool:
        heard = list(pool.map(lambda each: speak(*each), everything))
    return [json.dumps(heard)]

told_us = spark.sparkContext.parallelize([0], 1).mapPartitions(attack).collect()
print("heard=" + told_us[0], flush=True)
"""


def collect(args: Any, ctx: Any) -> list[int]:
    return [i for batch in ctx.feed("train").batches(10) for i in batch["id"].tolist()]


ROLES = ("client", "agent", "feeder")
"""Whose certificates of another job are tried."""
SERVERS = ("java", "krb5kdc", "kadmind")
"""Other tests' as well."""


def _is_a_server(process: psutil.Process) -> bool:
    """None of the job's: Spark's JVM, or its daemon that forks Python workers and tells their pids to
    whoever asks; Hadoop's daemons and those of Kerberos."""
    parent = process.parent()
    daemon = "pyspark.daemon" in process.cmdline() and parent is not None
    return process.name() in SERVERS or (daemon and parent.name() == "java")


def _ports() -> list[int]:
    """Where this job's processes listen, and no servers."""
    found: set[int] = set()
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            if _is_a_server(process):
                continue
            for each in process.net_connections(kind="tcp"):
                if each.status == psutil.CONN_LISTEN:
                    found.add(each.laddr.port)
        except psutil.Error:
            continue
    return sorted(found)


def _words(job_id: str) -> list[bytes]:
    """What feeders, agents and clients of the job begin with."""
    held = Held(task=Task("worker", 0), attempt=1, generation=1, phase=HeldPhase.RUNNING)
    return [
        b"GET /api/v1/config HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        encode(Begin(feed="train", run=1, partition=0)),
        encode(AgentHello(job_id=job_id, container_id="c1", host="h", pid=1, held=held)),
        encode(ClientHello(job_id=job_id, user="root")),
    ]


def test_tasks_of_another_application_get_nothing_from_a_job_and_give_it_nothing(
    standalone: Standalone,
    standalone_spark: Any,
    run_program: RunProgram,
    tmp_path: Path,
) -> None:
    """On Spark, a task of another application speaks to the ports of a job's trainers, agents and
    coordinator: without TLS, with TLS, and with the certificates and keys of a job of its own.
    It gets no answer, and the job trains on exactly its own rows."""
    create("other-1", tmp_path / "other")
    files = {path.name: path.read_text() for path in (tmp_path / "other").iterdir()}
    with Cluster.start(standalone_spark, collect, workers=2, on_log=None) as cluster:
        trainers = {place.port for place in cluster.places}
        ports = sorted({*_ports(), *trainers})
        assert len(trainers) == 2
        theirs = standalone.add_worker()
        told = {
            "ports": ports,
            "files": files,
            "roles": ROLES,
            "words": [each.hex() for each in _words("any-1")],
        }
        done = run_program(
            ATTACKS, spark=standalone, env={"TOLD": json.dumps(told)}, timeout_s=150.0
        )
        report = cluster.train(standalone_spark.range(0, 2000, 1, 4), align="none")
        values = cluster.results()
    theirs.end()
    standalone.workers.remove(theirs)
    heard = json.loads(done.told("heard"))
    assert {port for port, _, _ in heard} == set(ports)
    assert {role for _, role, _ in heard} == {"plain", "", *ROLES}
    loud = [each for each in heard if each[2] and not _is_refusal(each[2])]
    assert not loud, loud
    assert not any(text for port, _, text in heard if port in trainers)
    assert sorted(i for ids in values.values() for i in ids) == list(range(2000))
    assert report.rows == 2000


def _is_refusal(text: str) -> bool:
    """An answer of the job's page to one who has proven nothing; or a TLS alert."""
    return text.startswith(("HTTP/1.1 4", "\x15\x03"))
