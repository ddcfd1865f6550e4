"""What a test cluster may be asked to be."""

from __future__ import annotations

import msgspec

NEWEST = "3.4.3"
"""Servers of the newest 3.4 on Maven Central; 3.3.6 and 3.5.0 are tested too."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cluster. The defaults are those of the cluster that all tests of a run share."""

    version: str = NEWEST
    node_managers: int = 1
    node_memory_mib: int = 12_288
    gpu_node: bool = False
    """The last node has the label ``gpu`` and two GPUs, by the NodeManager's plug-in over a stand-in for
    ``nvidia-smi``."""
    exclusive_label: bool = True
    """The labelled node is not lent to requests without a label."""
    heartbeat_ms: int = 200
    """Node beats; Hadoop's default is 1000."""
    node_expiry_ms: int = 10_000
    master_expiry_ms: int = 30_000
    """A silent application master is given up after so long; Hadoop's default is 600,000.

    It begins before the node has brought and unpacked what the master needs.
    """
    indexed_logs: bool = False
    """Aggregated logs are indexed files, else TFiles."""
    placement_constraints: bool = True
    fair: bool = False
    """The Fair Scheduler, without preemption; else the Capacity Scheduler."""
    queue_mappings: bool = False
    """The cluster puts applications into queues by rules of its own, and makes queues (`tests.hadoop.queues`)."""
    resource_managers: int = 1
    """2: high availability, fail-over by hand (`Cluster.fail_over`)."""
    zookeeper: bool = False
    """Two ResourceManagers choose themselves which of them serves, by way of a ZooKeeper."""
    name_nodes: int = 1
    """2: high availability over one folder of edits, fail-over by hand (`Cluster.fail_over_hdfs`)."""
    router: bool = False
    """A router before the NameNode (HDFS Router-based Federation), which shows all of it
    (`tests.hadoop.site.Site.router_fs`); with one NameNode."""
    view: bool = False
    """The default file system is a ViewFs over the other one (`tests.hadoop.site.VIEW`)."""
    web_proxy: bool = False
    """A web proxy on an address of its own, 127.0.0.2; else the ResourceManager's own."""
    kerberos: bool = False
    """A realm of its own (`tests.hadoop.kdc`); all daemons demand Kerberos or tokens."""
    kms: int = 0
    """Key Management Servers for encryption zones; only with ``kerberos``. Two of them share their keys and, with
    ``zookeeper``, their tokens."""
    nodes_as: str = ""
    """Account of this machine that NodeManagers and all containers run as, of whichever user's job; that of the
    other daemons if it is empty. Root's to choose."""
    properties: dict[str, str] = {}
    """More properties, over the cluster's own. Their names decide the file they go to."""
