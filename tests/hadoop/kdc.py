"""A Kerberos realm of a cluster's own: a KDC (MIT) without privileges, its principals, their keys.

Nothing of the machine's own Kerberos is read or changed: the database, the configuration and the keys
are files of the cluster's folder, and the KDC listens on a port of the cluster's block.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.hadoop.errors import ClusterError
from tests.hadoop.site import STANDBY_HOST

REALM = "HOWDAH.TEST"
HOST = "localhost"
"""Name of 127.0.0.1, in the daemons' principals: what ``_HOST`` becomes."""
SERVICES = (
    *(f"{name}/{HOST}" for name in ("nn", "dn", "rm", "nm", "HTTP")),
    *(f"{name}/{STANDBY_HOST}" for name in ("rm", "HTTP")),
)
USERS = ("alice", "bob", "carol", "gateway", "hdfs")
"""``gateway`` may impersonate others; ``hdfs`` has the NameNode's short name, its superuser. ``carol``'s is that of
the account which daemons and containers run as."""
SHORT = {"nn": "hdfs", "dn": "hdfs", "rm": "yarn", "nm": "yarn", "alice": "ally"}
"""Short names that differ from the principal's first part (``hadoop.security.auth_to_local``)."""

TOOLS = "HOWDAH_KRB5"
"""Environment variable with the folder that `tests/tools/ensure_kerberos` has unpacked, if it had to."""
_BINARIES = ("usr/sbin", "usr/bin")
_MISSING = """\
the tests of Kerberos need MIT Kerberos' KDC and tools, and there is no {program}.
`make test` unpacks Debian's into .krb5 where apt-get is; else install them as root (Debian:
apt-get install krb5-kdc krb5-admin-server krb5-user; Fedora: dnf install krb5-server
krb5-workstation)."""

_CLIENT = """\
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
clockskew = 300
[realms]
{realm} = {{
kdc = 127.0.0.1:{port}
}}
[domain_realm]
{host} = {realm}
{plugins}"""
_SERVER = """\
[kdcdefaults]
kdc_listen = ""
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
database_name = {folder}/principal
key_stash_file = {folder}/stash
acl_file = {folder}/acl
max_life = 1d
max_renewable_life = 7d
supported_enctypes = aes256-cts-hmac-sha1-96:normal
master_key_type = aes256-cts-hmac-sha1-96
}}
[logging]
kdc = FILE:{folder}/kdc.log
"""


class Kdc:
    """The realm in a folder. The KDC itself is one of the cluster's daemons (`tests.hadoop.daemons`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def configuration(self) -> Path:
        """``krb5.conf`` for servers and clients."""
        return self.folder / "krb5.conf"

    def env(self) -> dict[str, str]:
        """Variables with which programs find this realm and no other, and no user's tickets."""
        return {
            **_libraries(),
            "KRB5_CONFIG": str(self.configuration),
            "KRB5CCNAME": f"FILE:{self.folder}/no-tickets",
        }

    def create(self, port: int) -> None:
        """Make the database, the principals and their keytabs. Raises ClusterError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        root = os.environ.get(TOOLS)
        plugins = f"[dbmodules]\ndb_module_dir = {_plugins(Path(root))}\n" if root else ""
        values = {"realm": REALM, "host": HOST, "port": port, "folder": self.folder}
        self.configuration.write_text(_CLIENT.format(**values, plugins=plugins))
        (self.folder / "kdc.conf").write_text(_SERVER.format(**values))
        self._run("kdb5_util", "create", "-s", "-W", "-r", REALM, "-P", "master")
        # One program for all: a start of it takes longer than what it does.
        orders = [f"addprinc -randkey {name}" for name in (*SERVICES, *USERS)]
        orders += [f"ktadd -norandkey -k {self.services} {name}" for name in SERVICES]
        orders += [f"ktadd -norandkey -k {self.keytab(name)} {name}" for name in USERS]
        self._run("kadmin.local", input="\n".join(orders) + "\n")
        missing = [name for name in USERS if not self.keytab(name).exists()]
        if missing or not self.services.exists():
            raise ClusterError(f"kadmin.local has made no keytab of {missing or SERVICES}")

    @property
    def services(self) -> Path:
        """Keys of all daemons."""
        return self.folder / "services.keytab"

    def keytab(self, name: str) -> Path:
        """Keys of a user."""
        return self.folder / f"{name}.keytab"

    def command(self) -> list[str]:
        """The KDC's own, in the foreground."""
        return [program("krb5kdc"), "-n"]

    def server_env(self) -> dict[str, str]:
        """Variables of KDC and administration."""
        return {**self.env(), "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}

    def kinit(self, name: str, cache: Path, *options: str) -> dict[str, str]:
        """Get a ticket into that file; the environment that uses it. Raises ClusterError."""
        self._run("kinit", *options, "-c", str(cache), "-k", "-t", str(self.keytab(name)), name)
        return {**self.env(), "KRB5CCNAME": f"FILE:{cache}"}

    def _run(self, name: str, *arguments: str, input: str = "") -> None:
        done = subprocess.run(
            [program(name), *arguments],
            input=input,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **self.server_env()},
        )
        if done.returncode:
            raise ClusterError(f"{name} {' '.join(arguments)}: {done.stderr.strip()}")


def program(name: str) -> str:
    """Path of one of Kerberos' programs. Raises ClusterError, saying what to install."""
    found = shutil.which(name, path=os.pathsep.join(map(str, _folders())))
    if found is None:
        raise ClusterError(_MISSING.format(program=name))
    return found


def _folders() -> Iterable[Path | str]:
    if root := os.environ.get(TOOLS):
        yield from (Path(root) / each for each in _BINARIES)
    yield os.environ.get("PATH", os.defpath)
    yield from (f"/{each}" for each in _BINARIES)  # Debian's users have no sbin on PATH


def _libraries() -> dict[str, str]:
    root = os.environ.get(TOOLS)
    return {"LD_LIBRARY_PATH": f"{root}/libraries"} if root else {}


def _plugins(root: Path) -> Path:
    found = next(root.glob("usr/lib/**/plugins/kdb/db2.so"), None)
    if found is None:
        raise ClusterError(f"{root} has no database module of the KDC; remove the folder")
    return found.parent
