"""Forked children of the node daemon: clean descriptors, clean signals, and no way back.

The daemon has one thread and has imported what its children need, so a child is at work within
milliseconds. Nothing of the daemon may leak into it: not its sockets, locks or signal handlers.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence

from howdah.agent.host.processes import close_all_but
from howdah.backends.local.node.supervision import CANNOT_START

_DEFAULT = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGCHLD,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


def fork(run: Callable[[], int], keep: Sequence[int] = ()) -> int:
    """Run a function in a child and return the child's process id.

    The child has standard input, output and error, and copies of ``keep`` from descriptor 3 on;
    its exit code is the function's result, 1 after an exception.

    Raises:
        OSError: the system allows no more processes.
    """
    parent = os.getpid()
    gc.freeze()  # nothing that lives now need ever be looked at again: pages stay shared
    # A signal for the child that came before it is clean would be told to our own loop.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _DEFAULT)
    try:
        pid = os.fork()
    finally:
        if os.getpid() == parent:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if pid:
        return pid
    code = 1
    try:
        _clean_signals()
        _arrange(keep)
        code = run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code & 0xFF)
    return 0  # never reached; fork returned in the parent


def entry(name: str) -> Callable[[str], int]:
    """The function ``module:function``.

    Raises:
        Exception: whatever importing it raises.
    """
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def no_input() -> None:
    """Let standard input of this process be empty."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def cannot_start(text: str) -> int:
    """Leave a word in the log, and the exit code that says nothing was begun."""
    print(text, file=sys.stderr)  # noqa: T201
    return CANNOT_START


def _clean_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in _DEFAULT:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # Python's own answer to Ctrl-C, as in a process that was not forked.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _arrange(keep: Sequence[int]) -> None:
    # Out of the way first: a target number may be another one's source.
    high = [_above(descriptor, 3 + len(keep)) for descriptor in keep]
    for number, descriptor in enumerate(high, start=3):
        os.dup2(descriptor, number, inheritable=False)
    close_all_but(range(3 + len(keep)))


def _above(descriptor: int, least: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, least)
