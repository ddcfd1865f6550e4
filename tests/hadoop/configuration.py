"""The XML files of a cluster: one set for clients, one for each daemon."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from tests.hadoop import queues, security
from tests.hadoop.site import (
    HOST,
    MARKER,
    NAME_SERVICE,
    OTHER_NAME,
    PROXY_HOST,
    ROUTED,
    STANDBY_HOST,
    VIEW,
    Daemon,
    Kind,
    Site,
)

Files = dict[str, dict[str, str]]
"""File name to properties."""

GPU = "yarn.io/gpu"
LICENCE = "example.com/licence"
"""A countable resource that every node has: `LICENCES_PER_NODE`."""
LICENCES_PER_NODE = 4
NODE_VCORES = 32

_RM = "yarn.resourcemanager"
_NM = "yarn.nodemanager"
_SERVER = "org.apache.hadoop.yarn.server"
_MONITOR = "yarn.resourcemanager.monitor.capacity.preemption"

_LOG4J = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
"""

_DISCOVERY = """\
#!/bin/sh
# Stands in for nvidia-smi: answers `nvidia-smi -x -q` for two made-up GPUs.
echo '<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v11.dtd">'
echo '<nvidia_smi_log><driver_version>535.00</driver_version>'
echo '<attached_gpus>2</attached_gpus>'
i=0; while [ $i -lt 2 ]; do
echo "<gpu id=\"0000:0$i:00.0\"><product_name>Stand-in</product_name>"
echo "<uuid>GPU-stand-in-$i</uuid><minor_number>$i</minor_number>"
echo '<fb_memory_usage><total>16000 MiB</total><used>0 MiB</used><free>16000 MiB</free>'
echo '</fb_memory_usage><utilization><gpu_util>0 %</gpu_util></utilization>'
echo '<temperature><gpu_temp>30 C</gpu_temp>'
echo '<gpu_temp_max_threshold>90 C</gpu_temp_max_threshold>'
echo '<gpu_temp_slow_threshold>85 C</gpu_temp_slow_threshold></temperature></gpu>'
i=$((i+1)); done; echo '</nvidia_smi_log>'
"""


def write(site: Site, classpath: str) -> None:
    """Write all of it. ``classpath`` is what applications in Java are told to use."""
    site.logs.mkdir(parents=True, exist_ok=True)
    (site.folder / "tmp").mkdir(exist_ok=True)
    shared = _shared(site, classpath)
    _write(site.conf_dir, _with_own(site, shared))
    for daemon in site.daemons:
        if daemon.kind is Kind.KDC:
            continue
        if daemon.kind is Kind.ZOOKEEPER:
            _write_zookeeper(site, daemon)
            continue
        place = site.own_conf_dir(daemon)
        files = {name: dict(values) for name, values in shared.items()}
        for name, values in _own(site, daemon).items():
            files.setdefault(name, {}).update(values)
        _write(place, _with_own(site, files))
        # The jars lack the web pages that the tarball has; the servers only insist on the folders.
        if daemon.kind in (Kind.NAMENODE, Kind.DATANODE, Kind.ROUTER):
            for pages in ("hdfs", "datanode", "router"):
                (place / "webapps" / pages / "WEB-INF").mkdir(parents=True, exist_ok=True)
        site.data_dir(daemon).mkdir(parents=True, exist_ok=True)
    if not site.hosts:
        site.hosts_file.write_text(_hosts(site))
    if site.options.fair:
        _allocations_file(site).write_text(queues.allocations(site))
    _racks_file(site).write_text(_racks(site))
    if site.options.gpu_node:
        program = _discovery_folder(site) / "nvidia-smi"
        program.parent.mkdir(exist_ok=True)
        program.write_text(_DISCOVERY)
        program.chmod(0o755)


def _write_zookeeper(site: Site, daemon: Daemon) -> None:
    place = site.own_conf_dir(daemon)
    _write(place, {})
    site.data_dir(daemon).mkdir(parents=True, exist_ok=True)
    rows = {
        "tickTime": 500,
        "dataDir": site.data_dir(daemon),
        "clientPort": site.zookeeper_port,
        "clientPortAddress": site.head,
        "admin.enableServer": "false",
    }
    (place / "zoo.cfg").write_text("".join(f"{name}={value}\n" for name, value in rows.items()))


def _discovery_folder(site: Site) -> Path:
    """Where the stand-in is. The folder is configured: 3.3 refuses the very name ``nvidia-smi``."""
    return site.folder / "bin"


def _racks_file(site: Site) -> Path:
    return site.folder / "racks"


def _allocations_file(site: Site) -> Path:
    return site.folder / "allocations.xml"


def _racks(site: Site) -> str:
    """Host and rack (``org.apache.hadoop.net.TableMapping``)."""
    numbers = range(1, site.options.node_managers + 1)
    rows = {site.node_host(number): site.rack(number) for number in numbers}
    return "".join(f"{host} {rack}\n" for host, rack in {site.head: "/rack1", **rows}.items())


def _hosts(site: Site) -> str:
    """The addresses of nodes are their names too, as clients outside the JVMs must reach them.

    Without this file Java asks the machine's resolver for the name of each address, which takes
    seconds where a name server does not answer.
    """
    numbers = range(1, site.options.node_managers + 1)
    nodes = {host: host for host in map(site.node_host, numbers) if host != HOST}
    others = {host: host for host in (PROXY_HOST, STANDBY_HOST)}
    rows = {HOST: f"localhost {socket.gethostname()}", **others, **nodes}
    return "".join(f"{address} {names}\n" for address, names in rows.items())


def _write(folder: Path, files: Files) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in files.items():
        (folder / name).write_text(xml(values))
    (folder / "log4j.properties").write_text(_LOG4J)


def xml(values: Mapping[str, str]) -> str:
    """Hadoop's configuration format."""
    rows = "".join(
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in values.items()
    )
    return f'<?xml version="1.0"?>\n<configuration>\n{rows}</configuration>\n'


def file_of(name: str) -> str:
    """The file in which Hadoop looks for that property."""
    for prefix, file in (
        ("yarn.scheduler.capacity.", "capacity-scheduler.xml"),
        ("yarn.resource-types", "resource-types.xml"),
        ("yarn.", "yarn-site.xml"),
        ("dfs.", "hdfs-site.xml"),
    ):
        if name.startswith(prefix):
            return file
    return "core-site.xml"


def _with_own(site: Site, files: Files) -> Files:
    """The properties asked for in the options, each in its file (if this set of files has it)."""
    for name, value in site.options.properties.items():
        if file_of(name) in files:
            files[file_of(name)][name] = value
    return files


def _shared(site: Site, classpath: str) -> Files:
    secure = site.options.kerberos
    return {
        "core-site.xml": _core(site) | (security.core(site) if secure else {}),
        "hdfs-site.xml": _hdfs(site) | (security.hdfs(site) if secure else {}),
        "yarn-site.xml": {
            **_resource_manager(site),
            **_yarn(site, classpath),
            **(security.yarn(site) if secure else {}),
        },
        "resource-types.xml": {
            "yarn.resource-types": ",".join([GPU] * site.options.gpu_node + [LICENCE]),
        },
    }


def _own(site: Site, daemon: Daemon) -> Files:
    """What only that daemon reads."""
    match daemon.kind:
        case Kind.NAMENODE:
            own = {"dfs.namenode.name.dir": f"file://{site.data_dir(daemon)}"}
            if len(site.name_nodes) > 1:
                own["dfs.ha.namenode.id"] = f"nn{daemon.number}"
            else:
                own["dfs.nameservices"] = ""  # those there are, are for clients
            return {"hdfs-site.xml": own}
        case Kind.DATANODE if len(site.name_nodes) == 1:
            return {"hdfs-site.xml": {"dfs.nameservices": ""}}
        case Kind.ROUTER:
            return _router(site, daemon)
        case Kind.KMS:
            return {"kms-site.xml": security.kms(site, daemon.number), "kms-acls.xml": {}}
        case Kind.RESOURCE_MANAGER:
            own = {f"{_RM}.ha.id": f"rm{daemon.number}"} if site.highly_available else {}
            return {"yarn-site.xml": own, "capacity-scheduler.xml": queues.properties(site)}
        case Kind.NODE_MANAGER:
            return _node_manager(site, daemon)
        case Kind.WEB_PROXY if site.highly_available:
            # All addresses here are its own machine's: it would not know which of them it is.
            return {"yarn-site.xml": {f"{_RM}.ha.id": "rm1"}}
        case _:
            return {}


def _core(site: Site) -> dict[str, str]:
    return {
        "fs.defaultFS": VIEW if site.options.view else site.default_fs,
        **(_view(site) if site.options.view else {}),
        "hadoop.tmp.dir": str(site.folder / "tmp"),
        # The REST API's writing calls are made as this user, who is an administrator.
        "hadoop.http.staticuser.user": site.user,
        # Whoever comes before its server asks again at once (1000 ms).
        "ipc.client.connect.retry.interval": "100",
        "ipc.client.connect.max.retries": "100",
        "ipc.client.connect.max.retries.on.timeouts": "3",
        "hadoop.registry.rm.enabled": "false",
        "net.topology.node.switch.mapping.impl": "org.apache.hadoop.net.TableMapping",
        "net.topology.table.file.name": str(_racks_file(site)),
    }


def _view(site: Site) -> dict[str, str]:
    """The mount table."""
    table = f"fs.viewfs.mounttable.{VIEW.removeprefix('viewfs://')}"
    links = {"/home": "/user", "/tmp": "/tmp", "/app-logs": "/app-logs", "/data/raw": "/tmp/raw"}
    return {
        f"{table}.homedir": "/home",
        **{f"{table}.link.{at}": f"{site.default_fs}{to}" for at, to in links.items()},
    }


def _hdfs(site: Site) -> dict[str, str]:
    data, rpc, web = site.datanode_ports
    return {
        "dfs.replication": "1",
        "dfs.blocksize": "16m",
        "dfs.datanode.data.dir": f"file://{site.data_dir(Daemon(Kind.DATANODE))}",
        "dfs.namenode.rpc-bind-host": site.head,
        "dfs.datanode.address": f"{site.head}:{data}",
        "dfs.datanode.ipc.address": f"{site.head}:{rpc}",
        "dfs.datanode.http.address": f"{site.head}:{web}",
        "dfs.datanode.hostname": site.head,
        "dfs.datanode.du.reserved": "0",
        "dfs.datanode.max.transfer.threads": "256",
        "dfs.datanode.handler.count": "3",
        "dfs.namenode.handler.count": "4",
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.fs-limits.min-block-size": "1024",
        "dfs.namenode.edits.noeditlogchannelflush": "true",
        "dfs.namenode.redundancy.interval.seconds": "1s",
        "dfs.namenode.safemode.extension": "0",
        # Out of safe mode means that a DataNode is there, so that files can be written.
        "dfs.namenode.safemode.min.datanodes": "1",
        "dfs.heartbeat.interval": "1",
        "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
        # A Java client that closes a file sleeps so long for its block to be reported (400 ms).
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "10",
        # The NameNode gives delegation tokens although there is no Kerberos.
        "dfs.namenode.delegation.token.always-use": "true",
        **_name_nodes(site),
    }


def _name_service(name: str, **addresses: str) -> dict[str, str]:
    """What clients are told of a name service: addresses by the ids of its NameNodes."""
    return {
        "dfs.nameservices": name,
        f"dfs.ha.namenodes.{name}": ",".join(addresses),
        **{f"dfs.namenode.rpc-address.{name}.{each}": at for each, at in addresses.items()},
        f"dfs.client.failover.proxy.provider.{name}": (
            "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        ),
    }


def _name_nodes(site: Site) -> dict[str, str]:
    """Addresses, one set for each NameNode."""
    several = len(site.name_nodes) > 1
    found: dict[str, str] = {}
    for daemon in site.name_nodes:
        suffix = f".{NAME_SERVICE}.nn{daemon.number}" if several else ""
        rpc, web = site.namenode_ports(daemon.number)
        found[f"dfs.namenode.http-address{suffix}"] = f"{site.head}:{web}"
        if site.options.view and not several:
            found["dfs.namenode.rpc-address"] = f"{site.head}:{rpc}"
    if site.options.router:
        found |= _name_service(ROUTED, r1=f"{site.head}:{site.router_ports[0]}")
    elif site.options.kerberos and not several:
        found |= _name_service(OTHER_NAME, nn1=site.default_fs.removeprefix("hdfs://"))
    if several:
        addresses = {
            f"nn{daemon.number}": f"{site.head}:{site.namenode_ports(daemon.number)[0]}"
            for daemon in site.name_nodes
        }
        found |= _name_service(NAME_SERVICE, **addresses)
        found |= {
            "dfs.namenode.shared.edits.dir": f"file://{site.shared_edits_dir}",
            "dfs.ha.automatic-failover.enabled": "false",
            # One that stands by reads what the other has written once a segment is closed.
            "dfs.ha.log-roll.period": "1s",
            "dfs.ha.tail-edits.period": "1s",
        }
    return found


def _router(site: Site, daemon: Daemon) -> Files:
    """Its one nameservice is the cluster's NameNode."""
    rpc, web = site.namenode_ports(1)
    own_rpc, admin, own_web = site.router_ports
    router = "dfs.federation.router"
    return {
        "hdfs-site.xml": {
            "dfs.nameservices": "ns0",
            "dfs.namenode.rpc-address.ns0": f"{site.head}:{rpc}",
            "dfs.namenode.http-address.ns0": f"{site.head}:{web}",
        },
        "hdfs-rbf-site.xml": {
            f"{router}.rpc-address": f"{site.head}:{own_rpc}",
            f"{router}.admin-address": f"{site.head}:{admin}",
            f"{router}.http-address": f"{site.head}:{own_web}",
            f"{router}.default.nameserviceId": "ns0",
            f"{router}.monitor.namenode": "ns0",
            f"{router}.monitor.localnamenode.enable": "false",
            f"{router}.safemode.enable": "false",
            # It looks for its NameNode so often (5000 ms, 1 min).
            f"{router}.heartbeat.interval": "500",
            f"{router}.cache.ttl": "500ms",
            f"{router}.store.driver.class": (
                "org.apache.hadoop.hdfs.server.federation.store.driver.impl.StateStoreFileImpl"
            ),
            f"{router}.store.driver.file.directory": str(site.data_dir(daemon)),
        },
    }


def _resource_manager(site: Site) -> dict[str, str]:
    """Addresses, one set for each ResourceManager."""
    found: dict[str, str] = {}
    for number in range(1, site.resource_managers + 1):
        suffix = f".rm{number}" if site.highly_available else ""
        ports = site.resource_manager_ports(number)
        host = site.resource_manager_host(number)
        found[f"{_RM}.hostname{suffix}"] = host
        for name, port in (
            ("address", ports.client),
            ("scheduler.address", ports.scheduler),
            ("resource-tracker.address", ports.tracker),
            ("admin.address", ports.admin),
            ("webapp.address", ports.web),
        ):
            found[f"{_RM}.{name}{suffix}"] = f"{host}:{port}"
    if site.highly_available:
        ids = ",".join(f"rm{number + 1}" for number in range(site.resource_managers))
        found |= {
            f"{_RM}.ha.enabled": "true",
            f"{_RM}.ha.automatic-failover.enabled": _bool(site.options.zookeeper),
            f"{_RM}.ha.rm-ids": ids,
            f"{_RM}.cluster-id": "howdah-tests",
            "yarn.client.failover-sleep-base-ms": "100",
            "yarn.client.failover-sleep-max-ms": "500",
        }
    if site.options.zookeeper:
        found |= {
            "hadoop.zk.address": f"{site.head}:{site.zookeeper_port}",
            # The other one serves so long after the last sign of the first.
            "hadoop.zk.timeout-ms": "2000",
        }
    return found


def _yarn(site: Site, classpath: str) -> dict[str, str]:
    options = site.options
    log_format, controller = "TFile", "tfile.LogAggregationTFileController"
    if options.indexed_logs:
        log_format, controller = "IFile", "ifile.LogAggregationIndexedFileController"
    found = {
        f"{_RM}.scheduler.class": (
            f"{_SERVER}.resourcemanager.scheduler.capacity.CapacityScheduler"
        ),
        # Queues can be changed through the REST API (`Cluster.configure_queues`).
        "yarn.scheduler.configuration.store.class": "memory",
        "yarn.acl.enable": "true",
        "yarn.admin.acl": site.user,
        f"{_RM}.am.max-attempts": "4",
        "yarn.scheduler.minimum-allocation-mb": "64",
        "yarn.scheduler.maximum-allocation-mb": str(options.node_memory_mib),
        "yarn.scheduler.maximum-allocation-vcores": str(NODE_VCORES),
        f"{_RM}.placement-constraints.handler": "scheduler",
        # Beats and expiry.
        f"{_RM}.nodemanagers.heartbeat-interval-ms": str(options.heartbeat_ms),
        "yarn.nm.liveness-monitor.expiry-interval-ms": str(options.node_expiry_ms),
        "yarn.am.liveness-monitor.expiry-interval-ms": str(options.master_expiry_ms),
        f"{_RM}.container.liveness-monitor.interval-ms": "5000",
        f"{_RM}.connect.retry-interval.ms": "200",
        f"{_RM}.connect.max-wait.ms": "60000",
        f"{_RM}.nodemanager-connect-retries": "10",
        "yarn.client.application-client-protocol.poll-interval-ms": "50",
        # Few threads: there are two cores and a handful of clients.
        f"{_RM}.client.thread-count": "5",
        f"{_RM}.scheduler.client.thread-count": "5",
        f"{_RM}.resource-tracker.client.thread-count": "5",
        f"{_RM}.amlauncher.thread-count": "5",
        # A restarted ResourceManager goes on with what ran, and gives containers soon (10,000 ms).
        f"{_RM}.recovery.enabled": "true",
        f"{_RM}.store.class": f"{_SERVER}.resourcemanager.recovery.FileSystemRMStateStore",
        f"{_RM}.fs.state-store.uri": f"file://{site.folder}/data/state-store",
        f"{_RM}.work-preserving-recovery.scheduling-wait-ms": "500",
        # Preemption, in the queues that allow it.
        f"{_RM}.scheduler.monitor.enable": "true",
        f"{_MONITOR}.monitoring_interval": "500",
        f"{_MONITOR}.max_wait_before_kill": "12000",
        f"{_MONITOR}.total_preemption_per_round": "1.0",
        f"{_MONITOR}.natural_termination_factor": "1.0",
        f"{_MONITOR}.max_ignored_over_capacity": "0.0",
        # Nodes.
        f"{_NM}.container-executor.class": f"{_SERVER}.nodemanager.DefaultContainerExecutor",
        f"{_NM}.resource.memory-mb": str(options.node_memory_mib),
        f"{_NM}.resource.cpu-vcores": str(NODE_VCORES),
        f"{_NM}.vmem-check-enabled": "false",
        f"{_NM}.pmem-check-enabled": "true",
        # The default, true, leaves it to control groups; without them nobody enforces anything.
        f"{_NM}.resource.memory.enforced": "false",
        f"{_NM}.container-monitor.interval-ms": "500",
        f"{_NM}.sleep-delay-before-sigkill.ms": "250",
        f"{_NM}.process-kill-wait.ms": "2000",
        f"{_NM}.disk-health-checker.enable": "false",
        # Looked at once all the same: on a rather full disk (90.0) no container would run.
        f"{_NM}.disk-health-checker.max-disk-utilization-per-disk-percentage": "100.0",
        f"{_NM}.localizer.client.thread-count": "5",
        f"{_NM}.localizer.fetch.thread-count": "4",
        f"{_NM}.container-manager.thread-count": "8",
        f"{_NM}.admin-env": f"MALLOC_ARENA_MAX=$MALLOC_ARENA_MAX,{MARKER}={site.folder}"
        + "".join(f",{name}={value}" for name, value in site.node_env.items())
        + (security.container_env(site) if site.options.kerberos else ""),
        # A restarted NodeManager finds its containers again, however it ended.
        f"{_NM}.recovery.enabled": "true",
        f"{_NM}.recovery.supervised": "true",
        # Aggregated logs.
        "yarn.log-aggregation-enable": "true",
        "yarn.log-aggregation.retain-seconds": "86400",
        "yarn.log-aggregation-status.time-out.ms": "600000",
        f"{_NM}.remote-app-log-dir": "/app-logs",
        f"{_NM}.remote-app-log-dir-suffix": "logs",
        "yarn.log-aggregation.file-formats": log_format,
        f"yarn.log-aggregation.file-controller.{log_format}.class": (
            f"org.apache.hadoop.yarn.logaggregation.filecontroller.{controller}"
        ),
        "yarn.application.classpath": f"$HADOOP_CONF_DIR,{classpath}",
        "yarn.timeline-service.enabled": "false",
        # By default below /tmp, where two clusters that start at once remove each other's files.
        "yarn.node-attribute.fs-store.root-dir": f"file://{site.folder}/data/node-attributes",
    }
    if options.fair:
        found |= {
            f"{_RM}.scheduler.class": f"{_SERVER}.resourcemanager.scheduler.fair.FairScheduler",
            "yarn.scheduler.configuration.store.class": "file",
            f"{_RM}.scheduler.monitor.enable": "false",  # the other scheduler's
            "yarn.resource-types.memory-mb.increment-allocation": "64",
            "yarn.scheduler.fair.allocation.file": str(_allocations_file(site)),
        }
    if options.gpu_node:
        found |= {
            "yarn.node-labels.enabled": "true",
            "yarn.node-labels.fs-store.root-dir": f"file://{site.folder}/data/node-labels",
        }
    if options.web_proxy:
        found["yarn.web-proxy.address"] = f"{PROXY_HOST}:{site.proxy_port}"
    if not options.placement_constraints:
        del found[f"{_RM}.placement-constraints.handler"]
    return found


def _node_manager(site: Site, daemon: Daemon) -> Files:
    ports = site.node_manager_ports(daemon.number)
    data = site.data_dir(daemon)
    host = site.node_host(daemon.number)
    own = {
        f"{_NM}.hostname": host,
        f"{_NM}.bind-host": host,
        f"{_NM}.address": f"{host}:{ports.rpc}",
        f"{_NM}.localizer.address": f"{host}:{ports.localizer}",
        f"{_NM}.webapp.address": f"{host}:{ports.web}",
        f"{_NM}.local-dirs": str(data / "local"),
        f"{_NM}.log-dirs": str(data / "logs"),
        f"{_NM}.recovery.dir": str(data / "recovery"),
    }
    if site.options.gpu_node and daemon.number == site.options.node_managers:
        plugins = f"{_NM}.resource-plugins"
        own |= {
            plugins: GPU,
            f"{plugins}.gpu.allowed-gpu-devices": "auto",
            f"{plugins}.gpu.path-to-discovery-executables": str(_discovery_folder(site)),
        }
    counted = {f"{_NM}.resource-type.{LICENCE}": str(LICENCES_PER_NODE)}
    return {"yarn-site.xml": own, "node-resources.xml": counted}


def _bool(value: bool) -> str:
    return "true" if value else "false"
