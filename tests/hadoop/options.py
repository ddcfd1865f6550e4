"""What a test cluster may be asked to be."""

from __future__ import annotations

from enum import StrEnum

import msgspec

NEWEST = "3.4.3"
"""Servers of the newest 3.4 on Maven Central; 3.3.6 and 3.5.0 are tested too."""


class Gpus(StrEnum):
    """How the last node comes by resources of the type ``yarn.io/gpu``."""

    PLUGIN = "plugin"
    """The NodeManager's GPU plug-in, over a stand-in for ``nvidia-smi``."""
    CUSTOM = "custom"
    """A plain countable resource, as on a site without the plug-in."""
    NONE = "none"


class LogFormat(StrEnum):
    """File format of aggregated logs."""

    TFILE = "TFile"
    INDEXED = "IFile"


class Placement(StrEnum):
    """``yarn.resourcemanager.placement-constraints.handler``."""

    SCHEDULER = "scheduler"
    PROCESSOR = "placement-processor"
    DISABLED = "disabled"


class Scheduler(StrEnum):
    """``yarn.resourcemanager.scheduler.class``."""

    CAPACITY = "capacity"
    FAIR = "fair"
    """Without labels and preemption."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cluster. The defaults are those of the cluster that all tests of a run share."""

    version: str = NEWEST
    node_managers: int = 3
    """The last one has the label ``gpu`` and the GPUs, the others are plain."""
    node_memory_mib: int = 6144
    node_vcores: int = 16
    gpus: Gpus = Gpus.PLUGIN
    gpus_per_node: int = 2
    labels: bool = True
    exclusive_label: bool = True
    """The labelled node is not lent to requests without a label."""
    heartbeat_ms: int = 200
    """Node beats; Hadoop's default is 1000."""
    node_expiry_ms: int = 10_000
    master_expiry_ms: int = 30_000
    """A silent application master is given up after so long; Hadoop's default is 600,000.

    It begins before the node has brought and unpacked what the master needs.
    """
    master_attempts: int = 4
    log_format: LogFormat = LogFormat.TFILE
    placement: Placement = Placement.SCHEDULER
    scheduler: Scheduler = Scheduler.CAPACITY
    queue_mappings: bool = False
    """The cluster puts applications into queues by rules of its own, and makes queues (`tests.hadoop.queues`)."""
    check_virtual_memory: bool = False
    """On by default on real sites, ratio 2.1."""
    preemption_wait_ms: int = 12_000
    """Between the notice to an application and the end of its container."""
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
    hdfs_tokens: bool = True
    """The NameNode gives delegation tokens although there is no Kerberos."""
    access_lists: bool = True
    """``yarn.acl.enable``."""
    kerberos: bool = False
    """A realm of its own (`tests.hadoop.kdc`); all daemons demand Kerberos or tokens."""
    kms: int = 0
    """Key Management Servers for encryption zones; only with ``kerberos``. Two of them share their keys and, with
    ``zookeeper``, their tokens."""
    nodes_as: str = ""
    """Account of this machine that NodeManagers and all containers run as, of whichever user's job; that of the
    other daemons if it is empty. Root's to choose."""
    native: bool = True
    """NodeManagers have Hadoop's native library, as on a real site.

    Without it they start a ``chmod`` for each file that they unpack.
    """
    properties: dict[str, str] = {}
    """More properties, over the cluster's own. Their names decide the file they go to."""
