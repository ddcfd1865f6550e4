"""A stand-in agent whose container process uploads 1000 bytes of a folder."""

from __future__ import annotations

from howdah.backends.spark import artifacts
from tests.conformance.standin import main as main

artifacts.ArtifactUploader.__init__.__defaults__ = (1000,)
