"""One target's run: every input is decoded, or refused with a declared error, in time and memory."""

from __future__ import annotations

import contextlib
import logging
import resource
import signal
from types import FrameType

from tests.fuzz import mutate
from tests.fuzz.targets import TARGETS

LIMIT_S = 5.0
"""Of processor time, for one input."""
MEMORY_MB = 300
"""The process may grow by."""


class Failed(AssertionError):
    """An input that the decoder did not stand; the text repeats it."""


class Hung(BaseException):
    """The time limit; no decoder catches it."""


def fuzz(name: str, count: int, seed: int) -> None:
    """Try so many inputs.

    Raises:
        Failed: one crashed the decoder, took too long, or all of them too much memory.
    """
    target = TARGETS[name]
    with contextlib.suppress(*target.errors):
        target.decode(target.seeds[0])  # what that imports takes its time, and is no input's fault
    former = signal.signal(signal.SIGPROF, _hung)
    before = _peak_mb()
    data = b""
    logging.disable()  # a million lines tell nobody anything
    try:
        for data in mutate.inputs(target.seeds, target.words, round(count * target.share), seed):
            signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
            try:
                target.decode(data)
            except target.errors:
                pass
    except (Exception, Hung) as error:
        raise Failed(
            f"{name} --seed {seed}: {type(error).__name__}: {error} on {data!r}"
        ) from error
    finally:
        logging.disable(logging.NOTSET)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)
    if _peak_mb() - before > MEMORY_MB:
        raise Failed(f"{name} --seed {seed}: grew by {_peak_mb() - before:.0f} MB")


def _hung(number: int, frame: FrameType | None) -> None:
    raise Hung


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
