"""The daemons as processes: started, seen, signalled. Any process may do that, not only the parent.

A daemon's process is written down as its id and start time (``pids/<name>``), so that a number the
kernel has given to somebody else meanwhile is not taken for it. What belongs to a cluster at all,
containers and what they started included, carries the variable `site.MARKER`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from tests.hadoop import artifacts
from tests.hadoop.kdc import Kdc
from tests.hadoop.polling import wait
from tests.hadoop.site import MARKER, Daemon, Kind, Site
from tests.hosts.hosts import entering

_SERVER = "org.apache.hadoop.yarn.server"
_MAIN = {
    Kind.KMS: "org.apache.hadoop.crypto.key.kms.server.KMSWebServer",
    Kind.ZOOKEEPER: "org.apache.zookeeper.server.ZooKeeperServerMain",
    Kind.NAMENODE: "org.apache.hadoop.hdfs.server.namenode.NameNode",
    Kind.ROUTER: "org.apache.hadoop.hdfs.server.federation.router.DFSRouter",
    Kind.DATANODE: "org.apache.hadoop.hdfs.server.datanode.DataNode",
    Kind.RESOURCE_MANAGER: f"{_SERVER}.resourcemanager.ResourceManager",
    Kind.NODE_MANAGER: f"{_SERVER}.nodemanager.NodeManager",
    Kind.WEB_PROXY: f"{_SERVER}.webproxy.WebAppProxyServer",
}
_HEAP_MIB = {
    Kind.KMS: 128,
    Kind.ZOOKEEPER: 64,
    Kind.NAMENODE: 192,
    Kind.ROUTER: 128,
    Kind.DATANODE: 160,
    Kind.RESOURCE_MANAGER: 256,
    Kind.NODE_MANAGER: 192,
    Kind.WEB_PROXY: 96,
}
_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xss512k",
    "-XX:MaxMetaspaceSize=160m",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
    "-Dfile.encoding=UTF-8",
    # Guice 4, under the web pages of YARN up to 3.4.
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ")
_ARCHIVE_S = 60
"""How long a daemon may take to write its class-data archive at its end."""
_POLL_S = 0.02

_children: dict[int, subprocess.Popen[bytes]] = {}
"""Those this process started: it alone can reap them."""


def start(site: Site, daemon: Daemon) -> None:
    """Start the process. It is not ready when this returns."""
    if (running := pid(site, daemon)) is not None:
        raise ValueError(f"{daemon.name} runs already (process {running})")
    account = _account(site, daemon)
    with (site.logs / f"{daemon.name}.log").open("ab") as log:
        child = subprocess.Popen(
            _command(site, daemon),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=site.folder,
            env=_environment_of(site, daemon),
            start_new_session=True,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )
    _children[child.pid] = child
    process = psutil.Process(child.pid)
    if site.hosts:
        process = _in_its_host(process)
    place = _pid_file(site, daemon)
    place.parent.mkdir(exist_ok=True)
    place.write_text(f"{process.pid} {process.create_time()}")


def _in_its_host(entering: psutil.Process) -> psutil.Process:
    """The process that another one has started in a host."""
    return wait("a process in its host", lambda: next(iter(entering.children()), None))


def _command(site: Site, daemon: Daemon) -> list[str]:
    if daemon.kind is Kind.KDC:
        return Kdc(site.realm_dir).command()
    command = [str(artifacts.java()), *_flags(site, daemon), _MAIN[daemon.kind]]
    if daemon.kind is Kind.ZOOKEEPER:
        command.append(str(site.own_conf_dir(daemon) / "zoo.cfg"))
    if site.hosts:
        return entering(site.hosts[site.host_of(daemon)], *command, cwd=site.folder)
    return command


def _environment_of(site: Site, daemon: Daemon) -> dict[str, str]:
    if daemon.kind is Kind.KDC:
        return {**Kdc(site.realm_dir).server_env(), MARKER: str(site.folder)}
    env = environment(site, site.own_conf_dir(daemon))
    if account := _account(site, daemon):
        env = {name: value for name, value in env.items() if name not in ("USER", "LOGNAME")}
        jars = artifacts.jars(site.options.version)
        own = [str(_lent(site) / jar.name) for jar in jars]
        env |= {
            "CLASSPATH": ":".join([*own, str(site.own_conf_dir(daemon))]),
            "HOME": account.pw_dir,
        }
    match daemon.kind:
        case Kind.KMS:
            own = artifacts.kms(site.options.version)
        case Kind.ROUTER:
            own = artifacts.router()
        case Kind.NODE_MANAGER:
            return {**env, **site.node_env}
        case _:
            return env
    return {**env, "CLASSPATH": ":".join([*map(str, own), env["CLASSPATH"]])}


def _account(site: Site, daemon: Daemon) -> pwd.struct_passwd | None:
    """Who that daemon runs as, if not as whoever starts it."""
    name = site.options.nodes_as
    return pwd.getpwnam(name) if name and daemon.kind is Kind.NODE_MANAGER else None


def _lent(site: Site) -> Path:
    """Where another account finds what the cache has, which may be in a home closed to others."""
    return site.folder / "lent"


def give_to_account(site: Site) -> None:
    """Let NodeManagers of another account have what they need."""
    (site.folder / "tmp").chmod(0o1777)
    native = artifacts.native()
    for file in (*artifacts.jars(site.options.version), *(native.iterdir() if native else ())):
        there = _lent(site) / file.name
        there.parent.mkdir(exist_ok=True)
        try:
            there.hardlink_to(file)
        except OSError:  # another file system
            shutil.copyfile(file, there)
    for daemon in site.daemons:
        if account := _account(site, daemon):
            os.chown(site.data_dir(daemon), account.pw_uid, account.pw_gid)


def run(site: Site, daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a daemon's main class with arguments, to its end."""
    return subprocess.run(
        [str(artifacts.java()), *_flags(site, daemon), _MAIN[daemon.kind], *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=site.folder,
        env=environment(site, site.own_conf_dir(daemon)),
    )


def client(site: Site, main: str, *arguments: str) -> list[str]:
    """The command of one of Hadoop's own clients, such as ``org.apache.hadoop.fs.FsShell``."""
    jars = artifacts.jars(site.options.version)
    path = ":".join([*map(str, jars), str(site.conf_dir)])
    secure = site.options.kerberos
    realm = [f"-Djava.security.krb5.conf={Kdc(site.realm_dir).configuration}"] if secure else []
    return [str(artifacts.java()), *_FLAGS, *realm, "-cp", path, main, *arguments]


def environment(site: Site, conf_dir: Path) -> dict[str, str]:
    """Environment of a daemon. Little of ours is passed on, as on a machine with only Hadoop.

    The folder comes last on the class path: class-data archives are valid only for a class path
    that begins with the one they were made with, and that may not have folders.
    """
    jars = artifacts.jars(site.options.version)
    return {
        **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        "JAVA_HOME": str(artifacts.java_home()),
        "CLASSPATH": ":".join([*map(str, jars), str(conf_dir)]),
        # What containers inherit from their NodeManager: the clients' configuration.
        "HADOOP_CONF_DIR": str(site.conf_dir),
        "HADOOP_LOG_DIR": str(site.logs),
        MARKER: str(site.folder),
    }


def pid(site: Site, daemon: Daemon) -> int | None:
    """The living process of that daemon, if there is one."""
    try:
        number, started = _pid_file(site, daemon).read_text().split()
    except (OSError, ValueError):
        return None
    if int(number) in _children:
        _children[int(number)].poll()
    try:
        process = psutil.Process(int(number))
        same = process.create_time() == float(started)
        return process.pid if same and not _has_ended(process) else None
    except psutil.Error:
        return None


def _has_ended(process: psutil.Process) -> bool:
    """Whether no thread of it is left: after a SIGKILL the first one is a zombie while others still hold its ports."""
    return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1


def send(site: Site, daemon: Daemon, number: signal.Signals) -> bool:
    """Send a signal to it. False if it does not run."""
    found = pid(site, daemon)
    if found is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(found, number)
    return True


def is_stopped(site: Site, daemon: Daemon) -> bool:
    """Whether each of its threads has taken the SIGSTOP: until then one may answer."""
    found = pid(site, daemon)
    if found is None:
        return True
    for thread in Path(f"/proc/{found}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if (thread / "stat").read_text().rpartition(")")[2].split()[0] != "T":
                return False
    return True


def wait_ended(site: Site, daemon: Daemon, timeout_s: float) -> bool:
    """Wait for its end. False if it still runs after that time."""
    deadline = time.monotonic() + timeout_s
    while pid(site, daemon) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def last_lines(site: Site, daemon: Daemon, count: int = 25) -> str:
    """The end of its log."""
    try:
        text = (site.logs / f"{daemon.name}.log").read_text(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-count:])


# What belongs to a cluster ------------------------------------------------------------------------


def marked(folder: Path) -> list[psutil.Process]:
    """Every living process of the cluster in that folder: daemons, containers, what they started."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARKER) != str(folder) or process.pid == os.getpid():
                continue
            if not _has_ended(process):
                found.append(process)
    return found


def end(site: Site) -> None:
    """End all of it at once; what the daemons had in mind is of no interest any more.

    Only those that make a class-data archive may end in their own way: they write it then.
    """
    making = [daemon for daemon in site.daemons if _draft(site, daemon).parent.is_dir()]
    for daemon in making:
        send(site, daemon, signal.SIGCONT)
        send(site, daemon, signal.SIGTERM)
    deadline = time.monotonic() + _ARCHIVE_S
    for daemon in making:
        if wait_ended(site, daemon, max(0.0, deadline - time.monotonic())):
            _keep_archive(site, daemon)
    kill_marked(site.folder)


def kill_marked(folder: Path, timeout_s: float = 20.0) -> None:
    """SIGKILL everything that belongs to the cluster in that folder, until there is nothing."""
    deadline = time.monotonic() + timeout_s
    while found := marked(folder):
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        reap(process.pid for process in found)
        if time.monotonic() > deadline:
            raise TimeoutError(f"cannot be killed: {[process.pid for process in found]}")
        time.sleep(_POLL_S)
    reap(list(_children))


def reap(pids: Iterable[int]) -> None:
    """Forget children of this process that have ended."""
    for number in pids:
        if number in _children and _children[number].poll() is not None:
            del _children[number]


def _pid_file(site: Site, daemon: Daemon) -> Path:
    return site.folder / "pids" / daemon.name


# Class-data archives: a JVM that maps its classes instead of parsing them is up in two thirds of the
# time. The first cluster of a version makes them, when it is stopped in order.


def prepare_archives(site: Site) -> None:
    """Choose the daemons of this cluster that make the archives that are missing."""
    for daemon in site.daemons:
        if daemon.kind in (Kind.KDC, Kind.KMS, Kind.ROUTER):
            continue
        if daemon.number == 1 and not _archive(site, daemon).exists():
            _draft(site, daemon).parent.mkdir(parents=True, exist_ok=True)


def _archive(site: Site, daemon: Daemon) -> Path:
    made_with = artifacts.java_version()
    place = artifacts.cache() / f"hadoop-{site.options.version}" / "archives"
    return place / f"{daemon.kind}-{made_with}.jsa"


def _draft(site: Site, daemon: Daemon) -> Path:
    return site.folder / "archives" / daemon.name / f"{daemon.kind}.jsa"


def _keep_archive(site: Site, daemon: Daemon) -> None:
    draft, final = _draft(site, daemon), _archive(site, daemon)
    if draft.exists():
        final.parent.mkdir(parents=True, exist_ok=True)
        # Another file system, perhaps: copied beside its place, then renamed.
        beside = final.with_name(f".{final.name}.{os.getpid()}")
        beside.write_bytes(draft.read_bytes())
        beside.replace(final)


def _native(site: Site) -> Path | str:
    return _lent(site) if site.options.nodes_as else artifacts.native() or ""


def _flags(site: Site, daemon: Daemon) -> list[str]:
    flags = [
        *_FLAGS,
        f"-Xmx{_HEAP_MIB[daemon.kind]}m",
        f"-Djdk.net.hosts.file={site.hosts_file}",
        f"-Djava.io.tmpdir={site.folder / 'tmp'}",
        f"-Dhadoop.log.dir={site.logs}",
        f"-Dyarn.log.dir={site.logs}",
    ]
    if daemon.kind is Kind.KMS:
        place = site.own_conf_dir(daemon)
        flags.append(f"-Dkms.config.dir={place}")
        flags.append(f"-Dlog4j.configuration=file:{place}/log4j.properties")
    if site.options.kerberos:
        flags.append(f"-Djava.security.krb5.conf={Kdc(site.realm_dir).configuration}")
    if daemon.kind is Kind.NODE_MANAGER:
        # As on a real site; without it a ``chmod`` is started for each file that is unpacked.
        flags.append(f"-Djava.library.path={_native(site)}")
    if _account(site, daemon):
        return flags  # the class-data archives are of another class path
    archive = _archive(site, daemon)
    if archive.exists():
        flags += [f"-XX:SharedArchiveFile={archive}"]
    elif _draft(site, daemon).parent.is_dir():
        flags += [f"-XX:ArchiveClassesAtExit={_draft(site, daemon)}"]
    return [*flags, "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
