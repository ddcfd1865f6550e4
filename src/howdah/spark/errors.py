"""Errors of feeding and scoring. Light: Spark's Python workers and training processes import it too."""

from __future__ import annotations


class FeedError(Exception):
    """Rows could not be brought to the training program, or answers back from it.

    In the driver its text has the traceback of the rank that raised; in the training program it has
    Spark's own error.
    """


class ScoringError(ValueError):
    """The model and the rows, or the model's answer and the columns, do not fit each other."""
