"""The tests of checkpoints, with their store on HDFS."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest

from tests.unit.storage import test_checkpoint_choice, test_checkpoints

pytestmark = pytest.mark.nightly


def _of_any_store(module: ModuleType) -> dict[str, Any]:
    """The module's tests that take the fixture ``spec``, and so run on any store."""
    return {
        name: test
        for name, test in vars(module).items()
        if name.startswith("test_") and "spec" in inspect.signature(test).parameters
    }


globals().update(_of_any_store(test_checkpoints))
globals().update(_of_any_store(test_checkpoint_choice))
