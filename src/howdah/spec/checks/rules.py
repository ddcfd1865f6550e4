"""What is wrong with a job of the right shape: one function a rule, none knows a framework."""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath
from typing import NamedTuple

from howdah.spec import secrets, units
from howdah.spec.model import Command, Job, Mode, Restart, Tracking
from howdah.spec.problems import KeyPath, Problems, closest, dotted, listed, one_of, shown

MIN_MEMORY = 16 << 20
MIN_LOG = 16 << 10
OWN_VARIABLES = "HOWDAH_"

JOB_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
ROLE_NAME = r"[A-Za-z]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
CONTAINER_ENV_UNSAFE = r'["\\`\n]|\$\('
"""What ends or breaks the line of a launch script that sets a variable; ``$NAME`` is expanded there."""
OF_THE_CONTAINER: Mapping[str, str] = {
    **dict.fromkeys(
        "CONTAINER_ID NM_HOST NM_PORT NM_HTTP_PORT LOCAL_DIRS LOCAL_USER_DIRS LOG_DIRS USER LOGNAME HOME PWD "
        "JVM_PID LOCALIZATION_COUNTERS HADOOP_TOKEN_FILE_LOCATION".split(),
        "YARN sets it in every container",
    ),
    "HADOOP_USER_NAME": "in a container it is who submitted the job",
    **dict.fromkeys(
        ("PATH", "PYTHONPATH", "PYTHONHOME"), "it would be Howdah's own process's, and no program's"
    ),
}
"""Names that ``hadoop.container-env`` cannot set, and why (``ContainerLaunch.sanitizeEnv``)."""
DOCKER = "YARN_CONTAINER_RUNTIME_"
"""What variables of a NodeManager's container runtimes begin with."""
DOCKER_TABLE: Mapping[str, str] = {
    "network": f"{DOCKER}DOCKER_CONTAINER_NETWORK",
    "ports": f"{DOCKER}DOCKER_PORTS_MAPPING",
    "tmpfs": f"{DOCKER}DOCKER_TMPFS_MOUNTS",
    "runtime": f"{DOCKER}DOCKER_RUNTIME",
    "client-config": f"{DOCKER}DOCKER_CLIENT_CONFIG",
    "delayed-removal": f"{DOCKER}DOCKER_DELAYED_REMOVAL",
}
"""Keys of ``[hadoop.docker]`` and the variables that say so (``DockerLinuxContainerRuntime``)."""
_NOT_OURS_TO_RUN = "the image's own program would run in the place of Howdah's"
NOT_IN_DOCKER: Mapping[str, str] = {
    f"{DOCKER}DOCKER_RUN_PRIVILEGED_CONTAINER": "such a container's programs are root on the node",
    f"{DOCKER}DOCKER_RUN_OVERRIDE_DISABLE": _NOT_OURS_TO_RUN,
    f"{DOCKER}DOCKER_SERVICE_MODE": _NOT_OURS_TO_RUN,
}
"""Variables of Docker's that no job may set to true, and why."""
VARIABLE_NAME = r"[A-Za-z_][A-Za-z0-9_]*"

_KEYS_OF_RESOURCES = {"yarn.io/gpu": "gpus", "memory-mb": "memory", "vcores": "cores"}
"""YARN's names of what a role has keys of its own for, by which it is counted, checked and isolated."""
_RESOURCE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?")
_MOUNT = re.compile(
    r"[^:\x00]+:[^:\x00]+(:(r[ow]|(r[ow]\+)?(r?shared|r?slave|r?private)))?"
)  # as DockerLinuxContainerRuntime's
_DOCKER_UNSAFE = re.compile(r"[\"$\\`\s,]")
_WORD = re.compile(r"[^\s,]+")


class Breach(NamedTuple):
    """A problem before it has a place in a file."""

    path: KeyPath
    message: str
    hint: str | None = None
    about: tuple[KeyPath, ...] = ()
    """Other values this was concluded from: it is no news if one of them is wrong already."""


def check(job: Job, problems: Problems) -> None:
    """Add what every rule finds, but nothing that only follows from a problem already known."""
    for rule in _RULES:
        for path, message, hint, about in rule(job):
            if problems.full:
                return
            if not any(problems.doubted(place) for place in (path, *about)):
                problems.add(path, message, hint)


def _names(job: Job) -> Iterator[Breach]:
    if not re.fullmatch(JOB_NAME, job.name):
        near = re.sub(r"[^A-Za-z0-9._-]+", "-", job.name).strip("._-")[:100]
        allowed = "use letters, digits, ., _ and -, beginning with a letter or digit, at most 100"
        hint = f"did you mean {shown(near)}?" if near else allowed
        yield Breach(("name",), f"{shown(job.name)} is no job name", hint)
    if not re.fullmatch(ROLE_NAME, job.framework):
        yield Breach(("framework",), f"{shown(job.framework)} is no framework")
    seen: dict[str, str] = {}
    for name in job.roles:
        path = ("roles", name)
        if not re.fullmatch(ROLE_NAME, name):
            hint = "use letters, digits, _ and -, beginning with a letter, at most 63"
            yield Breach(path, f"{shown(name)} is no role name", hint)
        other = seen.setdefault(name.lower(), name)
        if other != name:
            message = f"the role {other} has the same name but for capitals"
            yield Breach(path, message, "rename one: file systems may take them for the same")


def _commands(job: Job) -> Iterator[Breach]:
    about: tuple[KeyPath, ...] = (("command",), *(("roles", n, "command") for n in job.roles))
    roles = [("roles", name, role.command) for name, role in job.roles.items()]
    if job.command is None and not any(command is not None for _, _, command in roles):
        hint = 'write command = "python train.py", for the job or in each role'
        yield Breach((), "there is nothing to run: no command", hint, about)
    elif job.command is None and job.framework == "command":
        for _, name, command in roles:
            if command is None:
                hint = "give it a command, or give the job one that every such role runs"
                path = ("roles", name, "command")
                yield Breach(path, f"the role {name} has nothing to run", hint, about)
    yield from _command(("command",), job.command)
    for _, name, command in roles:
        yield from _command(("roles", name, "command"), command)
    if job.preprocess is not None:
        yield from _command(("preprocess", "command"), job.preprocess.command)


def _command(path: KeyPath, command: Command | None) -> Iterator[Breach]:
    program = command[0] if isinstance(command, list) and command else command
    if program is not None and (not program or not "".join(program).strip()):
        hint = 'write what is to be run, such as "python train.py"'
        yield Breach(path, "the command is empty", hint)


def _counts(job: Job) -> Iterator[Breach]:
    total = 0
    for name, role in job.roles.items():
        path = ("roles", name)
        low, high = units.instance_range(role.instances)
        total += high
        if low != high and role.restart is Restart.TASK and job.mode is Mode.GANG:
            message = 'an elastic role cannot have restart = "task" in a gang'
            hint = 'its gang restarts when tasks come or go; use "gang", or mode = "each"'
            yield Breach((*path, "restart"), message, hint, ((*path, "instances"),))
        if role.processes == "gpus" and role.gpus == 0:
            message = '"gpus" is one program for each GPU, and the role has no GPU'
            hint = f"set {dotted((*path, 'gpus'))}, or write a number"
            yield Breach((*path, "processes"), message, hint, ((*path, "gpus"),))
        for key, value, most in (
            ("processes", role.processes, 1024),
            ("cores", role.cores, 4096),
            ("gpus", role.gpus, 1024),
            ("ports", role.ports, 1000),
            ("attempts", role.attempts, 1_000_000),
        ):
            if isinstance(value, int) and value > most:
                yield Breach((*path, key), f"{value} is more than {most:,}")
        for resource, amount in role.resources.items():
            if not _RESOURCE_NAME.fullmatch(resource):
                hint = "write the cluster's name for it, such as yarn.io/fpga"
                message = f"{shown(resource)} is no name of a resource"
                yield Breach((*path, "resources", resource), message, hint)
            elif key := _KEYS_OF_RESOURCES.get(resource):
                message = f"{resource} is what the role's own key {key} asks for"
                value = f'"{amount}m"' if key == "memory" else amount
                hint = f"write {dotted((*path, key))} = {value}"
                yield Breach((*path, "resources", resource), message, hint)
    if total > units.MAX_TASKS:
        message = f"there are {total:,} tasks, more than {units.MAX_TASKS:,}"
        yield Breach(("roles",), message)
    if job.logs.segments > 1000:
        yield Breach(("logs", "segments"), f"{job.logs.segments} is more than 1000")


def _memory(job: Job) -> Iterator[Breach]:
    amounts: list[tuple[KeyPath, str | None]] = [
        (("roles", name, "memory"), role.memory) for name, role in job.roles.items()
    ]
    if job.preprocess is not None:
        amounts.append((("preprocess", "memory"), job.preprocess.memory))
    if job.tensorboard is not None:
        amounts.append((("tensorboard", "memory"), job.tensorboard.memory))
    for path, amount in amounts:
        if amount is not None and units.octets(amount) < MIN_MEMORY:
            message = f"{shown(amount)} is too little for any program"
            yield Breach(path, message, 'write at least "16m"; most need "1g" or more')
    if units.octets(job.logs.max_size) < MIN_LOG:
        message = f"{shown(job.logs.max_size)} keeps nothing of a log"
        yield Breach(("logs", "max-size"), message, 'write at least "16k"')


def _times(job: Job) -> Iterator[Breach]:
    common = job.timeouts
    limits: list[tuple[KeyPath, str | None]] = [
        (("timeouts", "allocation"), common.allocation),
        (("timeouts", "registration"), common.registration),
        (("timeouts", "startup"), common.startup),
        (("timeouts", "total"), common.total),
        (("timeouts", "hang"), common.hang),
        (("timeouts", "run"), common.run),
    ]
    graces: list[tuple[KeyPath, str]] = [(("timeouts", "stop-grace"), common.stop_grace)]
    for name, role in job.roles.items():
        own = role.timeouts
        path = ("roles", name, "timeouts")
        limits += [
            ((*path, "registration"), own.registration),
            ((*path, "startup"), own.startup),
            ((*path, "hang"), own.hang),
            ((*path, "run"), own.run),
        ]
        if own.stop_grace is not None:
            graces.append(((*path, "stop-grace"), own.stop_grace))
        if role.linger is not None:
            limits.append((("roles", name, "linger", "limit"), role.linger.limit))
    if job.preprocess is not None:
        limits.append((("preprocess", "timeout"), job.preprocess.timeout))
    for path, value in limits:
        if value is not None and units.seconds(value) == 0:
            yield Breach(path, f"{shown(value)} leaves no time at all", '"off" means no limit')
    for path, value in graces:
        if units.seconds(value) is None:
            message = '"off" would leave a program that ignores SIGTERM running for ever'
            yield Breach(path, message, 'write a time, such as "10s"')
    if units.seconds(common.hold) is None:
        message = '"off" would let two jobs each hold a part of the machines for ever'
        yield Breach(("timeouts", "hold"), message, 'write a time, such as "30s"')


def _order(job: Job) -> Iterator[Breach]:
    for name, role in job.roles.items():
        for key, others in (
            ("after", role.after),
            ("near", role.placement.near),
            ("together", role.placement.together),
            ("apart", role.placement.apart),
        ):
            path = ("roles", name, key) if key == "after" else ("roles", name, "placement", key)
            yield from _other_roles(job, name, path, key, others)
        if role.linger is not None:
            path = ("roles", name, "linger", "after")
            yield from _other_roles(job, name, path, "linger", role.linger.after)
            if not role.linger.after:
                message = "it names no role to come after, so its time would never begin"
                yield Breach(path, message, 'name the roles it goes on after, such as ["chief"]')
    after = {name: role.after for name, role in job.roles.items()}
    yield from _circle(after, ("after",), " waits for ")
    together = {name: role.placement.together for name, role in job.roles.items()}
    yield from _circle(together, ("placement", "together"), " needs the nodes of ")


def _circle(waits: Mapping[str, tuple[str, ...]], key: KeyPath, words: str) -> Iterator[Breach]:
    known = {
        name: [other for other in others if other in waits and other != name]
        for name, others in waits.items()
    }
    try:
        TopologicalSorter(known).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        # graphlib names what is waited for first; a reader expects "a waits for b".
        message = f"{words.join(reversed(circle))}: none of them would ever start"
        yield Breach(("roles", circle[0], *key), message, "remove one of these")


def _other_roles(
    job: Job, name: str, path: KeyPath, key: str, others: tuple[str, ...]
) -> Iterator[Breach]:
    known = [role for role in job.roles if role != name]
    for other, times in Counter(others).items():
        index = others.index(other)
        if times > 1:
            again = others.index(other, index + 1)
            yield Breach((*path, again), f"{shown(other)} is named twice", "remove one")
        if other == name:
            cannot = {
                "after": "wait for",
                "near": "be near",
                "together": "be together with",
                "apart": "be apart from",
                "linger": "go on after",
            }[key]
            message = f"the role {name} cannot {cannot} itself"
            yield Breach((*path, index), message, "name other roles, or leave the key out")
        elif other not in job.roles:
            near = closest(other, known)
            if near is None and job.framework != "command":
                continue  # a role the framework adds by itself, perhaps: it will judge
            others_are = f"the others are {listed(known)}" if known else "there is no other"
            hint = f"did you mean {shown(near)}?" if near else others_are
            about = (("roles", other),)
            yield Breach((*path, index), f"there is no role {shown(other)}", hint, about)


def _placement(job: Job) -> Iterator[Breach]:
    for name, role in job.roles.items():
        path = ("roles", name, "placement")
        if role.placement.spread and role.placement.pack:
            message = "spread and pack contradict each other"
            yield Breach(path, message, "keep one", ((*path, "spread"), (*path, "pack")))
        for other in sorted({*role.placement.near} & {*role.placement.apart}):
            message = f"{shown(other)} is to be both near and apart"
            yield Breach((*path, "apart"), message, "keep one")
        together = role.placement.together
        for other in sorted({*together} & {*role.placement.apart}):
            message = f"{shown(other)} is to be both together and apart"
            yield Breach((*path, "apart"), message, "keep one")
        for key in ("pack", "near", "racks"):
            if together and getattr(role.placement, key):
                message = "together says already which nodes there are to choose from"
                yield Breach((*path, key), message, f"remove {key}", ((*path, "together"),))
        for other in together:
            if role.prepare and other in job.roles and not job.roles[other].prepare:
                message = f"{shown(other)} has no containers before this role's have ended"
                yield Breach((*path, "together"), message, f"make {other} a prepare role too")


def _outcome(job: Job) -> Iterator[Breach]:
    decided = [role.tracking for role in job.roles.values()]
    if decided and not any(tracking in (None, Tracking.TRACKED) for tracking in decided):
        message = "no role decides when the job is done: none is tracked"
        about = tuple(("roles", name, "tracking") for name in job.roles)
        hint = 'give the role that trains tracking = "tracked", or leave tracking out'
        yield Breach(("roles",), message, hint, about)
    for name, role in job.roles.items():
        if role.prepare and role.tracking is Tracking.SIDECAR:
            message = "a sidecar prepares nothing: nobody waits for it"
            yield Breach(("roles", name, "prepare"), message, "remove one of the two")
        path = ("roles", name, "stop-on-failure")
        if role.stop_on_failure and role.tracking is Tracking.SIDECAR:
            message = "a sidecar never decides anything, so it cannot stop the job"
            yield Breach(path, message, 'remove it, or use tracking = "untracked"')
        if role.stop_on_failure and role.tolerate:
            message = "a failure of this role cannot both stop the job and be tolerated"
            yield Breach((*path[:2], "tolerate"), message, "remove one of the two")


def _variables(job: Job) -> Iterator[Breach]:
    tables: list[tuple[KeyPath, Mapping[str, str]]] = [(("env",), job.env)]
    tables += [(("roles", name, "env"), role.env) for name, role in job.roles.items()]
    tables.append((("secrets",), secrets.references(job)))
    tables.append((("hadoop", "container-env"), job.hadoop.container_env))
    if job.preprocess is not None:
        tables.append((("preprocess", "env"), job.preprocess.env))
    for path, variables in tables:
        for name in variables:
            if not re.fullmatch(VARIABLE_NAME, name):
                message = f"{shown(name)} is no name of an environment variable"
                hint = "use letters, digits and _, not beginning with a digit"
                yield Breach((*path, name), message, hint)
            elif name.startswith(OWN_VARIABLES):
                message = f"names that begin with {OWN_VARIABLES} are Howdah's own"
                yield Breach((*path, name), message, "choose another name")
    yield from _secrets(job)
    yield from _container_variables(job)


def _secrets(job: Job) -> Iterator[Breach]:
    others: list[tuple[KeyPath, Mapping[str, str]]] = [(("env",), job.env)]
    others += [(("roles", name, "env"), role.env) for name, role in job.roles.items()]
    for name, reference in secrets.references(job).items():
        if not secrets.REFERENCE.fullmatch(reference):
            message = "a secret's value does not belong into a job file"
            yield Breach(("secrets", name), message, 'write "${env:NAME}" or "${file:path}"')
        for path, variables in others:
            if name in variables:
                message = f"{dotted(path)} has the variable {name} too"
                yield Breach(("secrets", name), message, "remove one of them")


def _container_variables(job: Job) -> Iterator[Breach]:
    taken = {name: dotted(path) for path, name, _ in _of_docker(job)}
    for name, value in job.hadoop.container_env.items():
        path = ("hadoop", "container-env", name)
        if (why := OF_THE_CONTAINER.get(name)) is not None:
            yield Breach(path, why, "put it into [env], for the programs")
        elif name == "CLASSPATH" and job.hadoop.classpath:
            yield Breach(path, "hadoop.classpath sets it", "remove one of the two")
        elif name in taken and (name, value) != (f"{DOCKER}TYPE", "docker"):
            yield Breach(path, f"{taken[name]} sets it", "remove one of the two")
        elif name in NOT_IN_DOCKER and value.strip().lower() == "true":
            yield Breach(path, NOT_IN_DOCKER[name], "remove it")
        if (found := re.search(CONTAINER_ENV_UNSAFE, value)) is not None:
            message = f"YARN's launch scripts cannot carry {shown(found[0])}"
            yield Breach(path, message, "put the variable into [env]")


def _of_docker(job: Job) -> Iterator[tuple[KeyPath, str, tuple[str, ...]]]:
    """What the job's own keys say of images: key, the variable it becomes, its values."""
    for name, role in job.roles.items():
        if role.image is not None:
            yield ("roles", name, "image"), f"{DOCKER}TYPE", ()
            yield ("roles", name, "image"), f"{DOCKER}DOCKER_IMAGE", (role.image,)
        if role.mounts:
            yield ("roles", name, "mounts"), f"{DOCKER}DOCKER_MOUNTS", role.mounts
    for key, name in DOCKER_TABLE.items():
        value: object = getattr(job.hadoop.docker, key.replace("-", "_"))
        if isinstance(value, str):
            yield ("hadoop", "docker", key), name, (value,)
        elif value:
            ports_or_folders = (
                job.hadoop.docker.ports if key == "ports" else job.hadoop.docker.tmpfs
            )
            yield ("hadoop", "docker", key), name, () if value is True else ports_or_folders


def _docker(job: Job) -> Iterator[Breach]:
    for path, _, texts in _of_docker(job):
        for text in texts:
            found = _DOCKER_UNSAFE.search(text)
            if found is not None or not text:
                what = shown(found[0]) if found is not None else "nothing in it"
                yield Breach(path, f"{shown(text)} has {what}, which YARN cannot carry")
    for name, role in job.roles.items():
        path = ("roles", name, "mounts")
        if role.mounts and role.image is None:
            yield Breach(path, "they are of a Docker image, and the role has none", "add image")
        for index, mount in enumerate(role.mounts):
            if not _MOUNT.fullmatch(mount):
                hint = 'write one such as "/on/the/node:/in/the/image:ro"'
                yield Breach((*path, index), f"{shown(mount)} is no mount", hint)


def _network(job: Job) -> Iterator[Breach]:
    path = ("network", "ports")
    try:
        low, high = units.port_range(job.network.ports)
    except ValueError as error:
        message, _, hint = str(error).partition("; ")
        yield Breach(path, f"{shown(job.network.ports)} {message}", hint or None)
    else:
        wanted = max((role.ports or 1 for role in job.roles.values()), default=1)
        if high - low + 1 < wanted:
            message = f"{shown(job.network.ports)} has fewer ports than one task needs, {wanted}"
            yield Breach(path, message, "widen it")
    for key, value in (("address", job.network.address), ("interface", job.network.interface)):
        if value is not None and not _WORD.fullmatch(value):
            what = "an address or host name" if key == "address" else "the name of an interface"
            yield Breach(("network", key), f"{shown(value)} is not {what}")


def _folders(job: Job) -> Iterator[Breach]:
    if (checkpoint := job.checkpoint) is not None:
        if checkpoint.folder.rstrip("/") != ".":
            yield from _own_folder(("checkpoint", "folder"), checkpoint.folder)
        if job.in_place:
            message = "programs that run in-place keep their files where they are"
            hint = "leave [checkpoint] out, or in-place"
            yield Breach(("in-place",), f"{message}, so no checkpoints are saved", hint)
        settle = units.seconds(checkpoint.settle)
        if settle is None or settle > 3600:
            long = "would never take" if settle is None else "is too long before taking"
            message = f"{shown(checkpoint.settle)} {long} a file as finished"
            yield Breach(("checkpoint", "settle"), message, 'write a time, such as "500ms"')
        if not units.seconds(checkpoint.save_limit):
            off = checkpoint.save_limit == "off"
            why = "would let a store that hangs hold a job for ever" if off else "saves nothing"
            message = f"{shown(checkpoint.save_limit)} {why}"
            yield Breach(("checkpoint", "save-limit"), message, 'write a time, such as "30m"')
        for index, pattern in enumerate(checkpoint.ignore):
            path = ("checkpoint", "ignore", index)
            if not pattern or "/" in pattern:
                message = f"{shown(pattern)} is no pattern for a file's name"
                yield Breach(path, message, 'write one such as "*.tmp"')
            elif fnmatch.fnmatchcase("model-0001.data", pattern) and not pattern.strip("*"):
                yield Breach(path, f"{shown(pattern)} leaves no file to save")
    if job.outputs is not None:
        for index, folder in enumerate(job.outputs.folders):
            yield from _own_folder(("outputs", "folders", index), folder)
        for index, pattern in enumerate(
            () if job.outputs.keep == "all" else job.outputs.keep or ()
        ):
            if (
                not pattern.strip("/ ")
                or pattern.startswith(("/", "~"))
                or ".." in pattern.split("/")
            ):
                message = f"{shown(pattern)} is no pattern for files of the working folder"
                yield Breach(("outputs", "keep", index), message, 'write one such as "*.pt"')
    if job.tensorboard is not None and not job.tensorboard.folder.strip():
        yield Breach(("tensorboard", "folder"), "the folder's name is empty")
    if job.hadoop.python is not None and job.hadoop.runtime is not None:
        about = (("hadoop", "python"), ("hadoop", "runtime"))
        message = "python and runtime are both given"
        yield Breach(("hadoop",), message, "Howdah's own processes have one Python", about)
    sources = ("python", "requirements", "project", "venv", "archive")
    given = [key for key in sources if getattr(job.environment, key) is not None]
    if len(given) > 1:
        message = f"{one_of(given).replace(' or ', ' and ')} are given"
        about = tuple(("environment", key) for key in given)
        yield Breach(("environment",), message, "an environment has one source", about)


def _own_folder(path: KeyPath, folder: str) -> Iterator[Breach]:
    parts = PurePosixPath(folder)
    if not folder.strip() or not parts.parts:  # "./", too
        yield Breach(path, f"{shown(folder)} is no folder's name", 'write one, such as "out"')
    elif parts.is_absolute() or ".." in parts.parts or "://" in folder or folder[0] == "~":
        message = f"{shown(folder)} is not inside the task's working folder"
        hint = "write a path inside it; where it is saved to is another key, store"
        yield Breach(path, message, hint)


def _words(job: Job) -> Iterator[Breach]:
    """Single words that end up in a cluster's own lists."""
    lists: list[tuple[KeyPath, tuple[str, ...]]] = [
        (("tags",), job.tags),
        (("acl", "view"), job.acl.view),
        (("acl", "view-groups"), job.acl.view_groups),
        (("acl", "modify"), job.acl.modify),
        (("acl", "modify-groups"), job.acl.modify_groups),
    ]
    for path, words in lists:
        seen: set[str] = set()
        for index, word in enumerate(words):
            if not _WORD.fullmatch(word) or len(word) > 100:
                message = f"{shown(word)} is not one word"
                yield Breach((*path, index), message, "leave out spaces and commas")
            elif word in seen:
                yield Breach((*path, index), f"{shown(word)} is named twice", "remove one")
            elif word == "*" and path[-1] in ("view-groups", "modify-groups"):
                users = path[-1].removesuffix("-groups")
                hint = f'write {users} = ["*"] for everybody'
                yield Breach((*path, index), f"{shown(word)} is no group", hint)
            seen.add(word)
    singles: list[tuple[KeyPath, str | None]] = [(("queue",), job.queue), (("store",), job.store)]
    singles += [(("roles", name, "label"), role.label) for name, role in job.roles.items()]
    for path, word in singles:
        if word is not None and not word.strip():
            yield Breach(path, "the text is empty", "write a name, or leave the key out")


Rule = Callable[[Job], Iterator[Breach]]

_RULES: tuple[Rule, ...] = (
    _names,
    _commands,
    _counts,
    _memory,
    _times,
    _order,
    _placement,
    _outcome,
    _variables,
    _docker,
    _network,
    _folders,
    _words,
)
