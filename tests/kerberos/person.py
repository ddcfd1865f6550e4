"""Somebody at a command line, with a ticket, a keytab or a token file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from howdah.storage.jobdir import JobDirectory
from tests.hadoop.cluster import Cluster
from tests.hadoop.configuration import xml

RUN_S = 120
_LIST = """\
import json, sys, urllib.parse, hdfs_native
place = urllib.parse.urlsplit(sys.argv[1])
client = hdfs_native.Client(f"{place.scheme}://{place.netloc}")
for again in reversed(range(5)):
    try:
        found = client.list_status(place.path, True)
        break
    except FileNotFoundError:  # a folder that was renamed between its parent's listing and its own
        if not again:
            raise
print(json.dumps({each.path: [each.owner, each.modification_time] for each in found}))
"""
_REMOVE = """\
import sys, urllib.parse, hdfs_native
place = urllib.parse.urlsplit(sys.argv[1])
assert hdfs_native.Client(f"{place.scheme}://{place.netloc}").delete(place.path, True)
"""
_TOKENS = """
import asyncio, sys
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.security.credentials import Credentials
from howdah.hadoop.security.login import login
from howdah.hadoop.namenode import NameNode
from howdah.hadoop.resourcemanager import ResourceManager

async def main():
    configuration = Configuration.load()
    who = login(configuration)
    renewer = configuration.get("yarn.resourcemanager.principal").replace("_HOST", "localhost")
    found = []
    for kind in (NameNode, ResourceManager):
        async with kind(configuration, who) as service:
            found.append(await service.delegation_token(renewer))
    Credentials({token.service: token for token in found}).write(sys.argv[1])

asyncio.run(main())
"""


class Person:
    """Runs ``howdah`` in a folder of their own. Nothing of the tests' own environment says who they are."""

    def __init__(
        self, cluster: Cluster, folder: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.cluster = cluster
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.env = {**cluster.env(), "HOWDAH_HOME": str(folder / "home"), **(env or {})}

    @classmethod
    def with_ticket(
        cls, cluster: Cluster, folder: Path, name: str = "alice", *options: str
    ) -> Person:
        """After ``kinit``; ``options`` are kinit's."""
        folder.mkdir(parents=True, exist_ok=True)
        return cls(cluster, folder, cluster.kdc.kinit(name, folder / "tickets", *options))

    def tokens(self) -> Path:
        """A token file of this person's, as schedulers of workflows give to what they run."""
        file = self.folder / "tokens"
        subprocess.run(
            [sys.executable, "-c", _TOKENS, str(file)],
            env={**os.environ, **self.env},
            timeout=RUN_S,
            check=True,
        )
        return file

    def configure(self, **files: Mapping[str, str]) -> None:
        """A configuration of one's own: the cluster's, with other values. ``core={…}, hdfs={…}``."""
        place = self.folder / "conf"
        place.mkdir(exist_ok=True)
        for file in self.cluster.conf_dir.iterdir():
            text = file.read_text()
            values = files.get(file.name.removesuffix("-site.xml"), {})
            if values:
                # The last value of a property counts.
                rows = xml(values).partition("<configuration>\n")[2]
                text = text.replace("</configuration>\n", rows)
            (place / file.name).write_text(text)
        self.env["HADOOP_CONF_DIR"] = self.env["YARN_CONF_DIR"] = str(place)

    def howdah(self, *words: str, timeout_s: float = RUN_S) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "howdah", *words],
            cwd=self.folder,
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )

    def write(self, **files: str) -> None:
        """Files of the source folder: ``job="…", program="…"`` are ``job.toml`` and ``program.py``."""
        for name, text in files.items():
            (self.folder / ("job.toml" if name == "job" else f"{name}.py")).write_text(text)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """``howdah run --backend yarn job.toml``"""
        return self.howdah("run", "--backend", "yarn", *words, "job.toml")

    def files(self, url: str) -> dict[str, tuple[str, float]]:
        """Files below a folder of HDFS, with their owners and times of change. By another process: each has one identity."""
        done = subprocess.run(
            [sys.executable, "-c", _LIST, url],
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=True,
        )
        return {
            path: (owner, changed / 1000)
            for path, (owner, changed) in json.loads(done.stdout).items()
        }

    def remove(self, url: str) -> None:
        """A folder of HDFS, with all in it."""
        subprocess.run(
            [sys.executable, "-c", _REMOVE, url],
            env={**os.environ, **self.env},
            timeout=RUN_S,
            check=True,
        )

    def job(self) -> JobDirectory:
        """The one job that was submitted."""
        (found,) = (self.folder / "home" / "jobs").glob("*/*/job.json")
        return JobDirectory(found.parent)

    def application(self) -> dict[str, str]:
        """What YARN says of it."""
        return self.cluster.rm(f"apps/{self.job().meta().application_id}")["app"]


def steps(text: str) -> list[int]:
    """The numbers of ``step N`` in what a program has printed."""
    return [int(number) for number in re.findall(r"step (\d+)", text)]
