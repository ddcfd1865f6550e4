"""Names of ViewFs, the one file system that a mount table in the configuration makes of several.

Only names: `resolve` says where on which file system that is which a ``viewfs://`` URL names, for
clients that know no ViewFs. Not guaranteed: that what is listed there is all. What the table links
to *below* a folder is not in that folder.

Source: ``org.apache.hadoop.fs.viewfs.InodeTree``.
"""

from __future__ import annotations

import posixpath

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import ConfigurationError

_SCHEME = "viewfs:"
_TABLES = "fs.viewfs.mounttable"
_PLAIN = "link"
_ROOTS = ("linkFallback", "linkMergeSlash")


def is_viewfs(url: str) -> bool:
    """Whether the URL has to be resolved."""
    return url.startswith(_SCHEME)


def resolve(url: str, configuration: Configuration) -> str:
    """The URL of the same place on the file system it is on; any other URL as it is.

    Raises:
        ConfigurationError: no link leads there, or one that leads to several places (``linkMerge``,
            ``linkNfly``), or the table has rules (``linkRegex``).
    """
    if not is_viewfs(url):
        return url
    table, path = _split(url, configuration)
    links = _links(table, configuration)
    mount = max(
        (each for each in links if f"{path}/".startswith(f"{each}/")), key=len, default=None
    )
    if mount is None:
        known = ", ".join(sorted(links)) or "none"
        raise ConfigurationError(
            f"{url} is below no link of the mount table {table!r} ({_TABLES}.{table}.link.*, of"
            f" {configuration.folder or 'the given values'}); its links are: {known}"
        )
    target, kind = links[mount]
    if kind not in (_PLAIN, *_ROOTS):
        raise _not_one_place(url, kind, table)
    return f"{target.rstrip('/')}{'' if path == '/' else path.removeprefix(mount)}"


def homes(url: str, configuration: Configuration) -> str:
    """The folder of the users' homes on that file system (``/user``)."""
    if not is_viewfs(url):
        return "/user"
    table, _ = _split(url, configuration)
    return configuration.get(f"{_TABLES}.{table}.homedir", "/user").rstrip("/")


def targets(url: str, configuration: Configuration) -> list[str]:
    """What that file system's links lead to; itself, if it is no ViewFs."""
    if not is_viewfs(url):
        return [url]
    table, _ = _split(url, configuration)
    found: set[str] = set()
    for target, kind in _links(table, configuration).values():
        # Of links to several places the value lists them.
        found |= {target} if kind in (_PLAIN, *_ROOTS) else set(target.split(","))
    return sorted(found)


def _split(url: str, configuration: Configuration) -> tuple[str, str]:
    """The mount table and the path, absolute and normal."""
    table, path = _parts(url)
    if not table and is_viewfs(configuration.default_fs):
        table, _ = _parts(configuration.default_fs)
    table = table or configuration.get(f"{_TABLES}.default.name.key", "default")
    return table, posixpath.normpath(f"/{path.lstrip('/')}")


def _parts(url: str) -> tuple[str, str]:
    """What a URL says, which may be no table."""
    rest = url.removeprefix(_SCHEME)
    if not rest.startswith("//"):
        return "", rest
    table, _, path = rest.removeprefix("//").partition("/")
    return table, path


def _links(table: str, configuration: Configuration) -> dict[str, tuple[str, str]]:
    """Target and kind by where they are mounted; the root is the empty name."""
    prefix = f"{_TABLES}.{table}."
    found: dict[str, tuple[str, str]] = {}
    for name in configuration:
        kind, _, place = name.removeprefix(prefix).partition(".")
        if name.startswith(prefix) and kind.startswith(_PLAIN):
            if kind == "linkRegex":  # it may match any path, and comes before all others
                raise _not_one_place(f"viewfs://{table}", kind, table)
            mount = place[place.find("/") :].rstrip("/")  # of linkNfly settings come first
            found["" if kind in _ROOTS else mount] = configuration.get(name), kind
    return found


def _not_one_place(url: str, kind: str, table: str) -> ConfigurationError:
    return ConfigurationError(
        f"{url} cannot be resolved: the mount table {table!r} has a {kind}, which is more than a name of"
        " one place; give the hdfs:// URL that is meant"
    )
