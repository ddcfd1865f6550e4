"""Asynchronous tests, and the test cluster as this library sees it."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from howdah.hadoop.configuration import Configuration
from tests.hadoop.cluster import Cluster


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def configuration(hadoop: Cluster) -> Configuration:
    """The shared cluster's, as clients have it."""
    return Configuration.load(hadoop.conf_dir, env={})


@pytest.fixture
def user(hadoop: Cluster) -> str:
    """Who may do everything there."""
    return hadoop.site.user
