"""Tests may be coroutines: each has an event loop of its own."""

from __future__ import annotations

import asyncio
import inspect

import pytest

DEADLINE_S = 60.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await test(**given)

    asyncio.run(bounded())
    return True
