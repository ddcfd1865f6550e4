"""Where a cluster is: its folder, its ports, its daemons. Pure naming; nothing is started here."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec

from tests.hadoop.options import Options

HOST = "127.0.0.1"
PROXY_HOST = "127.0.0.2"
STANDBY_HOST = "127.0.0.3"
"""Of the second ResourceManager where there is Kerberos: its principal is another one then. Of the second Key
Management Server too, which has the first one's port."""
NAME_SERVICE = "tests"
"""Of two NameNodes together. No host has that name."""
OTHER_NAME = "other"
"""Name service of the one NameNode of a cluster with Kerberos, beside its address: as a second HDFS is to those
who need a token for each."""
ROUTED = "routed"
"""Name service of the router."""
VIEW = "viewfs://view"
"""The ViewFs of a cluster that has one: homes are in ``/home``, and nothing is linked but what is used."""
MARKER = "HOWDAH_TEST_CLUSTER"
"""Environment variable of every daemon and every container; its value is the cluster's folder."""


class Kind(StrEnum):
    """A daemon's program."""

    KDC = "kdc"
    KMS = "kms"
    ZOOKEEPER = "zookeeper"
    NAMENODE = "namenode"
    ROUTER = "router"
    DATANODE = "datanode"
    RESOURCE_MANAGER = "resourcemanager"
    NODE_MANAGER = "nodemanager"
    WEB_PROXY = "webproxy"


class ResourceManagerPorts(msgspec.Struct, frozen=True):
    """One ResourceManager's ports."""

    client: int
    scheduler: int
    tracker: int
    admin: int
    web: int


class NodeManagerPorts(msgspec.Struct, frozen=True):
    """One NodeManager's ports."""

    rpc: int
    localizer: int
    web: int


class Daemon(msgspec.Struct, frozen=True):
    """One process of the cluster. ``number`` counts those of a kind from 1."""

    kind: Kind
    number: int = 1

    @property
    def name(self) -> str:
        """``namenode``, ``namenode2``, ``datanode``, ``resourcemanager1``, ``nodemanager3``, …"""
        several = self.kind in (Kind.RESOURCE_MANAGER, Kind.NODE_MANAGER) or self.number > 1
        return f"{self.kind}{self.number}" if several else str(self.kind)


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """All that the parts of a cluster must agree on; kept as ``site.json`` in its folder."""

    path: str
    options: Options
    first_port: int
    user: str
    """Who the daemons run as: superuser of HDFS and administrator of YARN."""
    hosts: dict[str, int] = {}
    """Hosts apart (`tests.hosts`) and the first process of each: ``head``, ``node1``, … and
    ``client``. None: all on this machine."""
    node_env: dict[str, str] = {}
    """More environment of NodeManagers and of containers."""

    @property
    def folder(self) -> Path:
        return Path(self.path)

    @property
    def conf_dir(self) -> Path:
        """HADOOP_CONF_DIR for clients, and for containers."""
        return self.folder / "conf"

    def own_conf_dir(self, daemon: Daemon) -> Path:
        """The configuration that daemon reads itself."""
        return self.folder / "daemons" / daemon.name

    def data_dir(self, daemon: Daemon) -> Path:
        return self.folder / "data" / daemon.name

    @property
    def logs(self) -> Path:
        """One ``<daemon>.log`` for each daemon."""
        return self.folder / "logs"

    @property
    def daemons(self) -> list[Daemon]:
        """In the order in which they are started."""
        managers = [Daemon(Kind.RESOURCE_MANAGER, i + 1) for i in range(self.resource_managers)]
        nodes = [Daemon(Kind.NODE_MANAGER, i + 1) for i in range(self.options.node_managers)]
        proxy = [Daemon(Kind.WEB_PROXY)] if self.options.web_proxy else []
        kdc = [Daemon(Kind.KDC)] if self.options.kerberos else []
        keeper = [Daemon(Kind.ZOOKEEPER)] if self.options.zookeeper else []
        keys = [Daemon(Kind.KMS, i + 1) for i in range(self.options.kms)]
        router = [Daemon(Kind.ROUTER)] if self.options.router else []
        return [
            *kdc,
            *keeper,
            *keys,
            *self.name_nodes,
            *router,
            *managers,
            Daemon(Kind.DATANODE),
            *nodes,
            *proxy,
        ]

    @property
    def name_nodes(self) -> list[Daemon]:
        return [Daemon(Kind.NAMENODE, i + 1) for i in range(self.options.name_nodes)]

    @property
    def resource_managers(self) -> int:
        return self.options.resource_managers

    @property
    def highly_available(self) -> bool:
        return self.resource_managers > 1

    @property
    def head(self) -> str:
        """Host of the servers that there is one of."""
        return "head" if self.hosts else HOST

    def host_of(self, daemon: Daemon) -> str:
        """Host of that daemon."""
        return self.node_host(daemon.number) if daemon.kind is Kind.NODE_MANAGER else self.head

    def node_host(self, number: int) -> str:
        """Address of a node: 127.0.0.11, .12, …, or its name, where it is a host apart."""
        if self.hosts:
            return f"node{number}"
        return f"127.0.0.{10 + number}"

    def rack(self, number: int) -> str:
        """Rack of a node: ``/rack1`` for the first, ``/rack2`` for the others."""
        return "/rack1" if number == 1 else "/rack2"

    @property
    def hosts_file(self) -> Path:
        """The names that the daemons know; they ask no other service."""
        return self.folder / ("etc-hosts" if self.hosts else "hosts")

    def namenode_ports(self, number: int) -> tuple[int, int]:
        """RPC, web."""
        first = self.first_port + {1: 0, 2: 7}[number]
        return first, first + 1

    @property
    def shared_edits_dir(self) -> Path:
        """Where the active one of two NameNodes writes its edits, and the other reads them."""
        return self.folder / "data" / "shared-edits"

    @property
    def datanode_ports(self) -> tuple[int, int, int]:
        """Data, RPC, web."""
        return self.first_port + 2, self.first_port + 3, self.first_port + 4

    @property
    def proxy_port(self) -> int:
        return self.first_port + 5

    @property
    def kdc_port(self) -> int:
        return self.first_port + 6

    @property
    def zookeeper_port(self) -> int:
        return self.first_port + 9

    def kms_host(self, number: int) -> str:
        """Address of a Key Management Server."""
        return STANDBY_HOST if number == 2 else self.head

    @property
    def kms_port(self) -> int:
        return self.first_port + 49

    @property
    def router_ports(self) -> tuple[int, int, int]:
        """RPC, administration, web."""
        return self.first_port + 46, self.first_port + 47, self.first_port + 48

    @property
    def router_fs(self) -> str:
        """What clients call the file system that the router shows."""
        return f"hdfs://{ROUTED}"

    @property
    def realm_dir(self) -> Path:
        """The realm's database, configuration and keys."""
        return self.folder / "realm"

    def resource_manager_host(self, number: int) -> str:
        """Address of a ResourceManager."""
        if number == 2 and self.options.kerberos:
            return STANDBY_HOST
        return self.head

    def resource_manager_ports(self, number: int) -> ResourceManagerPorts:
        first = self.first_port + 10 + 5 * (number - 1)
        return ResourceManagerPorts(first, first + 1, first + 2, first + 3, first + 4)

    def node_manager_ports(self, number: int) -> NodeManagerPorts:
        first = self.first_port + 20 + 3 * (number - 1)
        return NodeManagerPorts(first, first + 1, first + 2)

    @property
    def default_fs(self) -> str:
        if len(self.name_nodes) > 1:
            return f"hdfs://{NAME_SERVICE}"
        return f"hdfs://{self.head}:{self.namenode_ports(1)[0]}"
