"""The first moment of a submission that was not given a session.

In a program that has a session, or that ``spark-submit`` has started, the job is in that
application. Otherwise it gets a driver program of its own, which starts while the job is loaded.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from howdah.backends.base import Submission

_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""Set by ``spark-submit`` for the program it starts."""


def begin() -> Submission:
    """The submission of one job.

    Raises:
        BackendError: there is no pyspark, or no application can be started.
    """
    if _GATEWAY in os.environ or _has_session():
        from howdah.backends.spark.application import in_this_program

        return in_this_program()
    from howdah.backends.spark.detached import DetachedSubmission

    return DetachedSubmission()


def _has_session() -> bool:
    if "pyspark" not in sys.modules:
        return False
    from howdah.backends.spark.application import active

    return active() is not None
