"""What is among the rows of an input queue and is no row."""

from __future__ import annotations


class Marker:
    """Something in an input queue that is no row."""


class EndPartition(Marker):
    """The rows of a partition end here."""
