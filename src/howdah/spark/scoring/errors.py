"""What can go wrong while rows are scored. Light: Spark's Python workers import it."""

from __future__ import annotations


class ScoringError(ValueError):
    """The model and the rows, or the model's answer and the columns, do not fit each other."""
