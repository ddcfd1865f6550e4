"""What a Hadoop cluster offers to jobs, and what would get in their way. Looks, changes nothing.

What the servers do themselves is told by our copy of their configuration, which may be an older one;
what they answer counts more.
"""

from __future__ import annotations

import os
import posixpath
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from howdah.backends.base import BackendError
from howdah.backends.findings import DoctorFinding, fine, problem, warning
from howdah.backends.yarn import token_providers
from howdah.backends.yarn.access import Access, folder_of_site, load, log_in
from howdah.backends.yarn.amounts import GPU, quantity
from howdah.backends.yarn.client import cluster_report, staging
from howdah.backends.yarn.client.checks import DEFAULT_QUEUE, no_access_lists, no_images
from howdah.backends.yarn.client.cluster import YarnCluster, listed
from howdah.hadoop.address import Address
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import ConfigurationError, HadoopError
from howdah.hadoop.namenode import NameNode
from howdah.hadoop.security.credentials import TOKEN_FILE
from howdah.spec.model import Master
from howdah.storage.hdfs import split
from howdah.storage.hdfs.files import Hdfs

CONNECT_S = 3.0
LEAST_SPACE = 10 * 2**30
SITE_FILES = ("core-site.xml", "hdfs-site.xml", "yarn-site.xml")
_HINT_CONF = "set HADOOP_CONF_DIR to a copy of the cluster's configuration folder"


def examine(env: Mapping[str, str] = os.environ) -> Iterator[DoctorFinding]:
    """Look at everything that can be looked at; what cannot is a finding, not an end."""
    try:
        folder = folder_of_site(env)
        configuration = load(folder, env)
    except BackendError as error:
        yield problem("configuration", str(error))
        return
    yield from _configuration(configuration)
    access = Access.open(folder, env)
    try:
        reached = yield from _manager(access)
        looks: list[Callable[[], Iterable[DoctorFinding]]] = []
        if reached is not None:
            cluster = reached
            looks = [
                lambda: _nodes(cluster),
                lambda: _containers(cluster),
                lambda: _queues(cluster),
                lambda: _labels(cluster),
                lambda: _gpus(cluster),
                lambda: _way_back(cluster),
            ]
        looks += [
            lambda: _hdfs(access),
            lambda: _security(configuration),
            lambda: _settings(configuration),
            lambda: _heeded(configuration),
            token_providers.examine,
            lambda: _proxy(configuration),
            _runtime,
        ]
        for look in looks:
            try:
                yield from look()
            except (HadoopError, BackendError, OSError) as error:
                yield problem("cluster", f"could not be looked at: {error}")
    finally:
        access.close()


# -- configuration -------------------------------------------------------------------------------


def _configuration(configuration: Configuration) -> Iterator[DoctorFinding]:
    folder = configuration.folder
    assert folder is not None
    missing = [name for name in SITE_FILES if not (folder / name).is_file()]
    if missing:
        yield problem(
            "configuration",
            f"{folder} has no {listed(missing)}: what it says is then Hadoop's default, and the "
            "servers are looked for on this machine",
            _HINT_CONF,
        )
    else:
        yield fine("configuration", str(folder))


# -- ResourceManager -----------------------------------------------------------------------------


def _manager(access: Access) -> Iterator[DoctorFinding]:
    """Findings; returns the cluster if a ResourceManager answered."""
    try:
        addresses = access.configuration.rm_addresses("client")
    except ConfigurationError as error:
        yield problem("ResourceManager", str(error), "correct that property")
        return None
    deaf = {address: why for address in addresses if (why := _unreachable(address))}
    for address, why in deaf.items():
        text = f"{address} cannot be reached: {why}"
        if len(deaf) < len(addresses):
            yield warning("ResourceManager", text, "a fail-over to it would stop all jobs")
        else:
            yield problem(
                "ResourceManager",
                text,
                "is it up, is yarn.resourcemanager.address right, does a firewall let you through?",
            )
    if len(deaf) == len(addresses):
        return None
    try:
        cluster = access.call(cluster_report.look(access.manager, access.user))
    except (HadoopError, BackendError) as error:
        yield problem("ResourceManager", str(error))
        return None
    several = f", {len(addresses)} of them" if len(addresses) > 1 else ""
    yield fine("ResourceManager", f"{access.manager.rpc.address} answers{several}")
    return cluster


def _unreachable(address: Address) -> str:
    try:
        socket.create_connection((address.host, address.port), timeout=CONNECT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _nodes(cluster: YarnCluster) -> Iterator[DoctorFinding]:
    usable = cluster.usable()
    for node in cluster.nodes:
        if not node.usable:
            why = f": {node.health}" if node.health else ""
            yield warning("nodes", f"{node.host} is {node.state.lower()}{why}")
    if not usable:
        yield problem("nodes", "no node takes containers", "start NodeManagers")
        return
    yield fine(
        "nodes", f"{len(usable)} take containers; the greatest has {cluster.most_on_a_node()}"
    )


def _containers(cluster: YarnCluster) -> Iterator[DoctorFinding]:
    yield fine("containers", f"at most {cluster.largest}, in steps of {cluster.smallest}")
    too_large = cluster.largest.beyond(cluster.most_on_a_node())
    for name in too_large:
        yield warning(
            "containers",
            f"the cluster allows {quantity(name, cluster.largest.of(name))} in one container, but no "
            f"node has more than {quantity(name, cluster.most_on_a_node().of(name))}",
            "lower yarn.scheduler.maximum-allocation-*, so that other programs are told too; "
            "Howdah looks at the nodes itself",
        )


def _queues(cluster: YarnCluster) -> Iterator[DoctorFinding]:
    if not cluster.queues:
        yield warning("queues", "the ResourceManager does not tell its queues")
        return
    leaves = [queue for queue in cluster.queues if queue.leaf]
    stopped = [queue.name for queue in leaves if not queue.running]
    open_to_us = [
        queue.name
        for queue in leaves
        if queue.running
        and (cluster.may_submit is None or any(n in cluster.may_submit for n in queue.known_as))
    ]
    if not open_to_us:
        yield problem(
            "queues",
            f"{cluster.user} may submit to none of {listed(queue.name for queue in leaves)}",
            "ask for a right to submit (yarn.scheduler.capacity.<queue>.acl_submit_applications)",
        )
        return
    yield fine("queues", f"{cluster.user} may submit to {listed(open_to_us)}")
    default = cluster.queue(DEFAULT_QUEUE)
    if default is None or default.name not in open_to_us:
        yield warning(
            "queues",
            f"jobs that name no queue ask for {DEFAULT_QUEUE!r}, which you may not use: they run where the "
            "cluster's own rules put such jobs elsewhere, and are refused if it has none",
            f'put queue = "{open_to_us[0]}" into the site file or your job files',
        )
    if stopped:
        yield warning("queues", f"{listed(stopped)} are stopped")


def _labels(cluster: YarnCluster) -> Iterator[DoctorFinding]:
    if not cluster.labels:
        yield fine("labels", "none")
        return
    for label in cluster.labels:
        nodes = cluster.usable(label)
        users = [queue.name for queue in cluster.queues if queue.leaf and queue.may_use(label)]
        if not nodes:
            yield warning("labels", f"no usable node has the label {label!r}")
        elif not users:
            yield warning(
                "labels",
                f"{label!r} is on {len(nodes)} nodes, and no queue may use it",
                f"yarn.scheduler.capacity.<queue>.accessible-node-labels = {label}",
            )
        else:
            yield fine("labels", f"{label!r}: {len(nodes)} nodes, for {listed(users)}")


def _gpus(cluster: YarnCluster) -> Iterator[DoctorFinding]:
    if cluster.resource_types is not None and GPU not in cluster.resource_types:
        yield fine("GPUs", f"not scheduled (no resource type {GPU})")
        return
    having = [node for node in cluster.usable() if node.capability.of(GPU)]
    if not having:
        yield warning(
            "GPUs",
            f"there is a resource type {GPU}, but no usable node has any",
            "yarn.nodemanager.resource-plugins = yarn.io/gpu on nodes with GPUs",
        )
        return
    total = sum(node.capability.of(GPU) for node in having)
    yield fine("GPUs", f"{total} on {len(having)} nodes")


def _way_back(cluster: YarnCluster) -> Iterator[DoctorFinding]:
    """The coordinator listens on a node: whoever follows a job connects to it there."""
    for node in cluster.usable()[:1]:
        host, _, port = node.host.rpartition(":")
        why = _unreachable(Address(host, int(port)))
        if why:
            yield warning(
                "way to nodes",
                f"{node.host} cannot be reached from here: {why}. Jobs run, but they can only be "
                "followed from where nodes can be reached",
                "submit from a gateway machine of the cluster, or let its nodes' ports through",
            )
        else:
            yield fine("way to nodes", f"{host} can be reached")


# -- HDFS ----------------------------------------------------------------------------------------


def _hdfs(access: Access) -> Iterator[DoctorFinding]:
    configuration = access.configuration
    try:
        home = staging.home_url(configuration, access.user)
        addresses = configuration.name_nodes(home)
    except (BackendError, ConfigurationError) as error:
        yield problem("HDFS", str(error), "set `store` to an hdfs:// URL in the site file")
        return
    deaf = {address: why for address in addresses if (why := _unreachable(address))}
    if len(deaf) == len(addresses):
        for address, why in deaf.items():
            yield problem(
                "HDFS",
                f"the NameNode {address} cannot be reached: {why}",
                "is it up, is fs.defaultFS right, does a firewall let you through?",
            )
        return

    async def ask() -> tuple[bool, int, int]:
        async with NameNode(configuration, access.login, url=home) as name_node:
            safe = await name_node.safe_mode("get")
            stats = await name_node.fs_stats()
        return safe, stats.capacity, stats.remaining

    safe, capacity, remaining = access.call(ask())
    if safe:
        yield problem("HDFS", "it is in safe mode: nothing can be written", "hdfs dfsadmin -report")
    if not capacity:
        yield problem("HDFS", "it has no DataNode", "start DataNodes")
    elif remaining < LEAST_SPACE:
        yield warning("HDFS", f"{remaining / 2**30:.1f} GiB free", "make room")
    else:
        yield fine("HDFS", f"{split(home)[0]}, {remaining / 2**30:.0f} GiB free")
    yield from _home(access, home)


def _home(access: Access, home: str) -> Iterator[DoctorFinding]:
    hdfs = access.hdfs(home).patient(0.0)
    path = hdfs.path(home)
    try:
        found = hdfs.stat(path)
    except FileNotFoundError:
        if _may_write(access.user, hdfs, posixpath.dirname(path)):
            yield fine("home on HDFS", f"{home} is made by the first job")
            return
        yield problem(
            "home on HDFS",
            f"there is no {home}, and {access.user} may not make it",
            f"an administrator: hdfs dfs -mkdir {path} && hdfs dfs -chown {access.user} {path}",
        )
        return
    if found.owner == access.user and found.permission & 0o200:
        yield fine("home on HDFS", home)
    elif found.permission & 0o022:
        yield warning("home on HDFS", f"{home} belongs to {found.owner}")
    else:
        yield problem(
            "home on HDFS",
            f"{home} belongs to {found.owner}, and {access.user} may not write there",
            f"hdfs dfs -chown {access.user} {path}, or set `store` in the site file",
        )


def _may_write(user: str, hdfs: Hdfs, folder: str) -> bool:
    """As far as owner and permissions tell; a superuser may always."""
    while folder not in ("", "/"):
        try:
            found = hdfs.stat(folder)
        except FileNotFoundError:
            folder = posixpath.dirname(folder)
            continue
        return found.owner == user or bool(found.permission & 0o002)
    root = hdfs.stat("/")
    return root.owner == user or bool(root.permission & 0o002)


# -- settings ------------------------------------------------------------------------------------


def _security(configuration: Configuration) -> Iterator[DoctorFinding]:
    if not configuration.security_enabled:
        yield fine("security", "simple: the cluster believes who you say you are")
        return
    try:
        found = log_in(configuration)
    except BackendError as error:
        yield problem("security", str(error), "kinit; then look again")
        return
    if not found.kerberos:
        yield fine("security", f"Kerberos; you are {found.user} by the tokens in {TOKEN_FILE}")
        return
    left = "" if found.keytab else f", for {(found.expires_at - time.time()) / 3600:.1f} h"
    yield fine("security", f"Kerberos; {found.principal} is {found.user} on the cluster{left}")


def _settings(configuration: Configuration) -> Iterator[DoctorFinding]:
    attempts = configuration.integer("yarn.resourcemanager.am.max-attempts", 2)
    attempts = configuration.integer("yarn.resourcemanager.am.global.max-attempts", attempts)
    wanted = Master().attempts
    text = f"a job's master may have {attempts} within the validity interval"
    if attempts < 2:
        yield warning(
            "attempts",
            f"{text}: with its node the job is lost",
            "yarn.resourcemanager.am.max-attempts = 4",
        )
    else:
        less = f" (jobs ask for {wanted})" if attempts < wanted else ""
        yield fine("attempts", text + less)
    if configuration.boolean("yarn.resourcemanager.recovery.enabled"):
        yield fine("ResourceManager restart", "jobs go on (recovery)")
    else:
        yield warning(
            "ResourceManager restart",
            "ends all jobs",
            "yarn.resourcemanager.recovery.enabled = true, with a state store",
        )
    if configuration.boolean("yarn.nodemanager.recovery.enabled"):
        yield fine("NodeManager restart", "containers go on (recovery)")
    else:
        yield warning(
            "NodeManager restart",
            "ends the node's containers",
            "yarn.nodemanager.recovery.enabled = true, with a fixed yarn.nodemanager.address",
        )
    if configuration.boolean("yarn.log-aggregation-enable"):
        yield fine("log aggregation", configuration.get("yarn.nodemanager.remote-app-log-dir"))
    else:
        yield warning(
            "log aggregation",
            "off: what containers print before their agent starts stays on the nodes",
            "yarn.log-aggregation-enable = true",
        )
    if configuration.boolean("yarn.nodemanager.vmem-check-enabled", True):
        ratio = configuration.get("yarn.nodemanager.vmem-pmem-ratio", "2.1")
        yield warning(
            "virtual memory",
            f"is checked: a container is ended past {ratio} times its memory. Programs with GPUs, "
            "and Java, reserve much more than they use",
            "yarn.nodemanager.vmem-check-enabled = false; the physical memory stays checked",
        )
    else:
        yield fine("virtual memory", "not checked")


def _heeded(configuration: Configuration) -> Iterator[DoctorFinding]:
    """What job files may say and YARN passes over without a word."""
    if why := no_access_lists(configuration):
        yield warning(
            "access lists",
            f"`[acl]` of a job keeps nobody out, {why}",
            "yarn.acl.enable = true, with administrators in yarn.admin.acl",
        )
    else:
        yield fine("access lists", "heeded")
    if why := no_images(configuration):
        yield fine("images", why)


def _proxy(configuration: Configuration) -> Iterator[DoctorFinding]:
    own = configuration.get("yarn.web-proxy.address")
    where = own or "the ResourceManager's own"
    yield fine("web proxy", f"{where}; pages behind it are read-only")


def _runtime() -> Iterator[DoctorFinding]:
    from howdah.packing.archives import PackingError
    from howdah.packing.python import distributions, interpreter
    from howdah.packing.python.runtime import NEEDED, OPTIONAL, our_python

    try:
        distributions.closure(NEEDED, OPTIONAL, ("howdah",))
    except PackingError as error:
        yield problem("runtime", str(error))
        return
    nodes = (
        "which any node runs"
        if interpreter.portable()
        else "which needs nodes with a glibc as new as here; 'howdah pack --runtime' has uv fetch one "
        "that runs on any"
    )
    yield fine("runtime", f"shipped with the first job: the Python of {our_python()}, {nodes}")
