"""Coroutines are run, as in the tests of the agent."""

from __future__ import annotations

from tests.agent.conftest import one_nursery, pytest_pyfunc_call

__all__ = ["one_nursery", "pytest_pyfunc_call"]
