"""A running cluster: its life, its faults on demand, and what it says about itself."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec

from tests.hadoop import artifacts, configuration, daemons, ports
from tests.hadoop.errors import ClusterError
from tests.hadoop.kdc import Kdc
from tests.hadoop.options import Options
from tests.hadoop.polling import wait
from tests.hadoop.rest import call
from tests.hadoop.site import Daemon, Kind, Site
from tests.hosts.hosts import Hosts, inside

_START_S = 180.0
"""A quiet machine takes 6 s, one with twenty processes for two cores took 45 s."""
_STOP_S = 20.0
_POLL_S = 0.05
_STORY_LINES = 20
_RM_ADMIN = "org.apache.hadoop.yarn.client.cli.RMAdminCLI"
_HDFS_ADMIN = "org.apache.hadoop.hdfs.tools.DFSHAAdmin"
_ACTIVE = ("-transitionToActive", "--forceactive")
_STANDBY = "-transitionToStandby"
_FOLDERS = """
import sys, hdfs_native
client = hdfs_native.Client(sys.argv[1])
for path, mode in (("/tmp", 0o1777), ("/user", 0o755), ("/app-logs", 0o1777)):
    client.mkdirs(path, mode)
    client.set_permission(path, mode)
for user in ("ally", "bob", sys.argv[2]):
    client.mkdirs(f"/user/{user}", 0o755)
    client.set_owner(f"/user/{user}", user, user)
"""


class Cluster:
    """The cluster in a folder. Made by `create` or `open`; any process may hold one."""

    def __init__(self, site: Site) -> None:
        self.site = site

    @staticmethod
    def create(
        folder: Path,
        options: Options = Options(),  # noqa: B008
        hosts: Hosts | None = None,
        node_env: Mapping[str, str] = {},
    ) -> Cluster:
        """Write a new cluster's configuration and data folders; nothing runs yet.

        On ``hosts`` of its own (``head``, ``node1``, … and ``client``) it is in their folder.
        ``node_env``: more environment of NodeManagers and of containers.

        Raises ClusterError if Hadoop cannot be fetched.
        """
        jars = artifacts.jars(options.version)
        folder.mkdir(parents=True, exist_ok=True)
        site = Site(
            path=str(folder.resolve()),
            options=options,
            first_port=ports.claim(folder.resolve()).start,
            user=getpass.getuser(),
            hosts={} if hosts is None else {host.name: host.pid for host in hosts},
            node_env=dict(node_env),
        )
        if options.kerberos:
            Kdc(site.realm_dir).create(site.kdc_port)
        configuration.write(site, f"{jars[0].parent}/*")
        daemons.prepare_archives(site)
        _copy_formatted_name(site)
        if site.hosts:
            _give_out_data(site)
        if options.nodes_as:
            daemons.give_to_account(site)
        (folder / "site.json").write_bytes(msgspec.json.encode(site))
        return Cluster(site)

    @staticmethod
    def open(folder: Path) -> Cluster:
        """The cluster that was created in that folder."""
        return Cluster(msgspec.json.decode((folder / "site.json").read_bytes(), type=Site))

    # What others need to reach it -------------------------------------------------------------

    @property
    def folder(self) -> Path:
        return self.site.folder

    @property
    def conf_dir(self) -> Path:
        """HADOOP_CONF_DIR of this cluster."""
        return self.site.conf_dir

    @property
    def default_fs(self) -> str:
        """``hdfs://127.0.0.1:<port>``."""
        return self.site.default_fs

    @property
    def rm_web(self) -> str:
        """``http://127.0.0.1:<port>`` of the ResourceManager, of two the active one."""
        return self.rm_web_of(self.active() or 1)

    @property
    def nn_web(self) -> str:
        """``http://127.0.0.1:<port>`` of the NameNode, of two the active one."""
        return self.nn_web_of(self.active_name_node() or 1)

    @property
    def kdc(self) -> Kdc:
        """The realm, where there is one (``kerberos=True``)."""
        return Kdc(self.site.realm_dir)

    def nn_web_of(self, number: int) -> str:
        """Web address of one of the NameNodes."""
        return f"http://{self.site.head}:{self.site.namenode_ports(number)[1]}"

    def rm_web_of(self, number: int) -> str:
        """Web address of one of the ResourceManagers."""
        return f"http://{self.site.resource_manager_host(number)}:{self.site.resource_manager_ports(number).web}"

    def env(self) -> dict[str, str]:
        """Variables for a client of this cluster, to be added to its environment."""
        return {
            "HADOOP_CONF_DIR": str(self.conf_dir),
            "YARN_CONF_DIR": str(self.conf_dir),
            "JAVA_HOME": str(artifacts.java_home()),
            **(self.kdc.env() if self.site.options.kerberos else {}),
        }

    # Life -------------------------------------------------------------------------------------

    def up(self) -> None:
        """Start all daemons and wait until the cluster takes work. Raises ClusterError."""
        try:
            for daemon in self.site.daemons:
                daemons.start(self.site, daemon)
            self._choose_active()
            self.wait_ready()
        except BaseException:
            daemons.kill_marked(self.folder)
            raise

    def down(self) -> None:
        """End every process of it, containers included. The folder stays."""
        daemons.end(self.site)

    def remove(self) -> None:
        """Stop it and delete its folder."""
        self.down()
        kept = self.site.logs if (self.folder / "told").exists() else None
        for path in self.folder.iterdir() if kept else [self.folder]:
            if path.is_dir() and path != kept:
                shutil.rmtree(path, ignore_errors=True)

    def _call(self, url: str, *arguments: Any, **more: Any) -> Any:
        """`rest.call`, from the host of the clients."""
        client = self.site.hosts.get("client")
        if client is None:
            return call(url, *arguments, **more)
        return inside(client, self.site.hosts_file, lambda: call(url, *arguments, **more))

    def wait_ready(self, timeout_s: float = _START_S) -> None:
        """Wait until HDFS can be written and all nodes are there, with their labels."""
        deadline = time.monotonic() + timeout_s
        self._wait("the NameNode to leave safe mode", self._hdfs_is_writable, deadline)
        self._wait("folders on HDFS", self._make_folders, deadline)
        if self.site.options.router:
            self._wait("the router to show HDFS", self._router_shows_hdfs, deadline)
        self._wait("the ResourceManager", self._rm_is_started, deadline)
        if self.site.options.kms:
            self._wait("the Key Management Servers", self._kms_answer, deadline)
        self._wait("all nodes", self._all_nodes_run, deadline)
        if self.site.options.gpu_node:
            self._wait("the label of the node with GPUs", self._label, deadline)

    def _choose_active(self) -> None:
        if len(self.site.name_nodes) > 1:
            deadline = time.monotonic() + _START_S
            self._wait("a NameNode to become active", self._one_name_node_is_active, deadline)
        if self.site.highly_available:
            deadline = time.monotonic() + _START_S
            self._wait("a ResourceManager to become active", self._one_is_active, deadline)

    def _one_is_active(self) -> bool:
        if self.active() is None and not self.site.options.zookeeper:
            self.make_active(1)
        return self.active() is not None

    def _one_name_node_is_active(self) -> bool:
        if self.active_name_node() is None:
            self.make_name_node_active(1)
        return self.active_name_node() is not None

    def _wait(self, what: str, test: Callable[[], bool], deadline: float) -> None:
        stopped: list[Daemon] = []
        while True:
            try:
                if test():
                    return
            except (OSError, ValueError, LookupError, TypeError, StopIteration):
                pass
            stopped = [each for each in self.site.daemons if not self.is_running(each.name)]
            if stopped or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
        if stopped:
            story = "\n".join(daemons.last_lines(self.site, each) for each in stopped)
            names = ", ".join(each.name for each in stopped)
            raise ClusterError(f"{names} ended while waiting for {what}:\n{story}")
        story = daemons.last_lines(self.site, Daemon(Kind.RESOURCE_MANAGER))
        raise ClusterError(f"gave up waiting for {what}; logs are in {self.site.logs}:\n{story}")

    def _hdfs_is_writable(self) -> bool:
        bean = self._call(f"{self.nn_web}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo")[
            "beans"
        ][0]
        return bean["Safemode"] == "" and len(json.loads(bean["LiveNodes"])) == 1

    def _make_folders(self) -> bool:
        if self.site.options.kerberos:
            return self._make_secure_folders()
        for path, mode in (("/tmp", "1777"), ("/user", "755"), ("/app-logs", "1777")):
            self.hdfs(path, "MKDIRS", permission=mode)
        self.hdfs(f"/user/{self.site.user}", "MKDIRS", permission="755")
        return True

    def _make_secure_folders(self) -> bool:
        """WebHDFS wants SPNEGO here. Another program makes the folders: a process has one identity."""
        ticket = self.kdc.kinit("hdfs", self.site.realm_dir / "hdfs.tickets")
        done = subprocess.run(
            [sys.executable, "-c", _FOLDERS, self.default_fs, self.site.user],
            env={**os.environ, **self.env(), **ticket},
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode:
            raise OSError(done.stderr)
        return True

    def _router_shows_hdfs(self) -> bool:
        web = f"http://{self.site.head}:{self.site.router_ports[2]}"
        return "FileStatuses" in self._call(f"{web}/webhdfs/v1/user?op=LISTSTATUS")

    def _kms_answer(self) -> bool:
        return all(self._kms_answers(number + 1) for number in range(self.site.options.kms))

    def _kms_answers(self, number: int) -> bool:
        host = self.site.kms_host(number)
        try:
            self._call(f"http://{host}:{self.site.kms_port}/kms/v1/keys/names")
        except urllib.error.HTTPError as error:
            return error.code == HTTPStatus.UNAUTHORIZED  # it asks for a ticket
        return False

    def _rm_is_started(self) -> bool:
        return self.rm("info")["clusterInfo"]["state"] == "STARTED"

    def _all_nodes_run(self) -> bool:
        """Do they answer themselves, and does the ResourceManager count on them?"""
        nodes = [each for each in self.site.daemons if each.kind is Kind.NODE_MANAGER]
        for node in nodes:
            web = self.site.node_manager_ports(node.number).web
            self._call(f"http://{self.site.node_host(node.number)}:{web}/ws/v1/node/info")
        return len(self._running_nodes()) >= len(nodes)

    def _running_nodes(self) -> list[dict[str, Any]]:
        return [node for node in self.nodes() if node["state"] == "RUNNING"]

    def _label(self) -> bool:
        """Make the label, give it to its node; true when the scheduler has it."""
        last = Daemon(Kind.NODE_MANAGER, self.site.options.node_managers)
        port = self.site.node_manager_ports(last.number).rpc
        node = next(each for each in self.nodes() if each["id"].endswith(f":{port}"))
        if node.get("nodeLabels") == ["gpu"]:
            return True
        exclusive = self.site.options.exclusive_label
        labels = {"nodeLabelInfo": [{"name": "gpu", "exclusivity": exclusive}]}
        try:
            self.rm("add-node-labels", "POST", labels)
        except urllib.error.HTTPError as error:
            if "already" not in str(error):
                raise
        self.rm(f"nodes/{node['id']}/replace-labels?labels=gpu", "POST", {})
        return False

    # Faults -----------------------------------------------------------------------------------

    def daemon(self, name: str) -> Daemon:
        """``namenode``, ``datanode``, ``resourcemanager1`` (or without the 1), ``nodemanager2``…"""
        for each in self.site.daemons:
            if name in (each.name, f"{each.kind}" if each.number == 1 else None):
                return each
        known = ", ".join(each.name for each in self.site.daemons)
        raise ValueError(f"this cluster has no daemon {name!r}; it has {known}")

    def pid(self, name: str) -> int | None:
        """Process id of a daemon, None if it does not run."""
        return daemons.pid(self.site, self.daemon(name))

    def is_running(self, name: str) -> bool:
        return self.pid(name) is not None

    def kill(self, name: str) -> None:
        """SIGKILL, and wait for the end."""
        daemon = self.daemon(name)
        daemons.send(self.site, daemon, signal.SIGKILL)
        if not daemons.wait_ended(self.site, daemon, _STOP_S):
            raise ClusterError(f"{name} did not end within {_STOP_S:.0f} s of SIGKILL")

    def pause(self, name: str) -> None:
        """SIGSTOP: it does not answer, and its connections stay open."""
        daemon = self.daemon(name)
        daemons.send(self.site, daemon, signal.SIGSTOP)
        wait(f"{name} to stand still", lambda: daemons.is_stopped(self.site, daemon))

    def resume(self, name: str) -> None:
        """SIGCONT."""
        daemons.send(self.site, self.daemon(name), signal.SIGCONT)

    def start(self, name: str) -> None:
        """Start it again, with the ports and data it had; `wait_ready` waits until it serves."""
        daemons.start(self.site, self.daemon(name))

    def restart(self, name: str) -> None:
        """SIGKILL and start."""
        self.kill(name)
        self.start(name)

    def active(self) -> int | None:
        """Number of the ResourceManager that serves; None while there is none."""
        if not self.site.highly_available:
            return 1
        numbers = range(1, self.site.resource_managers + 1)
        return next((n for n in numbers if self.resource_manager_state(n) == "ACTIVE"), None)

    def resource_manager_state(self, number: int) -> str | None:
        """ACTIVE or STANDBY; None while it does not answer."""
        try:
            told = self._call(f"{self.rm_web_of(number)}/ws/v1/cluster/info")
        except OSError:
            return None
        return told["clusterInfo"]["haState"]

    def make_active(self, number: int) -> None:
        """Make that ResourceManager serve.

        The other must be gone or stand by: nothing here keeps two from serving at once.
        """
        self._administer(_RM_ADMIN, *_ACTIVE, f"rm{number}")

    def fail_over(self) -> int:
        """Let the other of two ResourceManagers serve; the number of the one that does now."""
        before = self.active()
        if before is not None:
            self._administer(_RM_ADMIN, _STANDBY, f"rm{before}")
        now = 2 if before == 1 else 1
        self.make_active(now)
        return now

    def _administer(self, main: str, *words: str) -> None:
        """Run Hadoop's own command. Raises OSError with what it says if it fails: a daemon may be starting."""
        secure = self.site.options.kerberos
        ticket = self.kdc.kinit("hdfs", self.site.realm_dir / "hdfs.tickets") if secure else {}
        done = subprocess.run(
            daemons.client(self.site, main, *words),
            env={**os.environ, **self.env(), **ticket},
            capture_output=True,
            text=True,
            timeout=60,
        )
        if done.returncode:
            raise OSError(f"{main} {words}: {done.stderr[-2000:]}")

    def active_name_node(self) -> int | None:
        """Number of the NameNode that serves; None while there is none."""
        if len(self.site.name_nodes) == 1:
            return 1
        query = "jmx?qry=Hadoop:service=NameNode,name=NameNodeStatus"
        for daemon in self.site.name_nodes:
            with contextlib.suppress(OSError, LookupError):
                (bean,) = self._call(f"{self.nn_web_of(daemon.number)}/{query}")["beans"]
                if bean["State"] == "active":
                    return daemon.number
        return None

    def make_name_node_active(self, number: int) -> None:
        """Make that NameNode serve.

        The other must be gone or stand by: nothing here keeps two from serving at once.
        """
        # Without asking the other one first, which may be dead.
        order = (*_ACTIVE, f"nn{number}")
        wait(f"NameNode {number}", lambda: self._administer(_HDFS_ADMIN, *order) is None)

    def fail_over_hdfs(self) -> int:
        """Let the other of two NameNodes serve; the number of the one that does now."""
        before = self.active_name_node()
        if before is not None:
            self._administer(_HDFS_ADMIN, _STANDBY, f"nn{before}")
        now = 2 if before == 1 else 1
        self.make_name_node_active(now)
        return now

    def set_read_only(self, on: bool) -> None:
        """HDFS's safe mode: reads are served, writes refused."""
        main = "org.apache.hadoop.hdfs.tools.DFSAdmin"
        self._administer(main, "-safemode", "enter" if on else "leave")

    def set_quota(self, path: str, space: int | None) -> None:
        """Limit the bytes (of all replicas) below a folder of HDFS; None takes the limit away."""
        limit = -1 if space is None else space
        self.hdfs(
            path, "SETQUOTA", namespacequota="9223372036854775807", storagespacequota=str(limit)
        )

    def configure_queues(self, properties: dict[str, dict[str, str]]) -> None:
        """Change queues while they work: ``{"root.small": {"maximum-capacity": "20"}}``."""
        rows = "".join(
            f"<update-queue><queue-name>{queue}</queue-name><params>"
            + "".join(
                f"<entry><key>{name}</key><value>{value}</value></entry>"
                for name, value in values.items()
            )
            + "</params></update-queue>"
            for queue, values in properties.items()
        )
        url = f"{self.rm_web}/ws/v1/cluster/scheduler-conf"
        self._call(url, "PUT", f"<sched-conf>{rows}</sched-conf>", kind="xml")

    # What it says -----------------------------------------------------------------------------

    def rm(self, path: str, method: str = "GET", body: object = None) -> Any:
        """Call ``/ws/v1/cluster/<path>`` of the ResourceManager, as its administrator."""
        return self._call(f"{self.rm_web}/ws/v1/cluster/{path}", method, body)

    def hdfs(
        self, path: str, operation: str, method: str = "PUT", user: str = "", **query: str
    ) -> Any:
        """A WebHDFS call, as HDFS's superuser or as another user.

        ``hdfs("/user/eve", "MKDIRS"); hdfs("/user/eve", "SETOWNER", owner="eve")``.
        """
        given = {"op": operation, "user.name": user or self.site.user, **query}
        encoded = urllib.parse.urlencode(given)
        return self._call(f"{self.nn_web}/webhdfs/v1{urllib.parse.quote(path)}?{encoded}", method)

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes the ResourceManager knows, in its own words."""
        return (self.rm("nodes")["nodes"] or {}).get("node", [])

    def applications(self, *states: str) -> list[dict[str, Any]]:
        """Applications in these states (``RUNNING``, …), or all."""
        query = f"?states={','.join(states)}" if states else ""
        return (self.rm(f"apps{query}")["apps"] or {}).get("app", [])

    def containers(self) -> list[dict[str, Any]]:
        """Containers on the running nodes, in the nodes' own words."""
        found: list[dict[str, Any]] = []
        for node in self._running_nodes():
            with contextlib.suppress(OSError):  # it has just ended
                told = self._call(f"http://{node['nodeHTTPAddress']}/ws/v1/node/containers")
                found += (told["containers"] or {}).get("container", [])
        return found

    def story(self) -> str:
        """For the report of a test that failed: what the daemons said last, in twenty lines, and where the rest is.

        The logs stay when the cluster is removed.
        """
        (self.folder / "told").touch()
        each = max(1, _STORY_LINES // len(self.site.daemons))
        told: list[str] = []
        for daemon in self.site.daemons:
            lines = daemons.last_lines(self.site, daemon, each).splitlines()
            state = "" if self.is_running(daemon.name) else " (does not run)"
            told += [f"{daemon.name}{state}: {line[:160]}" for line in lines]
        return "\n".join([*told[:_STORY_LINES], f"logs: {self.site.logs}/*.log"])

    def containers_running(self) -> int:
        """Containers that the scheduler has given and not got back, those of masters included."""
        return self.rm("metrics")["clusterMetrics"]["containersAllocated"]


def _give_out_data(site: Site) -> None:
    """To each host the data of its daemons: a host has a disk of its own."""
    for daemon in site.daemons:
        there = site.folder / "hosts" / site.host_of(daemon) / "data" / daemon.name
        shutil.move(site.data_dir(daemon), there)


def _copy_formatted_name(site: Site) -> None:
    """Give the NameNode a formatted folder. Formatting takes a JVM: done once, then copied."""

    def make(kept: Path) -> None:
        # In a plain cluster's way, whatever this one is to be: no Kerberos, no second NameNode.
        with tempfile.TemporaryDirectory(prefix="hwt-format-") as folder:
            plain = msgspec.structs.replace(
                site, path=folder, options=Options(version=site.options.version)
            )
            configuration.write(plain, "")
            (name,) = plain.name_nodes
            done = daemons.run(plain, name, "-format", "-force", "-nonInteractive")
            if done.returncode:
                raise ClusterError(f"the NameNode could not be formatted:\n{done.stderr[-2000:]}")
            shutil.copytree(plain.data_dir(name), kept, dirs_exist_ok=True)

    kept = artifacts.once(f"hadoop-{site.options.version}/name", make)
    places = [site.data_dir(daemon) for daemon in site.name_nodes]
    for each in [*places, site.shared_edits_dir] if len(places) > 1 else places:
        shutil.copytree(kept, each, dirs_exist_ok=True)
        os.utime(each)
