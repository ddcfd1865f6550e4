"""TonY's configuration from everywhere it is looked for, the strongest on top.

Precedence, as `TonyClient.initTonyConf` leaves it: ``-conf`` on the command line, then
``$TONY_CONF_DIR/tony-site.xml``, then the file of ``-conf_file`` (or ``tony.xml``), then TonY's
defaults, which are in `howdah.compat.tony.table` and are not repeated here.
"""

from __future__ import annotations

import enum
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import ConfigurationError
from howdah.hadoop.siteparser import Property, read_properties
from howdah.spec.problems import JobFileError, JobFileProblem

CONF_DIR = "TONY_CONF_DIR"
SITE_FILE = "tony-site.xml"
_MOST_BYTES = 64 << 20
APPENDING = ("tony.containers.envs", "tony.execution.envs", "tony.containers.resources")
"""``-conf`` adds to these (TonyConfigurationKeys.MULTI_VALUE_CONF)."""


class SettingSource(enum.Enum):
    """Who set a key."""

    SITE = "site"
    FILE = "file"
    COMMAND_LINE = "command line"


class Setting(msgspec.Struct, frozen=True):
    """The value in force."""

    text: str
    source: SettingSource
    place: str
    """The file, or the option."""


class Settings:
    """Keys that somebody set, with the values in force."""

    def __init__(self, values: Mapping[str, Setting]) -> None:
        self._values = dict(values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __getitem__(self, key: str) -> Setting:
        return self._values[key]

    def get(self, key: str) -> Setting | None:
        """The setting, if the key is set to something."""
        found = self._values.get(key)
        return found if found is not None and found.text.strip() else None


def read(
    file: Path | str | None, given: Sequence[str] = (), env: Mapping[str, str] = os.environ
) -> Settings:
    """The settings of a job.

    Args:
        file: the job's own file, such as ``tony.xml``; a URL as text.
        given: ``key=value`` of each ``-conf``, in their order.

    Raises:
        JobFileError: a file cannot be read, or is no Hadoop configuration.
    """
    found: dict[str, Property] = {}
    site = _site_file(env)
    for path in (file, site):
        for item in _properties(path) if path is not None else ():
            before = found.get(item.name)
            if before is None or not before.final or before.source == item.source:
                found[item.name] = item
    resolved = _resolved(found, env)
    values = {
        name: Setting(
            resolved[name],
            SettingSource.SITE
            if site is not None and item.source == str(site)
            else SettingSource.FILE,
            item.source,
        )
        for name, item in found.items()
    }
    for entry in given:
        key, _, text = entry.partition("=")
        key = key.strip()
        before = values.get(key)
        if key in APPENDING and before is not None and before.text.strip():
            text = f"{before.text},{text}"
        values[key] = Setting(text, SettingSource.COMMAND_LINE, "--conf")
    return Settings(values)


def _resolved(found: Mapping[str, Property], env: Mapping[str, str]) -> dict[str, str]:
    """The values with what they refer to in place."""
    raw = Configuration({name: item.value for name, item in found.items()}, env)
    values: dict[str, str] = {}
    problems: list[JobFileProblem] = []
    for name, item in found.items():
        try:
            values[name] = raw.get(name)
        except ConfigurationError as error:
            problems.append(
                JobFileProblem(file=item.source, key=name, value=item.value, message=str(error))
            )
    if problems:
        raise JobFileError(problems)
    return values


def _site_file(env: Mapping[str, str]) -> Path | None:
    folder = env.get(CONF_DIR)
    path = Path(folder) / SITE_FILE if folder else None
    return path if path is not None and path.is_file() else None


def _properties(path: Path | str) -> list[Property]:
    if isinstance(path, str):
        return _remote_properties(path)
    if not path.is_file():
        hint = "name the TonY configuration, such as tony.xml"
        raise JobFileError(
            [JobFileProblem(file=str(path), message="there is no such file", hint=hint)]
        )
    try:
        return read_properties(path)
    except ConfigurationError as error:
        raise JobFileError([JobFileProblem(file=str(path), message=str(error))]) from error


def _remote_properties(url: str) -> list[Property]:
    from howdah.storage.stores.destinations import open_destination

    folder, _, name = url.rpartition("/")
    try:
        data = open_destination(folder).read(name, 0, _MOST_BYTES)
    except Exception as error:  # whatever an fsspec implementation raises
        message = f"it cannot be read: {error or type(error).__name__}"
        hint = "name a TonY configuration that can be read from here"
        raise JobFileError([JobFileProblem(file=url, message=message, hint=hint)]) from error
    with tempfile.TemporaryDirectory(prefix="howdah-tony-") as here:
        copy = Path(here, "tony.xml")
        copy.write_bytes(data)
        try:
            found = read_properties(copy)
        except ConfigurationError as error:
            message = str(error).replace(str(copy), url)
            raise JobFileError([JobFileProblem(file=url, message=message)]) from error
    return [item._replace(source=url) for item in found]
