"""What stands for TensorFlowOnSpark's tests must run."""

from __future__ import annotations

from tests.spark.compat.parity import pytest_runtest_makereport  # noqa: F401  (a hook)
