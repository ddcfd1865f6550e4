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
from tests.hadoop.plugin import MakeCluster
from tests.kerberos.person import Person
from tests.yarn.runner import until

pytestmark = pytest.mark.nightly

JOB = """
name = "locked"
command = {command}
[roles.worker]
memory = "512m"
[master]
memory = "256m"
"""


@pytest.fixture(scope="module")
def two(hadoop_module_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Two servers, one of which stands first in the name, with the same keys; each takes the other's tokens. There is
    an encryption zone, ``/zone``, with a file."""
    cluster = hadoop_module_cluster(kerberos=True, kms=2, zookeeper=True)
    folder = tmp_path_factory.mktemp("admin")
    admin = Person.with_ticket(cluster, folder, "hdfs")

    def hadoop(main: str, *words: str) -> None:
        command = daemons.client(cluster.site, f"org.apache.hadoop.{main}", *words)
        subprocess.run(command, env={**os.environ, **admin.env}, timeout=120, check=True)

    words = folder / "words.txt"
    words.write_text("words that are locked up")
    cluster.kill("kms2")
    hadoop("crypto.key.KeyShell", "create", "lock")
    cluster.start("kms2")  # it reads the keys when it starts
    cluster.wait_ready()
    hadoop("fs.FsShell", "-mkdir", "/zone")
    hadoop("hdfs.tools.CryptoAdmin", "-createZone", "-keyName", "lock", "-path", "/zone")
    hadoop("fs.FsShell", "-put", str(words), "/zone/words.txt")
    hadoop("fs.FsShell", "-chmod", "777", "/zone")
    return cluster


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


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("", 'store = "hdfs:///zone/not/there/yet"\n{job}'),
        ("checkpoint.store", '{job}[checkpoint]\nstore = "hdfs:///zone"'),
        ("outputs.store", '{job}[outputs]\nfolders = ["results"]\nstore = "hdfs:///zone"'),
    ],
)
def test_a_job_that_would_keep_files_in_an_encryption_zone_is_refused(
    two: Cluster, tmp_path: Path, key: str, text: str
) -> None:
    """A job that would keep its own files, checkpoints or outputs in an encryption zone is refused at once."""
    alice = Person.with_ticket(two, tmp_path)
    alice.write(job=text.format(job=JOB.format(command='"true"')))
    done = alice.howdah("submit", "--backend", "yarn", "job.toml")
    assert done.returncode != 0
    where = f"{key} is {two.site.default_fs}/zone" if key else "/zone/not/there/yet/ally"
    assert f"{where}, which is in the encryption zone /zone" in done.stderr
    assert key or "Name a folder outside of any zone with `store`" in done.stderr
    assert "submitted" not in done.stderr


def test_a_job_is_told_that_it_cannot_read_encryption_zones(two: Cluster, tmp_path: Path) -> None:
    """The configuration names a Key Management Server that cannot be reached: the job is told so, and runs."""
    alice = Person.with_ticket(two, tmp_path)
    alice.configure(
        core={"hadoop.security.key.provider.path": "kms://http@localhost:1/kms"},
        hdfs={"dfs.client.ignore.namenode.default.kms.uri": "true"},
    )
    alice.write(job=JOB.format(command='"true"'))
    done = alice.howdah("submit", "--backend", "yarn", "job.toml")
    assert done.returncode == 0, done.stderr
    assert "programs can't read encryption zones" in done.stderr
    assert "the KMS http://localhost:1/kms/v1/ can't be reached" in done.stderr
