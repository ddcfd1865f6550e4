"""TensorFlowOnSpark's ``util``: addresses, the search path, the environment of a lone process."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from howdah.backends.yarn import classpath
from howdah.compat.tensorflowonspark import gpu_info

EXECUTOR_ID_FILE = "executor_id"
CLASSPATH_UPDATED = "TFOS_CLASSPATH_UPDATED"
"""Variable that says that ``CLASSPATH`` has Hadoop's classes already."""


def single_node_env(num_gpus: int = 1, worker_index: int = -1, nodes: Sequence[str] = ()) -> None:
    """The environment of a process that works on its own: Hadoop's classes (`find_hadoop`), and its
    GPUs in ``CUDA_VISIBLE_DEVICES``.

    Where no GPU is (or none is wanted) it is set to nothing, so that frameworks use the CPU. Where
    the cluster has given this process its GPUs already, the first ``num_gpus`` of those are used.

    Args:
        num_gpus: how many.
        worker_index: this process among all; -1: any free GPUs.
        nodes: ``host:port`` of all processes, so that those of one host take different GPUs.
    """
    find_hadoop()
    given = gpu_info.given()
    if given:
        chosen = given[: max(num_gpus, 0)]
    elif num_gpus > 0 and gpu_info.is_gpu_available():
        index = place_on_host(nodes, worker_index) if nodes and worker_index >= 0 else worker_index
        chosen = gpu_info.get_gpus(num_gpus, index, format=gpu_info.AS_LIST)
    else:
        chosen = []
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(chosen)


def find_hadoop() -> None:
    """Set ``CLASSPATH`` for TensorFlow's ``hdfs://``, behind what it has, where this host has Hadoop.

    ``HADOOP_HDFS_HOME`` is set too if it is not and libhdfs is there. Hadoop is asked once.
    """
    if CLASSPATH_UPDATED in os.environ:
        return
    env = dict(os.environ)
    for home in filter(None, (env.get("HADOOP_HOME"), env.get("HADOOP_PREFIX"))):
        if os.access(Path(home, "bin", "hadoop"), os.X_OK):
            env["HADOOP_HOME"] = home  # a wrong one would lead the program astray
            break
    if classpath.find(env) is None:
        return
    found = classpath.variables(env)
    if jars := found.get("CLASSPATH"):
        before = env.get("CLASSPATH")
        os.environ["CLASSPATH"] = os.pathsep.join([before, jars] if before else [jars])
        os.environ[CLASSPATH_UPDATED] = "1"
    home = found.get("HADOOP_HDFS_HOME")
    if home and Path(home, "lib", "native", "libhdfs.so").exists():
        os.environ["HADOOP_HDFS_HOME"] = home


def place_on_host(addresses: Sequence[str], index: int) -> int:
    """How many of the addresses before this one are on its host.

    Hosts are compared whole: 10.0.0.1 and 10.0.0.10 are two.
    """
    mine = host_of(addresses[index])
    return sum(host_of(other) == mine for other in addresses[:index])


def host_of(address: str) -> str:
    """The host of ``host:port``, ``[v6]:port`` or ``host``."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    head, colon, _ = address.rpartition(":")
    return head if colon else address


def get_ip_address() -> str:
    """The address other machines reach this one at; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("8.8.8.8", 80))
            return probe.getsockname()[0]
        except OSError:
            pass  # no route to anywhere: what the host's own name means
    try:
        return socket.gethostbyname(socket.getfqdn())
    except OSError:
        return "127.0.0.1"


def find_in_path(path: str, file: str) -> str | Literal[False]:
    """The first file of that name in the folders of ``path`` (as in PATH), or False."""
    for folder in path.split(os.pathsep):
        candidate = Path(folder) / file
        if candidate.is_file():
            return str(candidate)
    return False


def write_executor_id(num: int) -> None:
    """Write the number of this executor into the current folder. Ours needs no such file."""
    Path(EXECUTOR_ID_FILE).write_text(str(num), encoding="ascii")


def read_executor_id() -> int:
    """The number `write_executor_id` wrote.

    Raises:
        FileNotFoundError: there is none in the current folder.
    """
    try:
        return int(Path(EXECUTOR_ID_FILE).read_text(encoding="ascii"))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"no file {EXECUTOR_ID_FILE} in {Path.cwd()}: write_executor_id was not called there. "
            "In a training function the number is ctx.executor_id"
        ) from None
