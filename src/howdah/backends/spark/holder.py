"""The holder: one place in the cluster, kept where a Spark task has started it.

``python -m howdah.backends.spark.holder <folder>``, with `luggage.ORDER` in the folder. It

- leaves the Spark task's care, if that is to end before it: it is nobody's child then. Where the
  slot is held it stays the task's child: whoever looks at the executor's processes counts it;
- dials the coordinator, again and again, and starts, watches and ends one agent at a time for it;
- brings files home where the job directory is not seen;
- ends when it is told to, when it has had no coordinator for the length of the lease, or when the
  Spark task it lasts as long as is ended. Nothing of it is left then.

Standard input is a pipe from the Spark task: ``go`` on it means that the task will end and the
holder is to stay; its end without that word means that Spark has ended the task. Standard output
gets ``ready``, or the reason why there is no holder.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from pathlib import Path

import msgspec

from howdah.agent.processes import name_process
from howdah.backends.local import places
from howdah.backends.local.forks import log_to, no_input
from howdah.backends.spark import luggage
from howdah.backends.spark.holding import Holder
from howdah.backends.spark.messages import Order
from howdah.spec.model import Slots


def main(folder: str) -> None:
    """Be the holder of that folder."""
    base = Path(folder)
    os.umask(0o077)
    order = msgspec.json.decode((base / luggage.ORDER).read_bytes(), type=Order)
    if order.slots is Slots.SHARED and os.fork():
        os._exit(0)
    os.chdir(base)
    # Out of the way: agents inherit the first three.
    task, answer = os.dup(0), os.dup(1)
    no_input()
    log_to(base / luggage.LOG)
    name_process("howdah-holder")
    lock = luggage.claim(base)
    sys.path.extend(path for path in order.paths if path not in sys.path)
    os.environ["HOWDAH_SPARK_SECRETS"] = str(base / luggage.SECRETS)
    os.environ["HOWDAH_SPARK_FOLDER"] = order.folder
    if order.other_python:
        os.environ.pop("PYTHONPATH", None)  # what this Python was told is not for that one
    with contextlib.suppress(Exception):  # an agent that can't be imported says so when launched
        importlib.import_module(order.agent.partition(":")[0])
    Holder(base, order, task, answer).run()
    os.close(lock)


def new_base(holder: str) -> Path:
    """The folder of a new holder: private, with a short path.

    Raises:
        BackendError: the folder for sockets cannot be used.
        OSError: it cannot be made.
    """
    folder = places.runtime_folder()
    luggage.tidy(folder)
    base = folder / f"{luggage.PREFIX}{holder}"
    base.mkdir(mode=0o700)
    return base


if __name__ == "__main__":
    main(sys.argv[1])
