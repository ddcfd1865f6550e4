"""What a Spark task of ours does: it starts a holder, and waits for its end if it holds its slot.

Runs in Spark's Python workers. A problem is an answer, not an exception, where Spark would only
try again; a user's failure never comes here at all.
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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from howdah.backends.base import BackendError
from howdah.backends.spark import luggage, pythonpath
from howdah.backends.spark.messages import Order, Shipment
from howdah.spec.model import Slots
from howdah.storage.files import write_private

LOST = "the holder ended without a word"


class NoHolder(Exception):
    """There will be no holder here; the text is for the user."""


def occupy(shipment: bytes, context: Any) -> str:
    """Start a holder in this task's place; be there as long as it, if the slot is held.

    Args:
        context: pyspark's TaskContext, or BarrierTaskContext.

    Returns:
        Why there is no holder, in words; empty if one was welcomed.
    """
    parts = msgspec.msgpack.decode(shipment, type=Shipment)
    host = socket.gethostname()
    if context.attemptNumber() > 0:
        # Spark tries again what it has lost: the coordinator knows, and asks anew if it wants to.
        return ""
    devices = {name: tuple(each.addresses) for name, each in context.resources().items()}
    try:
        process, base = start(parts, _gpus(devices))
    except (NoHolder, BackendError, OSError, tarfile.TarError) as error:
        return f"{host}: {error}"
    word = _first_line(process, parts.wait_s)
    if word != luggage.READY:
        words = _end(process, base)
        word = f"{word}: {words}" if word == LOST and words else word
        return word if host in word else f"{host}: {word}"
    if parts.order.slots is Slots.SHARED:
        detach(process)
    else:
        wait(process)
    return ""


def start(parts: Shipment, gpus: tuple[str, ...]) -> tuple[subprocess.Popen[bytes], Path]:
    """A holder's process and its folder.

    Raises:
        NoHolder: a limit on memory cannot be lifted.
        BackendError: no folder can be made.
        OSError: no folder or process can be made.
        tarfile.TarError: the source folder cannot be unpacked here.
    """
    from howdah.backends.spark.holder import new_base

    name = secrets.token_hex(6)
    base = new_base(name)
    order = msgspec.structs.replace(
        parts.order,
        holder=name,
        host=socket.gethostname(),
        folder=os.getcwd(),  # noqa: PTH109
        gpus=gpus,
        python=sys.executable,
    )
    try:
        furnish(base, parts, order)
        env = {**os.environ, "PYTHONPATH": pythonpath.told()}
        env.pop("PYTHONHOME", None)
        with (base / luggage.LOG).open("ab") as log, no_limit():
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "howdah.backends.spark.holder", str(base)],
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


def furnish(base: Path, parts: Shipment, order: Order) -> None:
    """Put into a holder's folder what it needs."""
    luggage.put(parts.secrets, base / luggage.SECRETS)
    if not luggage.sees(order):
        luggage.put(parts.files, base / luggage.SHIPPED)
        if parts.source:
            luggage.unpack(parts.source, base / luggage.SOURCE)
    write_private(base / luggage.ORDER, msgspec.json.encode(order))


def detach(process: subprocess.Popen[bytes]) -> None:
    """Let the holder stay when this process ends."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(luggage.GO)
    process.stdin.close()
    process.stdout.close()
    process.wait()  # the holder is its child, and it has ended long ago


def wait(process: subprocess.Popen[bytes]) -> None:
    """Until the holder has ended."""
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
            return f"the coordinator did not answer the holder within {wait_s:g} s"
        data = os.read(descriptor, 4096)
        if not data:
            return line.decode(errors="replace").strip() or LOST
        line += data
    return line.decode(errors="replace").split("\n")[0].strip()


def _end(process: subprocess.Popen[bytes], base: Path) -> str:
    """It sees the end of its input, and goes. Returns its last words."""
    from howdah.backends.local.agents import last_line

    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()
    return last_line(base / luggage.LOG)


def _gpus(devices: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return devices.get("gpu", ())


@contextlib.contextmanager
def no_limit() -> Iterator[None]:
    """Lift ``spark.executor.pyspark.memory`` meanwhile, which limits the address space of Spark's
    Python workers and so of all they start.

    Raises:
        NoHolder: this user cannot lift it.
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
        raise NoHolder(
            f"spark.executor.pyspark.memory limits Python here to {before[1] >> 20} MiB of address "
            "space, and the programs of the job with it, which cannot be lifted from inside; start "
            "the application without that setting"
        ) from None
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
