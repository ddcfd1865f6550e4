"""How features and labels are chosen for frameworks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def chosen(columns: Sequence[str] | str | None, label: str | None) -> list[str] | None:
    """Columns to take; None: all."""
    if columns is None:
        return None
    names = [columns] if isinstance(columns, str) else list(columns)
    return names if label is None or label in names else [*names, label]


def given(values: Mapping[str, Any], columns: Sequence[str] | str | None, label: str | None) -> Any:
    """What the program gets of a batch: one array if ``columns`` is a string, else a dict; with a
    label a pair."""
    if isinstance(columns, str):
        features: Any = values[columns]
    else:
        features = {
            name: value
            for name, value in values.items()
            if name != label or (columns is not None and name in columns)
        }
    return features if label is None else (features, values[label])
