"""What `howdah.backends.base.Backend` gives a value, a coordinator reads of every backend."""

from __future__ import annotations

import pytest

from howdah.backends.base import Backend
from howdah.backends.local.backend import LocalBackend
from howdah.backends.spark.backend import SparkBackend
from howdah.backends.yarn.master.backend import YarnBackend


@pytest.mark.parametrize("backend", [LocalBackend, SparkBackend, YarnBackend])
def test_a_backend_has_the_values_that_the_contract_gives(backend: type) -> None:
    given = Backend.__annotations__.keys() & vars(Backend).keys()
    assert given
    assert not [name for name in given if not hasattr(backend, name)]
