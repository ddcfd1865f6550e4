"""Hadoop's configuration, read from the cluster's own XML files.

The rules are those of ``org.apache.hadoop.conf.Configuration``: later files win unless an earlier
value is final, the last of equal names in a file wins, ``${name}`` is replaced by another
property, ``${env.NAME}`` (with ``-default`` or ``:-default``) by the environment, includes are
followed.
"""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from howdah.hadoop import defaults
from howdah.hadoop.address import Address
from howdah.hadoop.errors import ConfigurationError
from howdah.hadoop.siteparser import Property, read_properties

FILES = ("core-site.xml", "hdfs-site.xml", "yarn-site.xml", "resource-types.xml")
"""What is read of a configuration folder, in this order."""

Service = Literal["client", "scheduler", "admin", "webapp"]

_VARIABLE = re.compile(r"\$\{([^}$ ]+)\}")
_MAX_SUBSTITUTIONS = 20  # as in Configuration.substituteVars
_DURATION = re.compile(r"([+-]?\d+)\s*([a-zA-Z]*)")
_SIZE = re.compile(r"([+-]?(?:0[xX][0-9a-fA-F]+|\d+))\s*([kKmMgGtTpPeE]?)[bB]?")
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}


class Value(NamedTuple):
    """A property as found: its raw text and the file it is from."""

    text: str
    source: str


class Configuration:
    """Properties by name, with typed access. Not changed after it was made."""

    def __init__(
        self, values: Mapping[str, str | Value], env: Mapping[str, str] | None = None
    ) -> None:
        """Values given here, over Hadoop's defaults; ``env`` is for ``${env.NAME}``."""
        self._env = dict(os.environ if env is None else env)
        self._values = {
            name: Value(text, "Hadoop's default") for name, text in defaults.VALUES.items()
        }
        for name, value in values.items():
            if isinstance(value, str):
                value = Value(value, "the given values")
            self._values[_DEPRECATED.get(name, name)] = value
        self._given = frozenset(_DEPRECATED.get(name, name) for name in values)
        self.folder: Path | None = None

    @classmethod
    def load(
        cls, folder: str | Path | None = None, env: Mapping[str, str] | None = None
    ) -> Configuration:
        """What a folder's XML files say.

        Without ``folder``: ``HADOOP_CONF_DIR``, else ``YARN_CONF_DIR``, else
        ``HADOOP_HOME/etc/hadoop``.

        Raises:
            ConfigurationError: there is no such folder, or a file can't be read.
        """
        env = os.environ if env is None else env
        path = Path(folder) if folder is not None else find_folder(env)
        if not path.is_dir():
            raise ConfigurationError(
                f"{path} is not a folder; HADOOP_CONF_DIR must name the one with core-site.xml"
            )
        merged: dict[str, Property] = {}
        found = False
        for name in FILES:
            if not (path / name).exists():
                continue
            found = True
            for item in read_properties(path / name):
                key = _DEPRECATED.get(item.name, item.name)
                before = merged.get(key)
                if before is None or not before.final:
                    merged[key] = item
        if not found:
            raise ConfigurationError(
                f"{path} has none of {', '.join(FILES)}; HADOOP_CONF_DIR must name the folder"
                " with the cluster's configuration"
            )
        result = cls({k: Value(p.value, p.source) for k, p in merged.items()}, env)
        result.folder = path
        return result

    def with_values(self, values: Mapping[str, str]) -> Configuration:
        """The same with other values for some properties."""
        given: dict[str, str | Value] = {name: self._values[name] for name in self._given}
        result = Configuration(given | dict(values), self._env)
        result.folder = self.folder
        return result

    def __contains__(self, name: str) -> bool:
        return _DEPRECATED.get(name, name) in self._values

    def says_the_same(self, other: Configuration) -> bool:
        """Whether both have the same properties from the same files."""
        return self._values == other._values

    def get(self, name: str, default: str = "") -> str:
        """The value with everything substituted and without blanks around it."""
        value = self._values.get(_DEPRECATED.get(name, name))
        return default if value is None else self.substitute(value.text).strip()

    def access_list(self, name: str, default: str = "*") -> tuple[frozenset[str], frozenset[str]]:
        """Users and groups of an access list: ``users groups``, where a blank in front means groups alone
        (``AccessControlList``)."""
        value = self._values.get(_DEPRECATED.get(name, name))
        text = default if value is None else self.substitute(value.text)
        users, _, groups = text.partition(" ")
        return _names(users), _names(groups)

    def source(self, name: str) -> str:
        """The file that a property is from, for messages."""
        value = self._values.get(_DEPRECATED.get(name, name))
        return "no file" if value is None else value.source

    def integer(self, name: str, default: int = 0) -> int:
        """A whole number, decimal or ``0x``.

        Raises:
            ConfigurationError: the value is something else.
        """
        text = self.get(name)
        if not text:
            return default
        try:
            return int(text, 16 if text.lower().lstrip("+-").startswith("0x") else 10)
        except ValueError:
            raise self.wrong(name, text, "a whole number") from None

    def number(self, name: str, default: float = 0.0) -> float:
        """A number with a fraction; errors as in `integer`."""
        text = self.get(name)
        try:
            return float(text) if text else default
        except ValueError:
            raise self.wrong(name, text, "a number") from None

    def boolean(self, name: str, default: bool = False) -> bool:
        """True or false; the default for anything else, as Hadoop has it."""
        return {"true": True, "false": False}.get(self.get(name).lower(), default)

    def list(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The parts of a list separated by commas or line ends, without empty ones."""
        if name not in self:
            return default
        parts = (part.strip() for part in re.split(r"[,\n]", self.get(name)))
        return tuple(part for part in parts if part)

    def duration_s(
        self, name: str, default: float = 0.0, unit: Literal["ms", "s", "m", "h", "d"] = "ms"
    ) -> float:
        """A time in seconds; ``unit`` is that of a bare number in this property.

        Raises:
            ConfigurationError: the value is no number with an optional ns, us, ms, s, m, h, d.
        """
        text = self.get(name)
        if not text:
            return default
        match = _DURATION.fullmatch(text)
        scale = _NANOSECONDS.get((match[2].lower() or unit) if match else "")
        if match is None or scale is None:
            raise self.wrong(name, text, "a time such as 500ms, 10s, 5m or 1d")
        return int(match[1]) * scale / 10**9

    def size(self, name: str, default: int = 0) -> int:
        """A number of bytes, with an optional k, m, g, t, p or e for powers of 1024.

        Raises:
            ConfigurationError: the value is something else.
        """
        text = self.get(name)
        if not text:
            return default
        match = _SIZE.fullmatch(text)
        if match is None:
            raise self.wrong(name, text, "a size such as 65536, 64k or 128m")
        power = " kmgtpe".index(match[2].lower() or " ")
        return int(match[1], 0 if "x" in match[1].lower() else 10) * 1024**power

    def as_dict(self) -> dict[str, str]:
        """All properties that were given (defaults not), substituted."""
        return {name: self.get(name) for name in sorted(self._given)}

    def wrong(self, name: str, text: str, wanted: str) -> ConfigurationError:
        """The error for a value that can't be used: says file, key and what is wanted."""
        return ConfigurationError(f"{self.source(name)}: {name} is {text!r}, but must be {wanted}")

    def substitute(self, text: str) -> str:
        """The text with ``${…}`` replaced; what has no value stays as it is.

        Raises:
            ConfigurationError: properties refer to each other without end.
        """
        for _ in range(_MAX_SUBSTITUTIONS):
            for match in _VARIABLE.finditer(text):
                value = self._variable(match[1])
                if value is not None:
                    text = text[: match.start()] + value + text[match.end() :]
                    break
            else:
                return text
        raise ConfigurationError(
            f"{text!r} still holds variables after {_MAX_SUBSTITUTIONS} substitutions;"
            " do properties refer to each other in a circle?"
        )

    def _variable(self, name: str) -> str | None:
        if name.startswith("env."):
            match = re.fullmatch(r"env\.([^:-]+)(?:(:?-)(.*))?", name)
            if match is None:
                return None
            value = self._env.get(match[1])
            if match[2] == ":-":
                return value or match[3]
            return match[3] if value is None else value
        if name == "user.name":
            return self._env.get("HADOOP_USER_NAME") or self._env.get("USER") or getpass.getuser()
        if name == "user.home":
            return self._env.get("HOME", "/")
        if name == "java.io.tmpdir":
            return "/tmp"  # noqa: S108 - Java's default; only read
        found = self._values.get(_DEPRECATED.get(name, name))
        return None if found is None else found.text

    # Where the servers are.

    @property
    def default_fs(self) -> str:
        """The URL of the default file system, without a slash at the end."""
        return self.get("fs.defaultFS").rstrip("/")

    @property
    def rm_ids(self) -> tuple[str, ...]:
        """The ids of several ResourceManagers; empty if there is one."""
        if not self.boolean("yarn.resourcemanager.ha.enabled"):
            return ()
        return self.list("yarn.resourcemanager.ha.rm-ids")

    def rm_addresses(self, service: Service = "client") -> tuple[Address, ...]:
        """Where the ResourceManagers serve clients, masters, administrators or browsers.

        Raises:
            ConfigurationError: an address is missing or malformed.
        """
        key, port = _RM_SERVICES[service]
        if service == "webapp" and self.get("yarn.http.policy").upper() == "HTTPS_ONLY":
            key, port = "yarn.resourcemanager.webapp.https.address", 8090
        ids = self.rm_ids
        if not ids:
            return (self.address(key, port),)
        return tuple(self._rm_address(key, port, rm_id) for rm_id in ids)

    def _rm_address(self, key: str, port: int, rm_id: str) -> Address:
        if f"{key}.{rm_id}" in self:
            return self.address(f"{key}.{rm_id}", port)
        host_key = f"yarn.resourcemanager.hostname.{rm_id}"
        if host := self.get(host_key):
            return Address(host, port)
        raise ConfigurationError(
            f"{self.source('yarn.resourcemanager.ha.rm-ids')}: yarn.resourcemanager.ha.rm-ids"
            f" has {rm_id!r}, but neither {key}.{rm_id} nor {host_key} is set"
        )

    def address(self, name: str, default_port: int | None = None) -> Address:
        """The address in a property.

        Raises:
            ConfigurationError: there is none, or it is malformed.
        """
        text = self.get(name)
        try:
            return Address.parse(text, default_port)
        except ValueError as error:
            raise ConfigurationError(f"{self.source(name)}: {name}: {error}") from None

    def name_nodes(self, url: str | None = None) -> tuple[Address, ...]:
        """The RPC addresses of the NameNodes of a file system (the default one).

        Raises:
            ConfigurationError: the URL is no ``hdfs://`` one, or names a service that is not
                configured.
        """
        url = url or self.default_fs
        parts = urlsplit(url)
        if parts.scheme != "hdfs" or not parts.netloc:
            raise ConfigurationError(
                f"{url!r} is not an hdfs:// URL with a host or name service"
                f" (fs.defaultFS in {self.source('fs.defaultFS')} is {self.default_fs!r})"
            )
        name = parts.netloc
        if name not in self.list("dfs.nameservices"):
            return (Address.parse(name, 8020),)
        ids = self.list(f"dfs.ha.namenodes.{name}")
        keys = [f"dfs.namenode.rpc-address.{name}.{i}" for i in ids]
        return tuple(
            self.address(key, 8020) for key in keys or [f"dfs.namenode.rpc-address.{name}"]
        )

    @property
    def security_enabled(self) -> bool:
        """The cluster demands Kerberos."""
        return self.get("hadoop.security.authentication", "simple").lower() == "kerberos"

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._given))


_RM_SERVICES: dict[Service, tuple[str, int]] = {
    "client": ("yarn.resourcemanager.address", 8032),
    "scheduler": ("yarn.resourcemanager.scheduler.address", 8030),
    "admin": ("yarn.resourcemanager.admin.address", 8033),
    "webapp": ("yarn.resourcemanager.webapp.address", 8088),
}

_DEPRECATED = {
    "fs.default.name": "fs.defaultFS",
    "dfs.encryption.key.provider.uri": "hadoop.security.key.provider.path",
    "dfs.federation.nameservices": "dfs.nameservices",
    "dfs.permissions": "dfs.permissions.enabled",
    "dfs.block.size": "dfs.blocksize",
    "dfs.http.address": "dfs.namenode.http-address",
}


def find_folder(env: Mapping[str, str]) -> Path:
    """The folder that the environment names.

    Raises:
        ConfigurationError: it names none.
    """
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        if folder := env.get(name):
            return Path(folder)
    if home := env.get("HADOOP_HOME"):
        return Path(home) / "etc" / "hadoop"
    raise ConfigurationError(
        "none of HADOOP_CONF_DIR, YARN_CONF_DIR and HADOOP_HOME is set; set HADOOP_CONF_DIR to the"
        " folder with the cluster's core-site.xml and yarn-site.xml"
    )


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",")) - {""}
