"""What a client has put on the cluster for one job: ``yarn.json`` in the job directory.

The client writes it at submission, the master reads it to start containers. Nothing in it is
secret; secrets travel in the containers' credential files.
"""

from __future__ import annotations

import enum

import msgspec

from howdah.agent.launch import HERE
from howdah.storage import layout

FILE = "yarn.json"

RUNTIME, HOWDAH, ENVIRONMENT, SOURCE, CONF = "runtime", "howdah", "environment", "source", "conf"
KEYTAB = layout.KEYTAB
"""Names of the links in a container's folder."""
CODE = f"{HOWDAH}/lib/python3/site-packages"
"""Where the package ``howdah`` is: as in `howdah.packing.python.runtime`, which is not imported here."""


class ResourceKind(enum.Enum):
    """What YARN does with a resource on the node (``LocalResourceType``)."""

    ARCHIVE = "archive"
    FILE = "file"


class Visibility(enum.Enum):
    """Who shares the localised copy on a node (``LocalResourceVisibility``)."""

    PUBLIC = "public"
    PRIVATE = "private"
    APPLICATION = "application"


class LocalResource(msgspec.Struct, frozen=True, kw_only=True):
    """One file on the cluster that YARN brings into containers."""

    name: str
    """Name of the link in the container's folder."""
    url: str
    size: int
    mtime_ms: int
    """YARN refuses a file whose size or time of change is another than told."""
    kind: ResourceKind = ResourceKind.ARCHIVE
    visibility: Visibility = Visibility.PRIVATE


class LocalResources(msgspec.Struct, frozen=True, kw_only=True):
    """All a master needs to know to start containers of this job."""

    application_id: str
    user: str
    """The submitter, whose HDFS identity all containers have."""
    runtime: tuple[LocalResource, ...]
    """Our interpreter (`RUNTIME`), our code (`HOWDAH`), the cluster's configuration (`CONF`)."""
    runtime_python: str = f"{HERE}/{RUNTIME}/bin/python3"
    """The interpreter of Howdah's own processes."""
    source: LocalResource | None = None
    environment: LocalResource | None = None
    python: str = "python3"
    """The programs' interpreter: inside `ENVIRONMENT`, a path on the nodes, or a name there."""
    files: dict[str, tuple[LocalResource, ...]] = {}
    """What else containers get, by role; ``""`` for all."""
    env: dict[str, str] = {}
    """Environment of every container, Howdah's and the programs' alike."""
    keytab: LocalResource | None = None
    """Who the master is by itself; only it gets the file, under the name `KEYTAB`."""
    principal: str = ""
    """Of the keytab."""
    classpath: bool = False
    """Programs need ``CLASSPATH`` and friends (`howdah.spec.model.Hadoop.classpath`)."""
