"""What stands for TensorFlowOnSpark's tests must run."""

from __future__ import annotations

import pytest

from tests.spark.compat.tfos import PARITY


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(PARITY)
