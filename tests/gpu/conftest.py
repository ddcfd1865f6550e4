"""These tests run where an NVIDIA driver is; nothing could stand for one."""

from __future__ import annotations

import pytest

from howdah.backends import gpus

HERE = gpus.DRIVER.exists()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/gpu/" in item.nodeid:
            item.add_marker(pytest.mark.nightly)
            if not HERE:
                item.add_marker(pytest.mark.skip(reason="this machine has no NVIDIA driver"))
