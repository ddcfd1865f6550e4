"""The end of the command's process, which does not wait for what does not answer.

Python waits for all its threads before it ends. One may be waiting for a ResourceManager or a NameNode, and
nobody needs the answer any more: the user has been told how it ended, or has left the job behind.
"""

from __future__ import annotations

import os
import threading

LEAVE_S = 2.0
"""For threads that are about to end by themselves."""


def exit_soon(code: int) -> threading.Timer:
    """End this process with that exit code, if it has not ended by itself in a moment.

    What is written must be flushed already.
    """
    timer = threading.Timer(LEAVE_S, os._exit, (code,))
    timer.daemon = True
    timer.start()
    return timer
