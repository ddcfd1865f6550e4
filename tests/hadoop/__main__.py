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
    for daemon in cluster.site.daemons:
        pid = daemons.pid(cluster.site, daemon)
        state = "does not run" if pid is None else f"process {pid}"
        print(f"  {daemon.name:17} {state}; log: {cluster.site.logs}/{daemon.name}.log")
    print(f"  ResourceManager {cluster.rm_web}  NameNode {cluster.nn_web}  {cluster.default_fs}")
    print(f"  export HADOOP_CONF_DIR={cluster.conf_dir}")


if __name__ == "__main__":
    sys.exit(main())
