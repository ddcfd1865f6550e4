"""Clusters over hosts apart. The tests of such a cluster run on its client's host themselves."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from howdah.client.sync import Background
from tests.hadoop.cluster import Cluster
from tests.hadoop.options import Options
from tests.hosts.hosts import ROOT, Host, Hosts, python_folder
from tests.yarn.runner import Yarn

NODES = 3


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Call a test that asks for ``on_client`` in a thread with the client's network."""
    if "on_client" not in pyfuncitem.funcargs:
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    client = pyfuncitem.funcargs["on_client"]
    assert isinstance(client, Host)
    client.do(lambda: pyfuncitem.obj(**arguments))
    return True


def folder() -> Path:
    """For hosts: not below /tmp, where each has files of its own."""
    return Path("/var/tmp") / f"hwt-hosts-{os.getpid()}-{secrets.token_hex(4)}"


def python_folders() -> list[Path]:
    """What nodes do not have: this repository, and the Python that the tests run in."""
    python = python_folder()
    return [ROOT, *([python] if python != Path("/usr") else [])]


class OnHosts(NamedTuple):
    """A cluster, and the hosts it is on."""

    cluster: Cluster
    hosts: Hosts


@contextlib.contextmanager
def hadoop_over_hosts(*, two_networks: bool = False, own_clocks: bool = False) -> Iterator[OnHosts]:
    """HDFS and the ResourceManager on one host, three NodeManagers and the client on others.

    With ``own_clocks`` the nodes' clocks can be set.
    """
    nodes = [f"node{i + 1}" for i in range(NODES)]
    hidden = dict.fromkeys(nodes, python_folders())
    names = ["head", *nodes, "client"]
    with Hosts(folder(), names, hidden=hidden, two_networks=two_networks) as hosts:
        options = Options(node_managers=NODES, node_memory_mib=6144, node_expiry_ms=20_000)
        node_env = hosts.with_own_clock() if own_clocks else {}
        cluster = Cluster.create(hosts.folder, options, hosts, node_env)
        try:
            cluster.up()
            yield OnHosts(cluster, hosts)
        finally:
            cluster.down()


@pytest.fixture(scope="module")
def hadoop_on_hosts() -> Iterator[OnHosts]:
    """The cluster of a module's tests, whole before and after each of them."""
    with hadoop_over_hosts() as there:
        yield there


@pytest.fixture
def hosts(hadoop_on_hosts: OnHosts) -> Iterator[Hosts]:
    """The cluster's hosts, all of them connected before and after."""
    yield hadoop_on_hosts.hosts
    for host in hadoop_on_hosts.hosts:
        host.plug_in()
        host.drop_nothing()
    hadoop_on_hosts.cluster.wait_ready()


@pytest.fixture
def on_client(hadoop_on_hosts: OnHosts, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """The test itself runs on the client's host."""
    # A thread has the network of the one that started it: the loop of a former test would speak
    # from that test's host, which may be gone.
    with monkeypatch.context() as patch:
        patch.setattr(Background, "_loop", None)
        yield hadoop_on_hosts.hosts["client"]
        loop = Background._loop  # pyright: ignore[reportPrivateUsage]
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)


@pytest.fixture
def yarn(
    hadoop_on_hosts: OnHosts, hosts: Hosts, on_client: Host, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Yarn]:
    """Submits jobs from the client's host; ends them afterwards."""
    work = hosts.folder / "work" / secrets.token_hex(4)
    work.mkdir(parents=True)
    for name, value in hadoop_on_hosts.cluster.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOWDAH_HOME", str(work / "home"))
    yarn = Yarn(hadoop_on_hosts.cluster, work)
    yield yarn
    yarn.close()
