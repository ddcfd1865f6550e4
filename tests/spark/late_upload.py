"""A stand-in agent whose container process has no time left for uploads, and a connection that is full."""

from __future__ import annotations

import sys

from tests.conformance.standin import main as main

process = sys.modules["__main__"]  # howdah.backends.spark.container
vars(process).update(LAST_UPLOAD_S=-1.0, FULL_BYTES=-1)
