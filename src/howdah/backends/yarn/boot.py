"""An agent's container: from YARN's launch script to `howdah.agent.main`.

Run as a file by an isolated interpreter (``python3 -I howdah/…/boot.py``) in the container's folder,
where YARN has linked what was shipped::

    runtime/  howdah/  conf/            Howdah's own (`howdah.backends.yarn.local_resources`)
    source/  environment/  <files>      the job's
    python/howdah/task.py               the programs' PYTHONPATH: `howdah.task` alone
    bin/python                          where the programs' interpreter has another name
    secrets/                            ca.pem, agent.pem, agent.key
    task/                               the programs' working folder
    launch.json                         what the agent is told

Exit code `howdah.backends.yarn.master.container_exit_status.BOOT_FAILED` means that no agent was begun; the reason is the
last thing on standard error, which the NodeManager puts into the container's diagnostics.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from howdah.agent.launch import AgentLaunch
    from howdah.backends.yarn.container_launch import ContainerLaunch

BOOT_FAILED = 90
"""As in `howdah.backends.yarn.master.container_exit_status`, which is not imported here."""
LAUNCH = "launch.json"
SECRETS = "secrets"
PYTHON_PATH = "python"
BIN = "bin"


class CannotBegin(Exception):
    """There will be no agent; the text is for the user."""


def main(here: Path, env: Mapping[str, str]) -> int:
    """Be the agent of the container in ``here``; returns the exit code."""
    try:
        entry, file, changes = prepare(here, env)
    except (CannotBegin, OSError, ValueError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return BOOT_FAILED
    os.environ.update(changes)
    for name in ("HOWDAH_LAUNCH", "PYTHONPATH", "PYTHONHOME"):
        os.environ.pop(name, None)
    return entry(str(file))


def prepare(here: Path, env: Mapping[str, str]) -> Any:
    """Everything before the agent begins: its function, its launch file, changes of environment.

    Raises:
        CannotBegin: what was shipped or told is of no use.
        OSError: the container's folder cannot be used.
    """
    import msgspec

    from howdah.agent.host.processes import MARKER, marker
    from howdah.backends.yarn import container_launch as launches
    from howdah.backends.yarn import secretfile
    from howdah.storage.files import write_private

    try:
        launch_order = launches.decode(env[launches.VARIABLE])
    except KeyError:
        raise CannotBegin(f"{launches.VARIABLE} is not set: this is started by a master") from None
    tokens = env.get(secretfile.LOCATION)
    if tokens is None:
        raise CannotBegin(f"{secretfile.LOCATION} is not set: YARN gave no credential file")
    secrets = secretfile.read(Path(tokens))
    secretfile.write(secrets, here / SECRETS)
    python_path(here)
    name_python(here, launch_order.python)
    put_beside(here, launch_order.files)
    launch = msgspec.structs.replace(
        complete(launch_order, here, env), secret=secrets.get(secretfile.CONTAINER, b"").decode()
    )
    changes = {**launch_order.env, MARKER: marker(launch.job_id, launch.container_id)}
    changes |= hadoop(launch_order, here, env)
    if launch_order.gpus:
        from howdah.backends.yarn import devices

        uuids, locks = devices.take(launch_order.gpus, env)
        launch = msgspec.structs.replace(launch, gpus=uuids or None, gpu_locks=locks)
    file = here / LAUNCH
    write_private(file, msgspec.json.encode(launch))
    return entry(launch_order.agent), file, changes


def complete(launch_order: ContainerLaunch, here: Path, env: Mapping[str, str]) -> AgentLaunch:
    """The launch with this container's folders."""
    import msgspec

    from howdah.backends.yarn.local_resources import SOURCE

    secrets = here / SECRETS
    logs = env.get("LOG_DIRS", "").split(",")[0]
    if not logs:
        raise CannotBegin("LOG_DIRS is not set: YARN gave no folder for logs")
    source = launch_order.launch.source
    return msgspec.structs.replace(
        launch_order.launch,
        ca=str(secrets / "ca.pem"),
        certificate=str(secrets / "agent.pem"),
        key=str(secrets / "agent.key"),
        work_dir=str(here),
        log_dir=logs,
        source=str(here / SOURCE) if (here / SOURCE).is_dir() else source,
        python_path=str(here / PYTHON_PATH),
    )


def python_path(here: Path) -> None:
    """A folder with `howdah.task` alone, for programs whose Python has no Howdah."""
    package = here / PYTHON_PATH / "howdah"
    package.mkdir(mode=0o700, parents=True, exist_ok=True)
    link(package / "task.py", Path(__file__).resolve().parents[2] / "task.py")


def put_beside(here: Path, names: Iterable[str]) -> None:
    """Put the job's files into the working folder, before the source: of two of one name these
    are meant, for they were named."""
    from howdah.agent.workfolder import TASK

    for name in names:
        (here / TASK).mkdir(mode=0o700, exist_ok=True)
        link(here / TASK / name, here / name)


def name_python(here: Path, python: str) -> None:
    """Make ``bin/python`` where the programs' interpreter is not one under its own name.

    Raises:
        CannotBegin: the environment that was shipped has no interpreter.
    """
    import shutil

    from howdah.agent.launch import HERE
    from howdah.backends.interpreter import answers_to_its_names, name
    from howdah.backends.yarn.local_resources import ENVIRONMENT

    found = python.replace(HERE, str(here))
    if "/" not in found:
        found = shutil.which(found) or ""
    elif python.startswith(f"{HERE}/{ENVIRONMENT}/") and not os.access(found, os.X_OK):
        found = in_environment(here / ENVIRONMENT)
    if found and os.access(found, os.X_OK) and not answers_to_its_names(found):
        name(here / BIN, found)


def in_environment(environment: Path) -> str:
    """The interpreter of an archive that only the node has looked into. If it is in a folder there, this folder
    becomes the environment: the programs' PATH begins with its ``bin``.

    Raises:
        CannotBegin: there is none, or no single one.
    """
    from howdah.backends.interpreter import NAMES

    def in_folder(folder: Path) -> list[Path]:
        places = (folder / "bin" / name for name in NAMES)
        return [place for place in places if os.access(place, os.X_OK)]

    if not (found := in_folder(environment)):
        below = sorted(folder for folder in environment.iterdir() if in_folder(folder))
        if not below:
            raise CannotBegin(
                "[environment] archive: there is no bin/python in it that runs here, neither at its top nor in a "
                "folder there"
            )
        if len(below) > 1:
            several = " and ".join(folder.name for folder in below)
            raise CannotBegin(f"[environment] archive: there is a bin/python in each of {several}")
        link(environment, below[0].resolve())
        found = in_folder(environment)
    return str(found[0])


def hadoop(launch_order: ContainerLaunch, here: Path, env: Mapping[str, str]) -> dict[str, str]:
    """What programs need to find HDFS: the node's own configuration, else the shipped one."""
    from howdah.backends.yarn.local_resources import CONF

    changes: dict[str, str] = {}
    # The node's may be for the NodeManager's user alone; nobody may search its folder then.
    own = os.path.join(env.get("HADOOP_CONF_DIR", ""), "core-site.xml")
    if not (os.path.isfile(own) and os.access(own, os.R_OK)):
        changes["HADOOP_CONF_DIR"] = str(here / CONF)
    if launch_order.classpath:
        from howdah.backends.yarn import classpath

        changes |= classpath.variables({**env, **changes})
    return changes


def link(place: Path, target: Path) -> None:
    """A symbolic link, new or as it was."""
    place.unlink(missing_ok=True)
    place.symlink_to(target)


def entry(name: str) -> Any:
    """The function ``module:function``."""
    import importlib

    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


if __name__ == "__main__":
    os.umask(0o077)
    root: str = os.path.abspath(__file__).split(os.sep + os.path.join("howdah", "backends"))[0]  # noqa: PTH100
    if root not in sys.path:
        sys.path.insert(0, root)
    sys.exit(main(Path.cwd(), os.environ))
