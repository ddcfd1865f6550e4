"""The Spark task: starts a container process, and waits for its end if the slot is held.

It runs in Spark's Python workers. A problem is an answer, not an exception, where Spark would only
try again; a failure of the user's program is never one of the task's.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from howdah.backends.base import BackendError
from howdah.backends.interpreter import python_path
from howdah.backends.local.node.log import last_line
from howdah.backends.spark import container_folder
from howdah.backends.spark.launch_bundle import LaunchBundle
from howdah.spec.model import Slots

LOST = "the container process ended without a message"
READY = "ready"
"""From the container process, when the coordinator has registered it."""
STAY = b"stay\n"
"""To the container process: the task is about to end."""


class NoContainer(Exception):
    """There will be no container process here; the text is for the user."""


def run(data: bytes, context: Any) -> str:
    """Start a container process in this task's slot; last as long as it, if the slot is held.

    Args:
        data: the `LaunchBundle`.
        context: pyspark's TaskContext, or BarrierTaskContext.

    Returns:
        Why there is no container process, for the user; empty if one was registered.
    """
    bundle = msgspec.msgpack.decode(data, type=LaunchBundle)
    host = socket.gethostname()
    if context.attemptNumber() > 0:
        # Spark tries a lost task again: the coordinator has noticed, and asks again if need be.
        return ""
    devices = {name: tuple(each.addresses) for name, each in context.resources().items()}
    try:
        process, base = start(bundle, devices.get("gpu", ()))
    except (NoContainer, BackendError, OSError, tarfile.TarError) as error:
        return f"{host}: {error}"
    if problem := wait_for_registration(process, base, bundle.wait_s):
        return problem if host in problem else f"{host}: {problem}"
    if bundle.config.slots is Slots.SHARED:
        detach(process)
    else:
        wait(process)
    return ""


def start(bundle: LaunchBundle, gpus: tuple[str, ...]) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a container process; returns it and its folder.

    Raises:
        NoContainer: a limit on memory cannot be lifted.
        BackendError: no folder can be made.
        OSError: no folder or process can be made.
        tarfile.TarError: the source folder cannot be unpacked here.
    """
    name = secrets.token_hex(6)
    base = container_folder.make_base(name)
    config = msgspec.structs.replace(
        bundle.config,
        name=name,
        host=socket.gethostname(),
        folder=os.getcwd(),  # noqa: PTH109
        gpus=gpus,
        python=sys.executable,
    )
    try:
        container_folder.populate(base, bundle, config)
        env = {**os.environ, "PYTHONPATH": python_path()}
        env.pop("PYTHONHOME", None)
        with (base / container_folder.LOG).open("ab") as log, no_limit():
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "howdah.backends.spark.container", str(base)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=env,
                cwd=base,
                start_new_session=True,
            )
    except BaseException:
        shutil.rmtree(base, ignore_errors=True)
        raise
    return process, base


def wait_for_registration(process: subprocess.Popen[bytes], base: Path, wait_s: float) -> str:
    """Why the container process does not register, once it is ended; empty when it has."""
    answer = _first_line(process, wait_s)
    if answer == READY:
        return ""
    last = _end(process, base)
    return f"{answer}: {last}" if answer == LOST and last else answer


def detach(process: subprocess.Popen[bytes]) -> None:
    """Let the container process stay when this one ends."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(STAY)
    process.stdin.close()
    process.stdout.close()
    process.wait()  # the container process is its child; it has ended itself long ago


def wait(process: subprocess.Popen[bytes]) -> None:
    """Wait until the container process has ended."""
    assert process.stdin is not None and process.stdout is not None
    while process.stdout.read(4096):
        pass
    process.wait()
    process.stdin.close()
    process.stdout.close()


def _first_line(process: subprocess.Popen[bytes], wait_s: float) -> str:
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    line = b""
    deadline = time.monotonic() + wait_s
    while not line.endswith(b"\n"):
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([descriptor], [], [], left_s)[0]:
            return f"the coordinator did not answer the container process within {wait_s:g} s"
        data = os.read(descriptor, 4096)
        if not data:
            return line.decode(errors="replace").strip() or LOST
        line += data
    return line.decode(errors="replace").split("\n")[0].strip()


def _end(process: subprocess.Popen[bytes], base: Path) -> str:
    """End it by the end of its input; returns the last line of its log."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()
    return last_line(base / container_folder.LOG)


@contextlib.contextmanager
def no_limit() -> Iterator[None]:
    """Lift ``spark.executor.pyspark.memory`` meanwhile, which limits the address space of Spark's
    Python workers and so of all they start.

    Raises:
        NoContainer: this user cannot lift it.
    """
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    infinity = resource.RLIM_INFINITY
    if before == (infinity, infinity):
        yield
        return
    try:
        resource.setrlimit(resource.RLIMIT_AS, (infinity, infinity))
    except (OSError, ValueError):
        raise NoContainer(
            f"spark.executor.pyspark.memory limits Python here to {before[1] >> 20} MiB of address "
            "space, and the programs of the job with it, which cannot be lifted from inside; start "
            "the application without that setting"
        ) from None
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
