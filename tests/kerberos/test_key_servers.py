"""Two Key Management Servers under one name, ``kms://http@one;two:9600/kms``, of which one is dead at any time."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.hadoop import daemons
from tests.hadoop.cluster import Cluster
from tests.hadoop.options import Gpus
from tests.hadoop.plugin import MakeCluster
from tests.kerberos.person import Person
from tests.yarn.runner import until

JOB = """
name = "locked"
command = {command}
[roles.worker]
memory = "512m"
[master]
memory = "256m"
"""


@pytest.fixture(scope="module")
def two(hadoop_module_cluster: MakeCluster) -> Iterator[Cluster]:
    """Two servers, one of which stands first in the name, with the same keys; each takes the other's tokens."""
    yield hadoop_module_cluster(
        kerberos=True, kms=2, zookeeper=True, node_managers=1, labels=False, gpus=Gpus.NONE
    )


class _Ill(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(503)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def ill(host: str, port: int) -> Iterator[None]:
    """A server there that answers each request with 503, as one does that starts or is overwhelmed."""
    with ThreadingHTTPServer((host, port), _Ill) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


@pytest.mark.timeout(900)
def test_a_program_reads_an_encryption_zone_whichever_key_server_is_dead(
    two: Cluster, tmp_path: Path
) -> None:
    """Of two Key Management Servers the first one answers 503 when a job is submitted and then is dead, and the other
    one, which has given the job its token, dies while it runs: its program reads an encryption zone before and after."""
    admin = Person.with_ticket(two, tmp_path / "admin", "hdfs")

    def hadoop(main: str, *words: str) -> None:
        command = daemons.client(two.site, f"org.apache.hadoop.{main}", *words)
        subprocess.run(command, env={**os.environ, **admin.env}, timeout=120, check=True)

    words = tmp_path / "words.txt"
    words.write_text("words that are locked up")
    two.kill("kms2")
    hadoop("crypto.key.KeyShell", "create", "lock")
    two.start("kms2")  # it reads the keys when it starts
    two.wait_ready()
    hadoop("fs.FsShell", "-mkdir", "/zone")
    hadoop("hdfs.tools.CryptoAdmin", "-createZone", "-keyName", "lock", "-path", "/zone")
    hadoop("fs.FsShell", "-put", str(words), "/zone/words.txt")
    hadoop("fs.FsShell", "-chmod", "777", "/zone")

    two.kill("kms")
    alice = Person.with_ticket(two, tmp_path / "alice")
    reads = " ".join(
        f"'{word}'"
        for word in daemons.client(
            two.site, "org.apache.hadoop.fs.FsShell", "-cat", "/zone/words.txt"
        )
    )
    go = tmp_path / "go"
    command = f"{reads} && echo; while [ ! -e {go} ]; do sleep 0.2; done; {reads} && echo"
    alice.write(job=JOB.format(command=json.dumps(command)))
    with ill(two.site.kms_host(1), two.site.kms_port):
        done = alice.howdah("submit", "--backend", "yarn", "job.toml")
    assert done.returncode == 0, done.stderr
    assert "encryption zones" not in done.stderr

    def read() -> int:
        log = alice.howdah("logs", alice.job().job_id).stdout
        return log.count("words that are locked up")

    until(lambda: read() == 1, "it has read by the second server", 150.0)
    two.start("kms")
    two.wait_ready()
    two.kill("kms2")
    go.touch()
    until(lambda: alice.application()["state"] == "FINISHED", "it ends", 150.0)
    assert alice.application()["finalStatus"] == "SUCCEEDED", alice.application()
    assert read() == 2
    two.start("kms2")
    two.wait_ready()
