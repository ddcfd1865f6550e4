"""Hadoop's server jars from Maven Central, fetched once per user and version.

The cache is ``$XDG_CACHE_HOME/howdah-tests/hadoop-<version>/``: ``jars/``, ``name/`` (a formatted,
empty NameNode folder) and ``archives/`` (class-data archives). Each part is made in a folder beside
it and renamed when complete, under a file lock: another process, or one that was interrupted,
never sees half of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.hadoop.errors import ClusterError

SERVERS = (
    "hadoop-common",
    "hadoop-hdfs",
    "hadoop-hdfs-client",
    "hadoop-yarn-server-resourcemanager",
    "hadoop-yarn-server-nodemanager",
    "hadoop-yarn-server-web-proxy",
    "hadoop-yarn-client",
    # The ResourceManager's web application names its classes; its own pom does not.
    "hadoop-yarn-server-timelineservice",
)
_DOWNLOAD_S = 900
_TAIL = 12


def cache() -> Path:
    """The user's folder for everything that is worth keeping between test runs."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "howdah-tests"


def java() -> Path:
    """The ``java`` program: of JAVA_HOME, else on PATH. Raises ClusterError if there is none."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not found or not os.access(found, os.X_OK):
        raise ClusterError(
            f"the Hadoop tests need Java 17, and there is none ({found or 'no java on PATH'}). "
            "Install it (Debian: apt-get install openjdk-17-jre-headless maven) or set JAVA_HOME."
        )
    return Path(found).resolve()


def java_home() -> Path:
    """JAVA_HOME of that Java."""
    return java().parent.parent


def java_version() -> str:
    """Its exact version, as in the ``release`` file every JDK and JRE has."""
    try:
        release = (java_home() / "release").read_text()
    except OSError:
        release = ""
    told = re.search(r'^JAVA_RUNTIME_VERSION="([^"]+)"', release, re.M) or re.search(
        r'^JAVA_VERSION="([^"]+)"', release, re.M
    )
    return told[1] if told else java_home().name


def jars(version: str) -> list[Path]:
    """The servers' jars of that Hadoop, fetched if need be. Raises ClusterError if they cannot be."""
    return fetch(f"hadoop-{version}/jars", [f"org.apache.hadoop:{a}:{version}" for a in SERVERS])


def kms(version: str) -> list[Path]:
    """What the Key Management Server needs besides the servers' jars: few clusters have one."""
    others = {jar.name for jar in jars(version)}
    found = fetch(f"hadoop-{version}/kms", [f"org.apache.hadoop:hadoop-kms:{version}"])
    return [jar for jar in found if jar.name not in others]


def router() -> list[Path]:
    """What a router of HDFS needs besides the servers' jars. Of 3.4.1, the newest on Maven Central."""
    parts = ("hadoop-hdfs-rbf", "hadoop-federation-balance", "hadoop-distcp")
    found = fetch("hadoop-router", [f"org.apache.hadoop:{part}:3.4.1" for part in parts])
    return [jar for jar in found if jar.name.startswith(parts)]


def native() -> Path | None:
    """The folder of Hadoop's native library, which Maven Central has only inside Trino's jar.

    None where it has none for this machine's processor.
    """
    arch = {"x86_64": "Linux-amd64", "aarch64": "Linux-aarch64"}.get(platform.machine())
    if arch is None:
        return None

    def unpack(place: Path) -> None:
        found = fetch("hadoop-trino", ["io.trino.hadoop:hadoop-apache:3.3.5-3"])
        (jar,) = (jar for jar in found if jar.name.startswith("hadoop-apache"))
        with zipfile.ZipFile(jar) as packed:
            (place / "libhadoop.so").write_bytes(packed.read(f"nativelib/{arch}/libhadoop.so"))

    return once("hadoop-native", unpack)


def fetch(folder: str, coordinates: Sequence[str]) -> list[Path]:
    """Maven artifacts and all they need, in that folder of the cache; sorted paths.

    ``coordinates``: ``group:artifact:version`` or ``group:artifact:version:classifier``. What the folder was made from is part of its name,
    so that a changed list is fetched again.
    """
    digest = hashlib.sha256("\n".join(coordinates).encode()).hexdigest()[:8]
    made = once(f"{folder}-{digest}", lambda place: _copy_with_maven(coordinates, place))
    return sorted(made.glob("*.jar"))


def once(name: str, make: Callable[[Path], None]) -> Path:
    """A folder of the cache, made by ``make`` if it is not there yet.

    ``make`` gets an empty folder to fill. If it fails nothing is kept, and the next one tries.
    """
    place = cache() / name
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with locked(place.with_name(f"{place.name}.lock")):
        if not place.is_dir():
            for forgotten in place.parent.glob(f".{place.name}.*"):
                shutil.rmtree(forgotten, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as draft:
                inside = Path(draft) / "made"
                inside.mkdir()
                make(inside)
                inside.rename(place)
    return place


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on that file; the kernel gives it back if the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _copy_with_maven(coordinates: Sequence[str], place: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ClusterError(
            "the Hadoop tests fetch Hadoop with Maven, and there is no mvn on PATH. "
            "Install it (Debian: apt-get install maven)."
        )
    java()
    with tempfile.TemporaryDirectory(prefix="hwt-maven-") as project:
        (Path(project) / "pom.xml").write_text(_pom(coordinates))
        command = [maven, "-q", "-B", "-ntp", "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={place}"]
        try:
            done = subprocess.run(
                command,
                cwd=project,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_DOWNLOAD_S,
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(
                f"Maven did not fetch {', '.join(coordinates)} within {_DOWNLOAD_S} s. "
                "Is the repository reachable? A mirror is set in ~/.m2/settings.xml."
            ) from None
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        told = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines[:_TAIL]]
        raise ClusterError(
            f"Maven could not fetch {', '.join(coordinates)} (exit status {done.returncode}). "
            "Is the repository reachable? A mirror is set in ~/.m2/settings.xml.\n"
            + "\n".join(told)
        )


def _pom(coordinates: Sequence[str]) -> str:
    wanted: list[str] = []
    for each in coordinates:
        group, artifact, version, *classifier = each.split(":")
        wanted.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version>"
            f"{''.join(f'<classifier>{one}</classifier>' for one in classifier)}</dependency>"
        )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>local</groupId><artifactId>servers</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{''.join(wanted)}</dependencies></project>"
    )
