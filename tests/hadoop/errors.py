"""What can go wrong with the cluster itself, told so that a reader knows what to do."""

from __future__ import annotations


class ClusterError(Exception):
    """The test cluster cannot be made, or does not do what it was asked. The text says why."""
