"""The test cluster by hand: `python -m tests.hadoop up | down | status`.

    python -m tests.hadoop up --version 3.5.0 --option resource_managers=2
    eval "$(python -m tests.hadoop env)"

It runs until `down`. The options are those of `tests.hadoop.options.Options`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

import msgspec
import psutil

from tests.hadoop import artifacts, daemons
from tests.hadoop.cluster import Cluster
from tests.hadoop.errors import ClusterError
from tests.hadoop.options import NEWEST, Options


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 if it was done, 1 if not, with the reason on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.hadoop", description="A real Hadoop on this machine, for tests."
    )
    parser.add_argument("command", choices=["up", "down", "status", "env"])
    parser.add_argument("--version", default=NEWEST, help="of Hadoop (%(default)s)")
    parser.add_argument("--folder", type=Path, default=artifacts.cache() / "cluster")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args(arguments)
    try:
        match given.command:
            case "up":
                _up(given.folder, _options(given.version, given.option))
            case "down":
                _opened(given.folder).remove()
            case "status":
                _status(_opened(given.folder))
            case _:
                for name, value in _opened(given.folder).env().items():
                    print(f"export {name}={shlex.quote(value)}")
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _options(version: str, pairs: list[str]) -> Options:
    given = {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
    try:
        return msgspec.convert({"version": version, **given}, Options, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(Options.__struct_fields__)
        raise ClusterError(f"--option: {error}; there are {known}") from None


def _opened(folder: Path) -> Cluster:
    if not (folder / "site.json").exists():
        raise ClusterError(f"there is no cluster in {folder}; python -m tests.hadoop up makes one")
    return Cluster.open(folder)


def _up(folder: Path, options: Options) -> None:
    if (folder / "site.json").exists():
        running = Cluster.open(folder)
        if any(running.is_running(each.name) for each in running.site.daemons):
            raise ClusterError(f"a cluster runs in {folder} already; see status, down")
        running.remove()
    cluster = Cluster.create(folder, options)
    begun = time.monotonic()
    cluster.up()
    print(f"Hadoop {options.version} is up after {time.monotonic() - begun:.1f} s")
    _status(cluster)


def _status(cluster: Cluster) -> None:
    total = 0
    for daemon in cluster.site.daemons:
        pid = daemons.pid(cluster.site, daemon)
        if pid is None:
            print(f"  {daemon.name:17} does not run; log: {cluster.site.logs}/{daemon.name}.log")
            continue
        process = psutil.Process(pid)
        resident = process.memory_info().rss >> 20
        total += resident
        used = process.cpu_times()
        print(f"  {daemon.name:17} {pid:7}  {resident:4} MiB  {used.user + used.system:5.1f} s CPU")
    print(f"  {total} MiB in all; {cluster.containers_running()} containers of applications")
    for node in sorted(cluster.nodes(), key=lambda node: node["id"]):
        labels = ",".join(node.get("nodeLabels") or [])
        print(f"  {node['id']} {node['rack']} {node['state']} {labels}")
    print(f"  ResourceManager {cluster.rm_web}  NameNode {cluster.nn_web}  {cluster.default_fs}")
    print(f"  export HADOOP_CONF_DIR={cluster.conf_dir}")


if __name__ == "__main__":
    sys.exit(main())
