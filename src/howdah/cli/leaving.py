"""The end of the command's process: it comes when the user wants it to, and does not wait for what does not answer.

Python waits for all its threads before it ends. One may be waiting for a ResourceManager or a NameNode, and
nobody needs the answer any more: the user has been told how it ended, or has left the job behind.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

LEAVE_S = 2.0
"""For threads that are about to end by themselves."""
_AGAIN_S = 0.05
"""For the callback to end in which a Ctrl-C was lost."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, whose end waits for the threads of `asyncio.to_thread`; this one's does not."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    class Threads(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)

    async def begin() -> T:
        asyncio.get_running_loop().set_default_executor(Threads())
        return await main

    return asyncio.run(begin())


def never_lose_ctrl_c() -> None:
    """Interrupt once more where Python has lost a Ctrl-C.

    It raises KeyboardInterrupt wherever it is; from what it calls by itself, such as the callback of a lock
    of its imports, no exception comes further.
    """

    def lost(what: sys.UnraisableHookArgs) -> None:
        if not isinstance(what.exc_value, KeyboardInterrupt):
            sys.__unraisablehook__(what)
            return
        main = threading.main_thread().ident
        again = threading.Timer(_AGAIN_S, signal.pthread_kill, (main, signal.SIGINT))
        again.daemon = True
        again.start()

    sys.unraisablehook = lost


def exit_soon(code: int) -> None:
    """End this process with that exit code, if it has not ended by itself in a moment.

    What is written must be flushed already.
    """
    timer = threading.Timer(LEAVE_S, os._exit, (code,))
    timer.daemon = True
    timer.start()
