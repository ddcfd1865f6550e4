"""What feeding can be asked for, and what is refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from howdah.client.errors import BadInput
from howdah.spark.cluster import _options


def options(**given: Any) -> Any:
    asked = {"epochs": 1, "align": "drop", "cache": False, "shuffle": None, "spill": None}
    return _options("train", **(asked | given))


@pytest.mark.parametrize("align", ["pad", "dorp"])
def test_an_end_of_epochs_that_is_none_is_refused(align: str) -> None:
    with pytest.raises(BadInput, match=f"align is '{align}'; there are 'drop' and 'none'"):
        options(align=align)
