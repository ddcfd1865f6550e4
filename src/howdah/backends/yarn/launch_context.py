"""Launch contexts: what NodeManagers are told to bring, set and run for master and agents.

A NodeManager writes ``exec /bin/bash -c "<command>"`` and ``export NAME="<value>"`` into a shell
script without escaping (``ContainerLaunch``), so neither may hold ``" $ \\`` or a back-tick: what
needs them travels in `howdah.backends.yarn.container_launch`. The words of a command are quoted for bash.
``<LOG_DIR>`` in a command becomes the container's folder of logs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from howdah.agent.launch import HERE
from howdah.backends.base import BackendError, RoleResources
from howdah.backends.yarn import container_launch as launches
from howdah.backends.yarn.container_launch import ContainerLaunch
from howdah.backends.yarn.local_resources import (
    CODE,
    CONF,
    KEYTAB,
    LocalResource,
    LocalResources,
    ResourceKind,
    Visibility,
)
from howdah.hadoop.protos import yarn
from howdah.hadoop.security.credentials import AMRM_TOKEN, Credentials
from howdah.spec.checks.rules import DOCKER, DOCKER_TABLE
from howdah.spec.model import Acl, Docker, Hadoop

AGENT_LOG = "agent.log"
MASTER_LOG = "master.log"
STANDARD_ERROR = "stderr"
"""NodeManagers put the end of files of this name into diagnostics
(``yarn.nodemanager.container.stderr.pattern``)."""

_UNSAFE = re.compile(r"[\"$\\`\n]")
_KINDS = {ResourceKind.ARCHIVE: 1, ResourceKind.FILE: 2}  # LocalResourceTypeProto
_VISIBILITIES = {Visibility.PUBLIC: 1, Visibility.PRIVATE: 2, Visibility.APPLICATION: 3}
_VIEW, _MODIFY = 1, 2  # ApplicationAccessTypeProto


def master(
    local_resources: LocalResources, job_url: str, credentials: Credentials, acl: Acl
) -> yarn.ContainerLaunchContextProto:
    """The first container's: the job's coordinator.

    ``credentials`` are the tokens it needs and `secretfile.of_folder` of all the job's secrets.

    Raises:
        BackendError: something in it cannot be written into a launch script.
    """
    python = _inside(local_resources.runtime_python)
    command = (
        f"exec {python} -m howdah.coordinator --job {shlex.quote(job_url)}"
        f" 1><LOG_DIR>/{MASTER_LOG} 2><LOG_DIR>/{STANDARD_ERROR}"
    )
    env = {
        **local_resources.env,
        "HADOOP_USER_NAME": local_resources.user,
        "HADOOP_CONF_DIR": CONF,
        "PYTHONPATH": CODE,
        "PYTHONUNBUFFERED": "1",
    }
    shipped = [*local_resources.runtime]
    if local_resources.keytab is not None:
        shipped.append(local_resources.keytab)
        # Where no token is good any more, after a week, the system's library gets a ticket with the key.
        env |= {"KRB5_CLIENT_KTNAME": f"FILE:{KEYTAB}", "KRB5CCNAME": "MEMORY:howdah"}
    return _context(command, env, shipped, credentials.to_bytes(), acl)


def agent(
    local_resources: LocalResources,
    role: str,
    resources: RoleResources,
    launch: ContainerLaunch,
    credentials: bytes,
    acl: Acl,
    hadoop: Hadoop,
) -> yarn.ContainerLaunchContextProto:
    """An agent's container.

    ``credentials`` are the bytes `for_agents` makes; ``hadoop`` is the job file's.

    Raises:
        BackendError: something in it cannot be written into a launch script.
    """
    python = _inside(local_resources.runtime_python)
    # As a file and isolated: nothing of the node's or the user's Python gets into the agent.
    command = (
        f"exec {python} -I ./{CODE}/howdah/backends/yarn/boot.py"
        f" 1><LOG_DIR>/{AGENT_LOG} 2><LOG_DIR>/{STANDARD_ERROR}"
    )
    files = [*local_resources.files.get("", ()), *local_resources.files.get(role, ())]
    launch = msgspec.structs.replace(
        launch,
        python=local_resources.python,
        files=tuple(each.name for each in files),
        gpus=resources.gpus,
        classpath=local_resources.classpath,
        env=local_resources.env | launch.env,
    )
    env = {"HADOOP_USER_NAME": local_resources.user, launches.VARIABLE: launches.encode(launch)}
    env |= docker(resources, hadoop.docker)
    shipped = [
        *local_resources.runtime,
        *(
            each
            for each in (local_resources.source, local_resources.environment)
            if each is not None
        ),
        *files,
    ]
    context = _context(command, env, shipped, credentials, acl)
    for name, value in hadoop.container_env.items():
        # Expanded by the node; `howdah.spec.checks.rules` has looked at it, and refused names of ours.
        if name not in env:
            context.environment.add(key=name, value=value)
    return context


def for_agents(credentials: Credentials, secrets: Mapping[str, bytes]) -> bytes:
    """An agent's credential file: the master's tokens but its own, and the agent's secrets.

    Whoever has the AMRM token is the master.
    """
    tokens = {
        alias: token for alias, token in credentials.tokens.items() if token.kind != AMRM_TOKEN
    }
    return Credentials(tokens, dict(secrets)).to_bytes()


def docker(resources: RoleResources, table: Docker) -> dict[str, str]:
    """What the NodeManager's Docker runtime wants to know (``DockerLinuxContainerRuntime``)."""
    if resources.image is None:
        return {}
    env = {
        f"{DOCKER}TYPE": "docker",
        f"{DOCKER}DOCKER_IMAGE": resources.image,
    }
    if resources.mounts:
        env[f"{DOCKER}DOCKER_MOUNTS"] = ",".join(resources.mounts)
    for key, name in DOCKER_TABLE.items():
        value: str | bool | tuple[str, ...] | None = getattr(table, key.replace("-", "_"))
        if value:
            joined = ",".join(value) if isinstance(value, tuple) else str(value)
            env[name] = "true" if value is True else joined
    return env


def url(text: str) -> yarn.URLProto:
    """A URL as YARN's records have it (``URL.fromPath``)."""
    parts = urlsplit(text)
    # To Hadoop all that follows the authority is the path: names may have ? and #.
    path = text[text.index(parts.netloc) + len(parts.netloc) :] if parts.netloc else parts.path
    proto = yarn.URLProto(scheme=parts.scheme, file=path, port=parts.port or -1)
    user, _, place = parts.netloc.rpartition("@")
    host = place.rpartition(":")[0] if parts.port is not None else place
    if host:
        proto.host = host  # as it is written: a name service's name has upper and lower case
    if user:
        proto.userInfo = user
    return proto


def local_resource(shipped: LocalResource) -> yarn.LocalResourceProto:
    """How a NodeManager is told to bring a file."""
    return yarn.LocalResourceProto(
        resource=url(shipped.url),
        size=shipped.size,
        timestamp=shipped.mtime_ms,
        type=_KINDS[shipped.kind],
        visibility=_VISIBILITIES[shipped.visibility],
    )


def access(acl: Acl) -> dict[int, str]:
    """Access lists by kind, as YARN writes them: users with commas, a space, groups with commas."""
    lists = {_VIEW: (acl.view, acl.view_groups), _MODIFY: (acl.modify, acl.modify_groups)}
    return {
        kind: "*" if "*" in users else f"{','.join(users)} {','.join(groups)}"
        for kind, (users, groups) in lists.items()
        if users or groups
    }


def _context(
    command: str, env: Mapping[str, str], shipped: Iterable[LocalResource], tokens: bytes, acl: Acl
) -> yarn.ContainerLaunchContextProto:
    _check_safe("the command of a container", command)
    context = yarn.ContainerLaunchContextProto(command=[command], tokens=tokens)
    for name, value in env.items():
        _check_safe(f"the environment variable {name}", value)
        context.environment.add(key=name, value=value)
    for each in shipped:
        context.localResources.add(key=each.name, value=local_resource(each))
    for kind, text in access(acl).items():
        context.application_ACLs.add(accessType=kind, acl=text)
    return context


def _inside(path: str) -> str:
    return shlex.quote(path.replace(HERE, "."))


def _check_safe(what: str, text: str) -> None:
    found = _UNSAFE.search(text)
    if found is not None:
        raise BackendError(
            f"{what} holds {found[0]!r}, which YARN's launch scripts cannot carry: {text!r}."
            ' Leave " $ \\ ` and new lines out of it'
        )


__all__: Sequence[str] = (
    "AGENT_LOG",
    "MASTER_LOG",
    "STANDARD_ERROR",
    "access",
    "agent",
    "docker",
    "for_agents",
    "local_resource",
    "master",
    "url",
)
